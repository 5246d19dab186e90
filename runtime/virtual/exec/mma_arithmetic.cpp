#include "exec/mma_arithmetic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace linnet::vgpu {
namespace {

constexpr int kBias = 127;
// Below this the alignment stops moving; what is lost is smaller than 2^-125.
constexpr int kLowestAlignment = -100;
// Above this a product may overflow f32, so the double path takes over.
constexpr int kHighestAlignment = 120;
// Sixteen products below 2^27 and an addend below 2^26 may pass 2^31 by 2^26: what wrapped around
// is at least this, too.
constexpr uint32_t kLargestSum = (1u << 31) - (1u << 26);

// Zero has no exponent: it must never set the alignment.
int exponent_of(float value, int smallest) {
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7fff'ffffu;
  if (bits == 0) return kZeroExponent;
  return std::max(static_cast<int>(bits >> 23) - kBias, smallest);
}

int16_t exponent_word(float value, int smallest) {
  return static_cast<int16_t>(exponent_of(value, smallest) + kBias);
}

float truncate_to_float(double value) {
  const float near = static_cast<float>(value);
  // Beyond the range of f32 the result is infinite, not the largest number.
  if (std::fabs(static_cast<double>(near)) <= std::fabs(value) || std::fabs(value) >= 0x1p128)
    return near;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(near) - 1);
}

float reference_block(MmaTile& tile, int row, int column, int first, int count,
                      const MmaRounding& rounding) {
  const float c = tile.c_at(row, column);
  int largest = exponent_of(c, -126);
  double plain = c;
  for (int k = first; k < first + count; ++k) {
    const float a = tile.a_at(row, k), b = tile.b_at(k, column);
    plain += static_cast<double>(a) * b;
    if (a == 0 || b == 0) continue;
    largest = std::max(
        largest, exponent_of(a, tile.smallest_exponent) + exponent_of(b, tile.smallest_exponent));
  }
  if (!std::isfinite(plain)) return static_cast<float>(plain);
  const int shift = rounding.fraction_bits - std::max(largest, kLowestAlignment);
  double sum = std::trunc(std::ldexp(static_cast<double>(c), shift));
  for (int k = first; k < first + count; ++k) {
    const double product = static_cast<double>(tile.a_at(row, k)) * tile.b_at(k, column);
    sum += std::trunc(std::ldexp(product, shift));
  }
  return sum == 0 ? 0 : truncate_to_float(std::ldexp(sum, -shift));
}

#define LINNET_MMA_BYTES 32
namespace narrow {
#include "exec/mma_fast.inc"
}
#undef LINNET_MMA_BYTES

#if defined(__x86_64__)
#define LINNET_MMA_BYTES 64
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
namespace wide {
#include "exec/mma_fast.inc"
}
#pragma GCC pop_options
#undef LINNET_MMA_BYTES
bool has_wide() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
constexpr MmaWay kWays[] = {{512, wide::multiply}, {256, narrow::multiply}};
#else
bool has_wide() { return false; }
constexpr MmaWay kWays[] = {{512, nullptr}, {256, narrow::multiply}};
#endif

}  // namespace

void find_exponents_a(MmaTile& tile) {
  for (int pair = 0; pair < 8; ++pair)
    for (int k = 0; k < tile.depth; ++k)
      for (int row = 0; row < 2; ++row)
        tile.exponent_a[pair][k][row] = exponent_word(tile.a[pair][k][row], tile.smallest_exponent);
}

void find_exponents_b(MmaTile& tile) {
  for (int k = 0; k < tile.depth; ++k)
    for (int i = 0; i < 8; ++i)
      tile.exponent_b[k][i][0] = tile.exponent_b[k][i][1] =
          exponent_word(tile.b[k][i], tile.smallest_exponent);
}

const MmaWay* mma_ways(int& count) {
  static const bool wide = has_wide();
  count = wide ? 2 : 1;
  return wide ? kWays : kWays + 1;
}

void mma_hardware_reference(MmaTile& tile, const MmaRounding& rounding) {
  for (int first = 0; first < tile.depth; first += rounding.block) {
    const int count = std::min(rounding.block, tile.depth - first);
    for (int row = 0; row < MmaTile::kRows; ++row)
      for (int column = 0; column < MmaTile::kColumns; ++column)
        tile.c_at(row, column) = reference_block(tile, row, column, first, count, rounding);
  }
}

namespace {
auto& fast_way() {
  static int count = 0;
  static auto multiply = mma_ways(count)->multiply;
  return multiply;
}
}  // namespace

void choose_mma_way(const MmaWay& way) { fast_way() = way.multiply; }

void mma_hardware(MmaTile& tile, const MmaRounding& rounding) {
  if (!fast_way()(tile, rounding)) mma_hardware_reference(tile, rounding);
}

void mma_exact(MmaTile& tile) {
  typedef float Float8 __attribute__((vector_size(32)));
  typedef double Double8 __attribute__((vector_size(64)));
  for (int pair = 0; pair < 8; ++pair)
    for (int row = 0; row < 2; ++row) {
      Double8 sum;
      for (int i = 0; i < 8; ++i) sum[i] = tile.c[pair][i][row];
      for (int k = 0; k < tile.depth; ++k) {
        Float8 b;
        std::memcpy(&b, tile.b[k], sizeof b);
        sum += __builtin_convertvector(b, Double8) * static_cast<double>(tile.a[pair][k][row]);
      }
      const Float8 rounded = __builtin_convertvector(sum, Float8);
      for (int i = 0; i < 8; ++i) tile.c[pair][i][row] = rounded[i];
    }
}

}  // namespace linnet::vgpu
