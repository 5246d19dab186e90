#include "tests/check/check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "compiler/cli/commands.h"
#include "compiler/cpu/target.h"
#include "linnet/error.h"

namespace linnet::cli {

namespace {

using check::Case;
using check::Result;

struct Check {
  std::vector<std::string> ops;
  bool all = false, exhaustive = false, verbose = false;
  size_t most = 0;  // cases of an op; 0: all
  std::vector<int64_t> tokens;
  std::string device = "interpreter", schedule_text, target_cpu;
  std::optional<Device> opened;  // none: the interpreter
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());

  std::vector<Case> cases_of(const std::string& op) const {
    const auto& entry = linnet::ops::find(op);
    auto cases =
        opened ? check::device_cases_of(entry, exhaustive) : check::cases_of(entry, exhaustive);
    if (most && cases.size() > most) {  // spread over all of them
      std::vector<Case> some;
      for (size_t i = 0; i < most; ++i) some.push_back(cases[i * cases.size() / most]);
      cases = some;
    }
    // What shared memory holds bounds the chunk of a GPU kernel.
    for (Case& c : cases)
      if (opened && device != "cpu" && std::max(c.problem.key_dim, c.problem.value_dim) > 64)
        c.options.chunk_size = std::min<int64_t>(c.options.chunk_size, 16);
    if (!tokens.empty())
      for (Case& c : cases) c.layout.lengths = tokens;
    for (Case& c : cases) c.target_cpu = target_cpu;
    if (!schedule_text.empty())
      for (Case& c : cases) {
        c.schedule = Schedule::parse(schedule_text, "--schedule");
        c.options.chunk_size = c.schedule->chunk;
        c.options.stages = c.schedule->stages;
      }
    return cases;
  }

  void run() {
    if (device != "interpreter") opened = Device::open(device, {.threads = 1});
    if (!opened && !schedule_text.empty())
      throw UserError("--schedule: expected a --device with it, the interpreter has none");
    if (device != "cpu" && !target_cpu.empty())
      throw UserError(fmt::format("--target-cpu: expected --device cpu with it, got {}", device));
    if (!target_cpu.empty()) cpu::Target::named(target_cpu);  // its error once
    if (opened && device != "cpu") threads = 1;  // the virtual GPU has threads of its own
    if (all == !ops.empty())
      throw UserError("check: expected the names of ops, or --all; not both");
    if (all)
      for (const auto& entry : linnet::ops::registry()) ops.push_back(entry.name);
    for (int64_t count : tokens)
      if (count < 0)
        throw UserError(fmt::format("--tokens: expected no negative length, got {}", count));
    size_t failed = 0, total = 0;
    auto start = std::chrono::steady_clock::now();
    for (const std::string& op : ops) {
      auto cases = cases_of(op);
      total += cases.size();
      failed += run_op(op, cases);
    }
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    fmt::print("{} cases of {} ops in {:.1f} s: {}\n", total, ops.size(), seconds,
               failed ? fmt::format("{} FAILED", failed) : "all passed");
    if (failed) throw ExitCode{1};
  }

  // Runs the cases of one op over the threads; returns how many failed.
  size_t run_op(const std::string& op, const std::vector<Case>& cases) {
    std::atomic<size_t> next = 0, done = 0, failed = 0;
    std::mutex printing;
    bool tty = isatty(STDERR_FILENO);
    auto work = [&] {
      for (size_t i; (i = next++) < cases.size();) {
        auto lines = run_case(cases[i], failed);
        std::lock_guard lock(printing);
        for (const std::string& line : lines) fmt::print("{}\n", line);
        ++done;
        if (tty) fmt::print(stderr, "\r{:<21} {}/{} ", op, done.load(), cases.size());
      }
    };
    auto start = std::chrono::steady_clock::now();
    std::vector<std::jthread> workers;
    for (unsigned i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
    workers.clear();
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (tty) fmt::print(stderr, "\r");
    fmt::print("{:<21} {:>5} cases {:>6.1f} s  {}\n", op, cases.size(), seconds,
               failed ? fmt::format("{} FAILED", failed.load()) : "ok");
    std::fflush(stdout);
    return failed;
  }

  std::vector<std::string> run_case(const Case& c, std::atomic<size_t>& failed) const {
    std::vector<std::string> lines;
    bool passed = true;
    try {
      for (const Result& result : opened ? check::check_on(*opened, c) : check::check(c)) {
        passed &= result.passed;
        std::string measured =
            result.limit > 0 ? fmt::format(" {:.2e}, limit {:g}", result.error, result.limit) : "";
        if (!result.passed || verbose)
          lines.push_back(fmt::format("  {} {}: {}{}", result.passed ? "ok  " : "FAIL", c.name(),
                                      result.measure, measured));
      }
    } catch (const std::exception& error) {
      passed = false;
      lines.push_back(fmt::format("  FAIL {}: {}", c.name(), error.what()));
    }
    if (!passed) ++failed;
    return lines;
  }
};

}  // namespace

void add_check(CLI::App& app) {
  auto check = std::make_shared<Check>();
  CLI::App* command = app.add_subcommand(
      "check",
      "hold the derived forward and backward graphs against a token-by-token reference\n"
      "Every op is run over its gate modes, chunk sizes 1, 16, 32 and 64, odd lengths, several "
      "sequences, K != V,\n"
      "shared key heads, initial and final states: float64 to 1e-10 (gradients 1e-8), bf16 by root "
      "mean square,\n"
      "gates at their extremes for NaN, and one token changed for causality to the bit.");
  command->add_option("ops", check->ops, "recurrences of `linnet list`");
  command->add_flag("--all", check->all, "every recurrence");
  command->add_flag("--exhaustive", check->exhaustive,
                    "the whole product of modes and sizes instead of a covering sample (hours)");
  command
      ->add_option("--tokens", check->tokens,
                   "lengths of the sequences, e.g. --tokens 130,0,15, instead of the usual ones")
      ->delimiter(',');
  command->add_option("--cases", check->most,
                      "at most so many cases of an op, spread over modes and sizes");
  command
      ->add_option(
          "--device", check->device,
          "what runs the graphs: the interpreter, cpu (compiled for this machine), cuda:0, or "
          "virtual:sm_90 (the PTX executor)")
      ->capture_default_str();
  command->add_option("--schedule", check->schedule_text,
                      "with a device: how, e.g. \"chunk=16 segment=64\"");
  command->add_option("--target-cpu", check->target_cpu,
                      "with --device cpu: code for another processor that this one can run, e.g. "
                      "x86-64-v3");
  command->add_option("--threads", check->threads, "cases at a time")->capture_default_str();
  command->add_flag("-v,--verbose", check->verbose, "print every result");
  command->callback([check] { check->run(); });
}

}  // namespace linnet::cli
