#include "autotune/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace linnet::autotune {

namespace {

double quantile(std::vector<double> values, size_t of_four) {
  std::sort(values.begin(), values.end());
  return values[values.size() * of_four / 4];
}

}  // namespace

void add_times(std::vector<Sample>& samples, const std::vector<std::vector<double>>& ms) {
  for (size_t i = 0; i < samples.size(); ++i) {
    if (ms[i].empty() || ms[0].empty()) continue;
    // The quieter half of the turns, by the slower of the two that are held against each other:
    // other work on the machine only ever adds time.
    double own = quantile(ms[i], 1), first = quantile(ms[0], 1);
    std::vector<std::pair<double, size_t>> turns;
    for (size_t run = 0; run < ms[i].size(); ++run)
      turns.emplace_back(std::max(ms[i][run] / own, ms[0][run] / first), run);
    std::sort(turns.begin(), turns.end());
    turns.resize((turns.size() + 1) / 2);
    std::vector<double> times, ratios;
    for (auto [loudness, run] : turns) {
      times.push_back(ms[i][run]);
      ratios.push_back(ms[i][run] / ms[0][run]);
    }
    double ratio = quantile(ratios, 2);
    samples[i].ms.push_back(quantile(times, 2));
    samples[i].ratio.push_back(ratio);
    // Half the runs lie within the quartiles, and the median of many moves by less than they do.
    double spread = (quantile(ratios, 3) - quantile(ratios, 1)) / ratio;
    double noise = spread / std::sqrt(static_cast<double>(ratios.size()));
    // What counts is the mean over the workloads.
    auto count = static_cast<double>(samples[i].ms.size());
    samples[i].noise = std::hypot(samples[i].noise * (count - 1), noise) / count;
  }
}

void check_results(std::vector<float>& expected, const std::vector<float>& results,
                   const Problem& problem) {
  if (expected.empty()) {
    expected = results;
    return;
  }
  double error = 0, size = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    double difference = results[i] - expected[i];
    error += difference * difference;
    size += static_cast<double>(expected[i]) * expected[i];
  }
  double relative = std::sqrt(error / std::max(size, 1e-30));
  double most = problem.dtype == DType::f32 && !problem.tf32 ? 1e-4 : 2e-2;
  if (!(relative <= most))
    throw Error(fmt::format("its results are {:.2g} away from the default's, more than {:.2g}",
                            relative, most));
}

std::string Subject::describe() const {
  std::string text;
  for (const Shape& s : shapes)
    text +=
        fmt::format("{}B={} T={} H={}", text.empty() ? "" : "; ", s.batch, s.tokens, s.value_heads);
  return text;
}

}  // namespace linnet::autotune
