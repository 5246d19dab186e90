#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "compiler/cli/commands.h"
#include "compiler/cli/workload.h"
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
  int64_t chunk = 0, batch = 1, tokens = 4096, heads = 8, key_dim = 128, value_dim = 128;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  int runs = 15;
  std::string dtype = "f32", direction = "forward";
  bool compile = false;

  void run() {
    if (runs < 1) throw UserError(fmt::format("--runs: expected at least 1, got {}", runs));
    if (tokens < 1 || heads < 1 || threads < 1)
      throw UserError("--tokens, --heads, --threads: expected at least 1");
    if (dtype != "f32" && dtype != "bf16" && dtype != "f16")
      throw UserError(fmt::format("--dtype: expected f32, bf16 or f16; got '{}'", dtype));
    if (direction != "forward" && direction != "backward" && direction != "decode")
      throw UserError(
          fmt::format("--direction: expected forward, backward or decode; got '{}'", direction));
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

  // Calls of built ops on this machine's CPU.
  void time_cpu() {
    Device device = Device::open("cpu", {.threads = static_cast<int>(threads)});
    Direction way = direction == "forward"    ? Direction::forward
                    : direction == "backward" ? Direction::backward
                                              : Direction::decode;
    fmt::print(
        "{} on the CPU, {} threads: {} x {} tokens, {} heads, K {}, V {}, {}; median of {} runs\n",
        direction, threads, batch, tokens, heads, key_dim, value_dim, dtype, runs);
    fmt::print("{:<21} {:>10} {:>9} {:>12} {:>9}\n", "op", "build ms", "run ms", "tokens/s",
               "GFLOP/s");
    for (const std::string& name : ops) {
      Problem problem{.op = name, .key_dim = key_dim, .value_dim = value_dim};
      if (dtype == "bf16") problem.dtype = DType::bf16;
      if (dtype == "f16") problem.dtype = DType::f16;
      std::optional<Op> op;
      double building =
          median_ms(1, [&] { op = device.build(problem, {.direction = way, .chunk = chunk}); });
      Workload work(device, *op, {batch, tokens, heads, heads});
      work.run();
      double ms = median_ms(runs, [&] { work.run(); });
      double flops = flops_of(problem, way) * tokens * heads * batch;
      fmt::print("{:<21} {:>10.1f} {:>9.3f} {:>12.0f} {:>9.1f}\n", name, building, ms,
                 batch * tokens / ms * 1e3, flops / ms / 1e6);
      std::fflush(stdout);
    }
  }

  // Products per token and head.
  double flops_of(const Problem& problem, Direction way) const {
    auto context = make_context();
    int64_t size = way == Direction::decode ? 1 : chunk ? chunk : 16;
    auto module = derive(
        *context, linnet::ops::find(problem.op).define, problem,
        {.chunk_size = size, .direction = way == Direction::backward ? way : Direction::forward});
    return static_cast<double>(count_flops(graph_of(*module))) / size;
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
  command->add_option("--batch", bench->batch, "sequences")->capture_default_str();
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
