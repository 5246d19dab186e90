#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "compiler/cli/commands.h"
#include "compiler/cpu/trial.h"
#include "compiler/flops.h"
#include "linnet/error.h"
#include "ops/registry.h"

namespace linnet::cli {

namespace {

// Median milliseconds of a call.
template <class F>
double median_ms(int runs, F call) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    auto start = std::chrono::steady_clock::now();
    call();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return times[runs / 2];
}

struct Bench {
  std::vector<std::string> ops;
  int64_t chunk = 0, tokens = 4096, heads = 8, key_dim = 128, value_dim = 128;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  int runs = 15;
  std::string dtype = "f32", direction = "forward";
  bool compile = false;

  void run() {
    if (runs < 1) throw UserError(fmt::format("--runs: expected at least 1, got {}", runs));
    if (tokens < 1 || heads < 1 || threads < 1)
      throw UserError("--tokens, --heads, --threads: expected at least 1");
    if (dtype != "f32" && dtype != "bf16")
      throw UserError(fmt::format("--dtype: expected f32 or bf16; got '{}'", dtype));
    if (direction != "forward" && direction != "backward")
      throw UserError(
          fmt::format("--direction: expected forward or backward; got '{}'", direction));
    if (ops.empty())
      for (const auto& entry : linnet::ops::registry()) ops.push_back(entry.name);
    compile ? time_derivation() : time_cpu();
  }

  void time_derivation() {
    int64_t tokens_of_chunk = chunk ? chunk : 64;
    fmt::print(
        "Law to staged graph, K = V = 128, chunk {}, a new context each time; median of {} runs, "
        "ms\n",
        tokens_of_chunk, runs);
    fmt::print("{:<21} {:>9} {:>9} {:>9}\n", "op", "forward", "backward", "both");
    for (const std::string& name : ops) {
      const auto& entry = linnet::ops::find(name);
      auto derive_once = [&](Direction direction, mlir::MLIRContext& context) {
        derive(context, entry.define, {.op = name},
               {.chunk_size = tokens_of_chunk, .direction = direction});
      };
      double forward = median_ms(runs, [&] { derive_once(Direction::forward, *make_context()); });
      double backward = median_ms(runs, [&] { derive_once(Direction::backward, *make_context()); });
      double both = median_ms(runs, [&] {
        auto context = make_context();
        derive_once(Direction::forward, *context);
        derive_once(Direction::backward, *context);
      });
      fmt::print("{:<21} {:>9.2f} {:>9.2f} {:>9.2f}\n", name, forward, backward, both);
    }
  }

  // The kernel for one sequence on this machine's CPU, heads over the threads.
  void time_cpu() {
    auto target = cpu::Target::host();
    fmt::print(
        "{} on {} ({} floats a vector), {} threads: one sequence of {} tokens, {} heads, K {}, V "
        "{}, {}; median of {} runs\n",
        direction, target.cpu, target.lanes, threads, tokens, heads, key_dim, value_dim, dtype,
        runs);
    fmt::print("{:<21} {:>10} {:>9} {:>12} {:>9}\n", "op", "compile ms", "run ms", "tokens/s",
               "GFLOP/s");
    for (const std::string& name : ops) {
      auto context = make_context();
      Schedule schedule{.chunk = chunk ? chunk : 16};
      Problem problem{.op = name, .key_dim = key_dim, .value_dim = value_dim};
      if (dtype == "bf16") problem.precision = chunk::Precision::bf16;
      PipelineOptions options{
          .chunk_size = schedule.chunk,
          .direction = direction == "forward" ? Direction::forward : Direction::backward};
      std::optional<cpu::CompiledKernel> kernel;
      double flops = 0;
      double compiling = median_ms(1, [&] {
        auto module = derive(*context, linnet::ops::find(name).define, problem, options);
        flops =
            static_cast<double>(count_flops(graph_of(*module))) / schedule.chunk * tokens * heads;
        kernel.emplace(
            cpu::CompiledKernel::compile(TileProgram(graph_of(*module), schedule), target));
      });
      cpu::Trial trial(*kernel, tokens, heads, threads);
      trial.run();
      double ms = median_ms(runs, [&] { trial.run(); });
      fmt::print("{:<21} {:>10.0f} {:>9.2f} {:>12.0f} {:>9.1f}\n", name, compiling, ms,
                 tokens / ms * 1e3, flops / ms / 1e6);
      std::fflush(stdout);
    }
  }
};

}  // namespace

void add_bench(CLI::App& app) {
  auto bench = std::make_shared<Bench>();
  CLI::App* command = app.add_subcommand(
      "bench",
      "time compiled kernels on this CPU, or with --compile the derivation itself\n"
      "  linnet bench kda gated_delta_rule --tokens 4096 --heads 8 --threads 2\n"
      "GFLOP/s counts the products of the graph, dense, as MATH.md g does.");
  command->add_option("ops", bench->ops, "recurrences; all of them if none is named");
  command->add_flag("--compile", bench->compile, "time the derivation, law to staged graph");
  command->add_option("--tokens", bench->tokens, "length of the sequence")->capture_default_str();
  command->add_option("--heads", bench->heads, "heads")->capture_default_str();
  command->add_option("--key-dim", bench->key_dim, "key channels of a head")->capture_default_str();
  command->add_option("--value-dim", bench->value_dim, "value channels of a head")
      ->capture_default_str();
  command->add_option("--dtype", bench->dtype, "f32 or bf16")->capture_default_str();
  command->add_option("--direction", bench->direction, "forward or backward")
      ->capture_default_str();
  command->add_option("--threads", bench->threads, "threads, over heads")->capture_default_str();
  command->add_option("--chunk", bench->chunk, "tokens of a chunk (16; 64 with --compile)");
  command->add_option("--runs", bench->runs, "runs to take the median of")->capture_default_str();
  command->callback([bench] { bench->run(); });
}

}  // namespace linnet::cli
