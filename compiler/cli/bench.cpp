#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "compiler/cli/bench_table.h"
#include "compiler/cli/commands.h"
#include "linnet/error.h"
#include "ops/registry.h"

namespace linnet::cli {

namespace {

struct Bench {
  std::vector<std::string> ops;
  Work work;
  int64_t chunk = 0;
  int runs = 15;
  std::string dtype = "f32", direction = "forward", plot, schedule;
  double give_up = 60;
  bool compile = false, peers = false, compiled = false;

  void run() {
    auto at_least_one = [](const char* name, int64_t value) {
      if (value < 1) throw UserError(fmt::format("--{}: expected at least 1, got {}", name, value));
    };
    at_least_one("runs", runs);
    at_least_one("tokens", work.shape.tokens);
    at_least_one("batch", work.shape.batch);
    at_least_one("heads", work.shape.heads);
    at_least_one("threads", work.threads);
    work.dtype = one_of<DType>("dtype", dtype,
                               {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}});
    work.pass = one_of<Pass>("direction", direction,
                             {{"forward", Pass::forward},
                              {"backward", Pass::backward},
                              {"train", Pass::train},
                              {"decode", Pass::decode}});
    if (compile) return print_compile_times(ops, chunk, runs);
    TableOptions options{
        .runs = runs, .peers = peers, .compiled = compiled, .give_up_s = give_up, .plot = plot};
    print_table(ops.empty() ? goals(work.threads, work.target_cpu) : works(), options);
  }

  std::vector<Work> works() const {
    std::vector<Work> list;
    for (const std::string& name : ops) {
      linnet::ops::find(name);  // its error is better than the compiler's
      Work one = work;
      one.op = name;
      if (!schedule.empty()) one.schedule = Schedule::parse(schedule, "--schedule");
      if (chunk) {
        if (!one.schedule) one.schedule = Schedule{};
        one.schedule->chunk = chunk;
      }
      if (one.pass == Pass::decode) one.shape.tokens = std::min<int64_t>(one.shape.tokens, 8);
      one.shape.value_heads = one.shape.heads;
      list.push_back(one);
    }
    return list;
  }
};

}  // namespace

void add_bench(CLI::App& app) {
  auto bench = std::make_shared<Bench>();
  bench->work.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  CLI::App* command = app.add_subcommand(
      "bench",
      "time ops on this CPU, beside what users run today\n"
      "  linnet bench                             the list of docs/performance.md, with its goals\n"
      "  linnet bench --peers --plot bench.svg    the same beside FLA's and transformers' torch "
      "code\n"
      "  linnet bench kda gla --tokens 1024 --heads 4 --direction train\n"
      "  linnet bench kda --direction decode --batch 32 --heads 32\n"
      "  linnet bench --compile kda               the derivation itself, and CUDA from nothing to "
      "machine code\n"
      "Times are the best of the runs; ratios are those of one turn, of several the median. mm is\n"
      "one torch f32 product of 2048 x 2048 matrices, bw an array scaled in place, both timed in\n"
      "turns with each line, with the same threads. GFLOP/s counts the products of the graph, "
      "dense,\n"
      "as docs/math.md g does, and is held against mm's; GB/s counts arguments once.");
  Work& work = bench->work;
  command->add_option("ops", bench->ops, "recurrences; without any, the list with goals");
  command->add_flag("--compile", bench->compile,
                    "time compiling: law to staged graph, and to CUDA machine code with NVRTC");
  command
      ->add_option("--direction", bench->direction,
                   "forward, backward, train (forward and backward) or decode (up to 8 tokens)")
      ->capture_default_str();
  command->add_option("--batch", work.shape.batch, "sequences")->capture_default_str();
  command->add_option("--tokens", work.shape.tokens, "length of a sequence")->capture_default_str();
  command->add_option("--heads", work.shape.heads, "heads")->capture_default_str();
  command->add_option("--key-dim", work.key_dim, "key channels of a head")->capture_default_str();
  command->add_option("--value-dim", work.value_dim, "value channels of a head")
      ->capture_default_str();
  command->add_option("--dtype", bench->dtype, "f32, bf16 or f16")->capture_default_str();
  command->add_option("--threads", work.threads, "threads")->capture_default_str();
  command->add_option("--chunk", bench->chunk, "tokens of a chunk (16; 64 with --compile)");
  command->add_option(
      "--schedule", bench->schedule,
      "how, e.g. \"chunk=32 register_rows=6\", instead of the tuned or default one");
  command->add_option("--target-cpu", work.target_cpu,
                      "code for another processor that this one can run, e.g. x86-64-v3 or znver3, "
                      "instead of its own");
  command
      ->add_option("--runs", bench->runs, "runs to take the best of (decode: those of two seconds)")
      ->capture_default_str();
  command->add_flag("--peers", bench->peers,
                    "also time FLA's naive and transformers' torch functions (./setup.sh --peers)");
  command->add_flag("--compiled", bench->compiled,
                    "with --peers: torch.compile of them too; compiling takes minutes");
  command->add_option("--give-up", bench->give_up, "seconds after which a peer is given up")
      ->capture_default_str();
  command->add_option("--plot", bench->plot, "draw the times into this .svg file");
  command->callback([bench] { bench->run(); });
}

}  // namespace linnet::cli
