#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "compiler/cli/commands.h"
#include "linnet/bundle.h"
#include "linnet/error.h"
#include "ops/registry.h"
#include "runtime/cuda/architectures.h"

namespace linnet::cli {

namespace {

std::string seconds_text(std::chrono::steady_clock::time_point since) {
  std::chrono::duration<double> taken = std::chrono::steady_clock::now() - since;
  return fmt::format("{:.2f} s", taken.count());
}

struct Compile {
  std::vector<std::string> ops, archs, gates = {"pre"}, dtypes = {"bf16"},
                                       directions = {"forward", "backward", "decode"};
  Problem common;
  std::string beta = "plain", gate_dtype = "f32", output;
  bool no_A_log = false;
  int64_t chunk = 0;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());

  struct Task {
    Problem problem;
    BuildOptions options;
    std::string arch, title;
  };

  // Everything asked for, refused as a whole if a part of it is wrong.
  std::vector<Task> tasks() {
    const std::vector<std::pair<std::string, DType>> formats = {
        {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
    common.beta = one_of<Beta>(
        "beta", beta,
        {{"plain", Beta::plain}, {"sigmoid", Beta::sigmoid}, {"2sigmoid", Beta::twice_sigmoid}});
    common.gate_dtype = one_of<DType>("gate-dtype", gate_dtype, formats);
    common.has_A_log = !no_A_log;
    if (chunk < 0) throw UserError(fmt::format("--chunk: expected at least 1, got {}", chunk));
    for (const std::string& arch : archs) cuda::find_architecture(arch);
    std::vector<Task> list;
    for (const std::string& op : ops)
      for (const std::string& gate : gates)
        for (const std::string& dtype : dtypes)
          for (const std::string& direction : directions)
            for (const std::string& arch : archs) {
              linnet::ops::find(op);
              Task task;
              task.arch = arch;
              task.title = fmt::format("{} {} {} {}", op, direction, gate, dtype);
              Problem& problem = task.problem = common;
              problem.op = op;
              problem.dtype = one_of<DType>("dtype", dtype, formats);
              problem.gate = one_of<Gate>(
                  "gate", gate,
                  {{"pre", Gate::pre}, {"softplus", Gate::softplus}, {"bounded", Gate::bounded}});
              if (problem.gate == Gate::bounded && problem.lower_bound == 0)
                problem.lower_bound = -5;
              task.options.direction = one_of<Direction>("direction", direction,
                                                         {{"forward", Direction::forward},
                                                          {"backward", Direction::backward},
                                                          {"decode", Direction::decode}});
              if (task.options.direction != Direction::decode) task.options.chunk = chunk;
              list.push_back(task);
            }
    return list;
  }

  void run() {
    const std::vector<Task> list = tasks();
    auto start = std::chrono::steady_clock::now();
    std::mutex mutex;  // guards what follows, and lines
    size_t next = 0, done = 0, bytes = 0;
    std::exception_ptr failed;
    bool tty = isatty(STDERR_FILENO);
    fmt::print("{:<44} {:<12} {:>7} {:>9} {:>9}  {}\n", "op", "arch", "kernels", "bytes", "time",
               "key");
    auto work = [&] {
      while (true) {
        size_t index;
        {
          std::lock_guard lock(mutex);
          if (next == list.size() || failed) return;
          index = next++;
          if (tty) fmt::print(stderr, "\r{}/{} {} ", done, list.size(), list[index].title);
        }
        const Task& task = list[index];
        auto begun = std::chrono::steady_clock::now();
        try {
          Bundled made = compile_ahead(task.problem, task.options, task.arch, output);
          std::lock_guard lock(mutex);
          ++done;
          bytes += made.bytes;
          fmt::print("{}{:<44} {:<12} {:>7} {:>9} {:>9}  {}\n", tty ? "\r" : "", task.title,
                     task.arch, made.kernels, made.bytes,
                     made.cached ? "cached" : seconds_text(begun), made.key.substr(0, 12));
          std::fflush(stdout);
        } catch (...) {
          std::lock_guard lock(mutex);
          if (!failed) failed = std::current_exception();
          return;
        }
      }
    };
    std::vector<std::jthread> workers;
    for (unsigned i = 1; i < std::min<size_t>(jobs, list.size()); ++i) workers.emplace_back(work);
    work();
    workers.clear();
    if (failed) std::rethrow_exception(failed);
    fmt::print("{}: {} compiled ahead, {} bytes of code, in {}\n", output, list.size(), bytes,
               seconds_text(start));
    fmt::print("Run from it with LINNET_BUNDLE={} (and LINNET_JIT=0 to compile nothing else).\n",
               output);
  }
};

}  // namespace

void add_compile(CLI::App& app) {
  auto compile = std::make_shared<Compile>();
  CLI::App* command = app.add_subcommand(
      "compile",
      "compile kernels ahead into a bundle, for GPUs that need not be here\n"
      "  linnet compile kda --arch sm_80,sm_90 -o bundle              forward, backward and "
      "decode\n"
      "  linnet compile kda gla --arch sm_90,compute_90 --gate softplus --direction decode -o "
      "bundle\n"
      "sm_90 is machine code for GPUs of compute capability 9.0. compute_90 is PTX, which drivers "
      "compile for\n"
      "9.0 and everything later, and which virtual:sm_90 runs. A bundle is a directory; compile "
      "into the same\n"
      "one again to add to it, copy it anywhere, and name it in LINNET_BUNDLE or "
      "DeviceOptions::bundles.\n"
      "A program then needs liblinnet.so alone: no MLIR, no NVRTC, no compiler. It must be of the "
      "same build of\n"
      "Linnet. `linnet cache --dir bundle list` shows what is inside, `verify` checks every byte.");
  command->add_option("ops", compile->ops, "recurrences of `linnet list`")->required();
  command
      ->add_option("--arch", compile->archs, "targets: sm_80, ... or compute_80, ...; several by ,")
      ->delimiter(',')
      ->required();
  command->add_option("-o,--output", compile->output, "the bundle's directory")->required();
  command->add_option("--direction", compile->directions, "forward, backward, decode; several by ,")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--gate", compile->gates, "pre, softplus, bounded; several by ,")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--dtype", compile->dtypes, "of inputs: bf16, f16, f32; several by ,")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-K,--key-dim", compile->common.key_dim, "key channels of a head")
      ->capture_default_str();
  command->add_option("-V,--value-dim", compile->common.value_dim, "value channels of a head")
      ->capture_default_str();
  command->add_option("--lower-bound", compile->common.lower_bound,
                      "of a bounded gate (-5); for --gate pre a promise of the caller (0: none)");
  command->add_flag("--no-A-log", compile->no_A_log, "a bounded gate without A_log");
  command->add_option("--gate-dtype", compile->gate_dtype, "of gates: f32, bf16 or f16")
      ->capture_default_str();
  command->add_option("--beta", compile->beta, "how beta is given: plain, sigmoid or 2sigmoid")
      ->capture_default_str();
  command->add_flag("--l2norm", compile->common.l2norm, "divide q and k by their l2 norms");
  command->add_flag("--tf32", compile->common.tf32, "with f32: products may use tf32");
  command->add_option("--chunk", compile->chunk,
                      "tokens of a chunk instead of the usual; programs must ask for the same");
  command->add_option("-j,--jobs", compile->jobs, "kernels compiled at a time")
      ->capture_default_str();
  command->callback([compile] { compile->run(); });
}

}  // namespace linnet::cli
