#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "compiler/cli/commands.h"
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
  int64_t chunk = 64;
  int runs = 15;
  bool compile = false;

  void run() {
    if (!compile)
      throw UserError("bench: expected --compile (there is no device to time kernels on yet)");
    if (runs < 1) throw UserError(fmt::format("--runs: expected at least 1, got {}", runs));
    if (ops.empty())
      for (const auto& entry : linnet::ops::registry()) ops.push_back(entry.name);
    fmt::print(
        "Law to staged graph, K = V = 128, chunk {}, a new context each time; median of {} runs, "
        "ms\n",
        chunk, runs);
    fmt::print("{:<21} {:>9} {:>9} {:>9}\n", "op", "forward", "backward", "both");
    for (const std::string& name : ops) {
      const auto& entry = linnet::ops::find(name);
      auto derive_once = [&](Direction direction, mlir::MLIRContext& context) {
        Problem problem;
        problem.op = name;
        PipelineOptions options;
        options.chunk_size = chunk;
        options.direction = direction;
        derive(context, entry.define, problem, options);
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
};

}  // namespace

void add_bench(CLI::App& app) {
  auto bench = std::make_shared<Bench>();
  CLI::App* command = app.add_subcommand("bench", "time Linnet itself");
  command->add_option("ops", bench->ops, "recurrences; all of them if none is named");
  command->add_flag("--compile", bench->compile, "time the derivation, law to staged graph");
  command->add_option("--chunk", bench->chunk, "tokens of a chunk")->capture_default_str();
  command->add_option("--runs", bench->runs, "runs to take the median of")->capture_default_str();
  command->callback([bench] { bench->run(); });
}

}  // namespace linnet::cli
