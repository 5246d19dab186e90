#include "model/scaling.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace linnet::vgpu {
namespace {

bool is_of_a_block(size_t which) { return which == LINNET_COUNT_BLOCK_CLOCKS; }

// The line through two points, at a third.
double on_line(double x0, double y0, double x1, double y1, double x) {
  return y0 + (y1 - y0) / (x1 - x0) * (x - x0);
}

bool is_cut(const CallShape& shape) { return shape.segment > 0 && shape.tokens > shape.segment; }

// What the first calls, two or four of them, say of another.
double predict(const std::vector<CountedCall>& calls, const CallShape& at, size_t kernel,
               size_t which) {
  const auto per_head = [&](size_t call) {
    const double count = calls[call].kernels[kernel].counts[which];
    const CallShape& shape = calls[call].shape;
    return is_of_a_block(which) ? count
                                : count / static_cast<double>(shape.sequences * shape.value_heads);
  };
  const auto tokens = [](const CallShape& shape) { return static_cast<double>(shape.tokens); };
  const auto segment = [](const CallShape& shape) { return static_cast<double>(shape.segment); };
  const auto segments = [&](const CallShape& shape) { return tokens(shape) / segment(shape); };
  double value = 0;
  if (is_cut(at)) {
    const auto of_length = [&](size_t first) {
      return on_line(segments(calls[first].shape), per_head(first),
                     segments(calls[first + 1].shape), per_head(first + 1), segments(at));
    };
    value = on_line(segment(calls[0].shape), of_length(0), segment(calls[2].shape), of_length(2),
                    segment(at));
  } else {
    value = on_line(tokens(calls[0].shape), per_head(0), tokens(calls[1].shape), per_head(1),
                    tokens(at));
  }
  return is_of_a_block(which) ? value : value * static_cast<double>(at.sequences * at.value_heads);
}

double relative_error(double predicted, double counted) {
  const double difference = std::abs(predicted - counted);
  // Both are whole numbers: less than a half is rounding of the division above.
  return difference < 0.5 ? 0 : difference / std::max(1.0, counted);
}

}  // namespace

ScaledCall scale(const std::vector<CountedCall>& calls, const CallShape& shape, int64_t chunk) {
  const std::vector<KernelCounts>& first = calls.front().kernels;
  const CountedCall& check = calls.back();
  const size_t count = first.size();
  for (const CountedCall& call : calls)
    if (call.kernels.size() != count)
      throw std::invalid_argument("the calls launch different numbers of kernels");
  ScaledCall scaled{shape, first, std::vector<double>(count, 0), false};
  for (size_t k = 0; k < count; ++k) {
    for (const CountedCall& call : calls)
      if (call.kernels[k].kernel != first[k].kernel)
        throw std::invalid_argument("the calls launch different kernels");
    for (size_t which = 0; which < LINNET_COUNTS; ++which) {
      const double error =
          relative_error(predict(calls, check.shape, k, which), check.kernels[k].counts[which]);
      // The clocks are modelled, so they do not say whether the counts are exact.
      if (!is_of_a_block(which)) scaled.errors[k] = std::max(scaled.errors[k], error);
      scaled.kernels[k].counts[which] = std::max(0.0, std::round(predict(calls, shape, k, which)));
    }
  }
  const int64_t whole = is_cut(shape) ? shape.segment : chunk;
  scaled.exact =
      shape.tokens % whole == 0 && std::all_of(scaled.errors.begin(), scaled.errors.end(),
                                               [](double error) { return error == 0; });
  return scaled;
}

std::vector<CallShape> small_calls(const CallShape& shape, int64_t chunk, int64_t heads) {
  std::vector<CallShape> calls;
  heads = std::min(heads, shape.value_heads);
  if (is_cut(shape)) {
    for (auto [segments, chunks] : kSmallSegments)
      calls.push_back({1, segments * chunks * chunk, heads, chunks * chunk});
  } else {
    const int64_t longest = kSmallChunks.back() * chunk;
    const int64_t segment = shape.segment > 0 ? std::max(shape.segment, longest) : 0;
    for (int64_t chunks : kSmallChunks) calls.push_back({1, chunks * chunk, heads, segment});
  }
  return calls;
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
  std::vector<CountedCall> calls;
  for (const CallShape& small : small_calls(shape, chunk, heads))
    calls.push_back(counting.count(small));
  return scale(calls, shape, chunk);
}

}  // namespace linnet::vgpu
