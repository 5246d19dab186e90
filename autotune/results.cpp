#include "autotune/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace linnet::autotune {

void add_times(Sample& sample, std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  double median = ms[ms.size() / 2];
  sample.ms.push_back(median);
  // Of the median: half the runs lie within the quartiles, and it moves by less than they do.
  double spread = (ms[ms.size() * 3 / 4] - ms[ms.size() / 4]) / median;
  sample.noise = std::max(sample.noise, spread / std::sqrt(static_cast<double>(ms.size())));
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
