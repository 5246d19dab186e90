#include "model/scaling.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace linnet::vgpu {
namespace {

bool is_of_a_block(size_t which) { return which == LINNET_COUNT_BLOCK_CLOCKS; }

// The line through two runs, at a third place.
double predict(const CountedCall& a, const CountedCall& b, const CallShape& at, size_t kernel,
               size_t which) {
  const auto per_head = [&](const CountedCall& call) {
    const double count = call.kernels[kernel].counts[which];
    return is_of_a_block(which)
               ? count
               : count / static_cast<double>(call.shape.sequences * call.shape.value_heads);
  };
  const auto tokens = [](const CallShape& shape) { return static_cast<double>(shape.tokens); };
  const double slope = (per_head(b) - per_head(a)) / (tokens(b.shape) - tokens(a.shape));
  const double value = per_head(a) + slope * (tokens(at) - tokens(a.shape));
  return is_of_a_block(which) ? value : value * static_cast<double>(at.sequences * at.value_heads);
}

double relative_error(double predicted, double counted) {
  const double difference = std::abs(predicted - counted);
  // Both are whole numbers: less than a half is rounding of the division above.
  return difference < 0.5 ? 0 : difference / std::max(1.0, counted);
}

}  // namespace

ScaledCall scale(const CountedCall& small, const CountedCall& larger, const CountedCall& check,
                 const CallShape& shape, int64_t chunk) {
  const size_t count = small.kernels.size();
  if (larger.kernels.size() != count || check.kernels.size() != count)
    throw std::invalid_argument("the calls launch different numbers of kernels");
  ScaledCall scaled{shape, small.kernels, std::vector<double>(count, 0), false};
  for (size_t k = 0; k < count; ++k) {
    if (larger.kernels[k].kernel != small.kernels[k].kernel ||
        check.kernels[k].kernel != small.kernels[k].kernel)
      throw std::invalid_argument("the calls launch different kernels");
    for (size_t which = 0; which < LINNET_COUNTS; ++which) {
      const double error = relative_error(predict(small, larger, check.shape, k, which),
                                          check.kernels[k].counts[which]);
      // The clocks are modelled, so they do not say whether the counts are exact.
      if (!is_of_a_block(which)) scaled.errors[k] = std::max(scaled.errors[k], error);
      scaled.kernels[k].counts[which] =
          std::max(0.0, std::round(predict(small, larger, shape, k, which)));
    }
  }
  scaled.exact =
      shape.tokens % chunk == 0 && std::all_of(scaled.errors.begin(), scaled.errors.end(),
                                               [](double error) { return error == 0; });
  return scaled;
}

CountedCall Counting::count(const CallShape& shape) const {
  launches();  // forgets those of before
  run(shape);
  return {shape, launches()};
}

std::function<std::vector<KernelCounts>()> launch_reader(int (*launches)(linnet_virtual_launch*,
                                                                         int),
                                                         void (*reset)()) {
  return [=] {
    std::vector<linnet_virtual_launch> records(256);
    records.resize(static_cast<size_t>(launches(records.data(), static_cast<int>(records.size()))));
    reset();
    return std::vector<KernelCounts>(records.begin(), records.end());
  };
}

ScaledCall count_scaled(const Counting& counting, const CallShape& shape, int64_t chunk,
                        int64_t heads) {
  const auto small = [&](int64_t chunks) {
    return counting.count({1, chunks * chunk, std::min(heads, shape.value_heads)});
  };
  return scale(small(kSmallChunks[0]), small(kSmallChunks[1]), small(kSmallChunks[2]), shape,
               chunk);
}

}  // namespace linnet::vgpu
