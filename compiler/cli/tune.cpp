#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>

#include "autotune/report.h"
#include "autotune/resources.h"
#include "autotune/tuner.h"
#include "compiler/cli/commands.h"
#include "compiler/cli/tune_files.h"
#include "ops/registry.h"
#include "runtime/cuda/device.h"
#include "runtime/environment.h"
#include "runtime/plugin.h"

namespace linnet::cli {

namespace {

std::atomic<bool> interrupted = false;

// The first Ctrl-C ends the search and keeps what it found; the second ends the program.
struct Interruptible {
  Interruptible() {
    interrupted = false;
    std::signal(SIGINT, [](int) {
      interrupted = true;
      std::signal(SIGINT, SIG_DFL);
    });
  }
  ~Interruptible() { std::signal(SIGINT, SIG_DFL); }
};

// What was typed, for whoever reads the file.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text = "linnet", word;
  for (std::getline(file, word, '\0'); std::getline(file, word, '\0');) text += " " + word;
  return text;
}

double seconds_of(const std::string& text) {
  char* end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  std::string unit = end;
  double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (end == text.c_str() || !(number > 0) || scale == 0 || number * scale > 1e7)
    throw UserError(
        fmt::format("--budget: expected a time such as 90s, 10m or 1h; got '{}'", text));
  return number * scale;
}

// One line that is written over, where somebody looks.
void show_progress(double done, double seconds_left, const std::string& what) {
  if (!isatty(STDERR_FILENO)) return;
  constexpr int kBar = 24;
  int full = static_cast<int>(done * kBar);
  std::string left =
      seconds_left < 0 ? "" : fmt::format(" {:.0f} s left ", std::max(0., seconds_left));
  fmt::print(stderr, "\r\033[K[{}{}] {:3.0f} %{} {:.90}", std::string(full, '#'),
             std::string(kBar - full, '.'), 100 * done, left, what);
  if (done >= 1) fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

struct Tune {
  std::vector<std::string> ops, directions = {"forward", "backward", "decode"},
                                lengths = {"short", "medium", "long"}, widths = {"many", "few"};
  Problem problem;
  autotune::TuneOptions options;
  std::string gate = "pre", dtype = "f32", gate_dtype = "f32", budget, report, directory, memory;
  std::vector<std::string> others;
  int runs = 15;
  bool all = false, list = false, registers = false;

  void run() {
    std::vector<Problem> problems = finish();
    if (registers && !list) throw UserError("--registers: expected --list with it");
    if (list) return print_space(problems);
    if (!others.empty()) return print_comparison(problems);
    options.made_by = command_line();
    Interruptible handler;
    options.stop = [] { return interrupted.load(); };
    options.progress = show_progress;
    auto tuned = autotune::tune(problems, options);
    for (const autotune::Tuned& t : tuned)
      fmt::print("{}\n  {}  {:.2f} x the default's speed, {}{}\n", t.entry.place(),
                 t.entry.schedule.describe(), 1 / t.result.best.ratio, t.entry.how,
                 t.result.complete ? "" : ", not every candidate had its turn");
    if (interrupted) fmt::print("stopped; the same command goes on from here\n");
    if (tuned.empty()) throw DeviceError("nothing was tuned");
    fmt::print("kept in {}\n", autotune::tuning_file_for(options).string());
    if (report.empty()) return;
    autotune::write_report(report, tuned);
    fmt::print("drawn in {}\n", report);
  }

  std::vector<Problem> finish() {
    problem.gate = one_of<Gate>(
        "gate", gate,
        {{"pre", Gate::pre}, {"softplus", Gate::softplus}, {"bounded", Gate::bounded}});
    if (problem.gate == Gate::bounded && problem.lower_bound == 0) problem.lower_bound = -5;
    std::vector<std::pair<std::string, DType>> formats = {
        {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
    problem.dtype = one_of<DType>("dtype", dtype, formats);
    problem.gate_dtype = one_of<DType>("gate-dtype", gate_dtype, formats);
    options.directions.clear();
    for (const std::string& text : directions)
      options.directions.push_back(one_of<Direction>("direction", text,
                                                     {{"forward", Direction::forward},
                                                      {"backward", Direction::backward},
                                                      {"decode", Direction::decode}}));
    options.lengths.clear();
    for (const char* name : {"long", "medium", "short"})  // the largest decides first
      if (std::find(lengths.begin(), lengths.end(), name) != lengths.end())
        options.lengths.push_back(one_of<Length>("length", name, kLengths));
    for (const std::string& text : lengths) one_of<Length>("length", text, kLengths);
    options.widths.clear();
    for (const auto& [name, width] : kWidths)  // many decides first
      if (std::find(widths.begin(), widths.end(), name) != widths.end())
        options.widths.push_back(width);
    for (const std::string& text : widths) one_of<Width>("width", text, kWidths);
    if (!budget.empty()) options.budget_s = seconds_of(budget);
    if (!memory.empty()) options.memory_bytes = environment::parse_bytes(memory, "--memory-limit");
    options.directory = directory;
    if (all && !ops.empty()) throw UserError("--all: expected no ops with it");
    if (all)
      for (const auto& entry : linnet::ops::registry()) ops.push_back(entry.name);
    if (ops.empty()) throw UserError("op: expected a recurrence of `linnet list`, or --all");
    std::vector<Problem> problems;
    for (const std::string& name : ops) {
      linnet::ops::find(name);
      problem.op = name;
      problems.push_back(problem);
    }
    return problems;
  }

  // The schedule in use beside others: times of the schedule in use, and the others' in times of
  // it.
  void print_comparison(const std::vector<Problem>& problems) {
    std::vector<Schedule> schedules;
    for (const std::string& text : others) schedules.push_back(Schedule::parse(text, "--compare"));
    for (const auto& c : autotune::compare(problems, schedules, runs, options)) {
      const auto& shapes = c.unit.subject.shapes;
      fmt::print("{} {}, in use: {}\n", c.unit.subject.problem.op,
                 name_of(c.unit.subject.direction), c.schedules[0].describe());
      for (size_t w = 0; w < shapes.size(); ++w) {
        fmt::print("  B={} T={} H={}: ", shapes[w].batch, shapes[w].tokens, shapes[w].value_heads);
        for (size_t i = 0; i < c.schedules.size(); ++i)
          if (!c.samples[i].error.empty())
            fmt::print("; {}: {}", c.schedules[i].describe(), c.samples[i].error);
          else if (i == 0)
            fmt::print("{:.4g} ms", c.samples[i].ms[w]);
          else
            fmt::print("; {}: {:.3f} x", c.schedules[i].describe(), c.samples[i].ratio[w]);
        fmt::print("\n");
      }
    }
  }

  void print_space(const std::vector<Problem>& problems) {
    for (const Problem& p : problems)
      for (Direction direction : options.directions) {
        Compiler& compiler = compiler_for("linnet tune --list");
        autotune::Space space =
            autotune::make_space(compiler, p, direction, autotune::limits_of(options.device));
        if (registers) leave_out_spilling(space, compiler, p, direction);
        fmt::print("{} on {}: {} schedules, {} left out\n", TuningKey(p, direction).describe(),
                   options.device, space.candidates.size(), space.refused.size());
        for (size_t i = 0; i < space.candidates.size(); ++i)
          fmt::print("  {:<72} {}{}\n", space.candidates[i].schedule.describe(),
                     space.candidates[i].note, i == 0 ? " (default)" : "");
        for (const auto& refused : space.refused)
          fmt::print("  not {:<68} {}\n", refused.schedule.describe(), refused.why);
      }
  }

  void leave_out_spilling(autotune::Space& space, Compiler& compiler, const Problem& p,
                          Direction direction) {
    if (options.device == "cpu")
      throw UserError("--registers: expected a GPU as --device, ptxas knows no other");
    double all = static_cast<double>(space.candidates.size() + space.refused.size());
    autotune::check_registers(
        space, compiler, p, direction, cuda::Device::open(options.device)->arch(),
        [&](size_t seen) { show_progress(static_cast<double>(seen) / all, -1, "ptxas"); });
  }

  static inline const std::vector<std::pair<std::string, Length>> kLengths = {
      {"short", Length::short_}, {"medium", Length::medium}, {"long", Length::long_}};
  static inline const std::vector<std::pair<std::string, Width>> kWidths = {{"many", Width::many},
                                                                            {"few", Width::few}};
};

}  // namespace

void add_tune(CLI::App& app) {
  auto tune = std::make_shared<Tune>();
  CLI::App* command = app.add_subcommand(
      "tune",
      "find the best schedules of an op and keep them; calls never search (docs/autotune.md)\n"
      "  linnet tune kda --budget 120s            on this CPU, by measuring\n"
      "  linnet tune kda --device cuda:0          on a GPU, by measuring\n"
      "  linnet tune kda --device virtual:sm_90   for a GPU that is not here, by a model\n"
      "  linnet tune kda --list                   what would be tried\n"
      "  linnet tune show                         what is known, and how it was found\n"
      "Ctrl-C keeps what is found; the same command then goes on where it was.");
  command->require_subcommand(0, 1);
  command->add_option("ops", tune->ops, "recurrences of `linnet list`");
  command->add_flag("--all", tune->all, "every recurrence");
  command
      ->add_option("--device", tune->options.device,
                   "cpu or cuda:<number>, by measuring; virtual:sm_<arch>, by a model")
      ->capture_default_str();
  command->add_option("--direction", tune->directions, "forward, backward, decode")->delimiter(',');
  command->add_option("--length", tune->lengths, "classes of lengths: short, medium, long")
      ->delimiter(',');
  command
      ->add_option(
          "--width", tune->widths,
          "GPU: classes of sequences x heads: many, few. The first one tuned decides in "
          "which order all add their sums: `--width few` lets long sequences with few heads "
          "be cut into segments")
      ->delimiter(',');
  command->add_option("--dtype", tune->dtype, "f32, bf16 or f16")->capture_default_str();
  command->add_option("--gate-dtype", tune->gate_dtype, "f32, bf16 or f16")->capture_default_str();
  command->add_option("--gate", tune->gate, "pre, softplus or bounded")->capture_default_str();
  command->add_option("--lower-bound", tune->problem.lower_bound, "of the gate, in [-5, 0)");
  command->add_option("--key-dim", tune->problem.key_dim, "key channels")->capture_default_str();
  command->add_option("--value-dim", tune->problem.value_dim, "value channels")
      ->capture_default_str();
  command->add_option("--threads", tune->options.threads, "threads of the device cpu");
  command->add_flag("--generic", tune->options.generic,
                    "cpu: only schedules that suit any CPU, for `export --generic`");
  command->add_option("--budget", tune->budget,
                      "time for everything together: 90s, 10m (without: until all is measured)");
  command->add_option("--memory-limit", tune->memory,
                      "GPU memory that may be used: 512M, 4G (without: half of what is free)");
  command->add_option("--dir", tune->directory, "another directory than LINNET_TUNING_DIR's");
  command->add_option("--report", tune->report, "draw what was seen into this .html or .svg file");
  command
      ->add_option("--compare", tune->others,
                   "search nothing, but time the schedule in use beside these: \"chunk=1\" "
                   "\"chunk=32 register_rows=6\"")
      ->expected(1, 64);
  command->add_option("--runs", tune->runs, "with --compare: of each")->capture_default_str();
  command->add_flag("--list", tune->list, "only show the schedules, and why others are left out");
  command->add_flag(
      "--registers", tune->registers,
      "with --list, for a GPU: also ask ptxas, a second or more a schedule, and leave "
      "out what spills");
  add_tune_files(*command);
  command->callback([tune, command] {
    if (command->get_subcommands().empty()) tune->run();
  });
}

}  // namespace linnet::cli
