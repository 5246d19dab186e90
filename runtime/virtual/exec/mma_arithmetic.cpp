#include "exec/mma_arithmetic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace linnet::vgpu {
namespace {

// Eight columns at a time; the compiler maps these to vector registers where the host has them.
typedef float Float8 __attribute__((vector_size(32)));
typedef int32_t Int8 __attribute__((vector_size(32)));
typedef double Double8 __attribute__((vector_size(64)));

// Zero has no exponent: it must never set the alignment.
constexpr int kZeroExponent = -4096;
// Below this the alignment stops moving; what is lost is smaller than 2^-125.
constexpr int kLowestAlignment = -100;
// Above this a product may overflow f32, so the double path takes over.
constexpr int kHighestAlignment = 120;

int exponent_of(float value, int smallest) {
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7fff'ffffu;
  if (bits == 0) return kZeroExponent;
  return std::max(static_cast<int>(bits >> 23) - 127, smallest);
}

float truncate_to_float(double value) {
  const float near = static_cast<float>(value);
  // Beyond the range of f32 the result is infinite, not the largest number.
  if (std::fabs(static_cast<double>(near)) <= std::fabs(value) || std::fabs(value) >= 0x1p128)
    return near;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(near) - 1);
}

float reference_block(const MmaTile& tile, int row, int column, int first, int count,
                      const MmaRounding& rounding) {
  const float c = tile.c[row][column];
  int largest = exponent_of(c, -126);
  double plain = c;
  for (int k = first; k < first + count; ++k) {
    const float a = tile.a[row][k], b = tile.b[k][column];
    plain += static_cast<double>(a) * b;
    if (a == 0 || b == 0) continue;
    largest = std::max(
        largest, exponent_of(a, tile.smallest_exponent) + exponent_of(b, tile.smallest_exponent));
  }
  if (!std::isfinite(plain)) return static_cast<float>(plain);
  if (largest == kZeroExponent) return static_cast<float>(plain);
  const int shift = rounding.fraction_bits - std::max(largest, kLowestAlignment);
  double sum = std::trunc(std::ldexp(static_cast<double>(c), shift));
  for (int k = first; k < first + count; ++k)
    sum += std::trunc(std::ldexp(static_cast<double>(tile.a[row][k]) * tile.b[k][column], shift));
  return truncate_to_float(std::ldexp(sum, -shift));
}

// Exponents of the factors, two 16-bit numbers a word, so that one vector holds two rows: a word of
// `a` has those of rows r (low) and r + 1 (high), a word of `b` the same exponent twice.
struct Exponents {
  alignas(64) uint32_t a[8][32];  // [pair of rows][k]
  alignas(64) uint32_t b[32][8];  // [k][column]
};

typedef int16_t Short16 __attribute__((vector_size(32)));

Int8 factor_exponents(const float* values, int smallest) {
  Int8 bits;
  std::memcpy(&bits, values, sizeof bits);
  bits &= 0x7fffffff;
  const Int8 field = (bits >> 23) - 127;
  const Int8 exponent = field > smallest ? field : Int8{} + smallest;
  return bits == 0 ? Int8{} + kZeroExponent : exponent;
}

int32_t largest_of(Int8 values) {
  int32_t all[8];
  std::memcpy(all, &values, sizeof all);
  return *std::max_element(all, all + 8);
}

// False when a factor is not finite or a product might leave the range of f32.
template <int Depth>
bool find_exponents(const MmaTile& tile, Exponents& exponents) {
  const int smallest = tile.smallest_exponent;
  Int8 top_a = Int8{} + kZeroExponent, top_b = top_a;
  for (int pair = 0; pair < 8; ++pair)
    for (int k = 0; k < Depth; k += 8) {
      const Int8 even = factor_exponents(tile.a[2 * pair] + k, smallest);
      const Int8 odd = factor_exponents(tile.a[2 * pair + 1] + k, smallest);
      const Int8 both = (odd << 16) | (even & 0xffff);
      std::memcpy(exponents.a[pair] + k, &both, sizeof both);
      Int8 larger = even > odd ? even : odd;
      for (int i = Depth - k; i < 8; ++i) larger[i] = kZeroExponent;  // nobody filled these
      top_a = larger > top_a ? larger : top_a;
    }
  for (int k = 0; k < Depth; ++k) {
    const Int8 exponent = factor_exponents(tile.b[k], smallest);
    const Int8 twice = (exponent << 16) | (exponent & 0xffff);
    std::memcpy(exponents.b[k], &twice, sizeof twice);
    top_b = exponent > top_b ? exponent : top_b;
  }
  const int32_t a = largest_of(top_a), b = largest_of(top_b);
  return a + b <= kHighestAlignment && a < 128 && b < 128;
}

Float8 power_of_two(Int8 exponent) { return (Float8)((exponent + 127) << 23); }

// An integer rounded towards zero: the nearest float, stepped back when it lies beyond the integer.
Float8 truncated(Int8 value) {
  const Float8 near = __builtin_convertvector(value, Float8);
  const Int8 back = __builtin_convertvector(near, Int8);
  const Int8 magnitude = value < 0 ? -value : value;
  const Int8 back_magnitude = back < 0 ? -back : back;
  // 2^31 comes back as the smallest integer, whose negation is itself: it lies beyond, too.
  const Int8 beyond = (back_magnitude > magnitude) | (back_magnitude < 0);
  return (Float8)((Int8)near + beyond);
}

// What makes a tile leave the fast path after all; gathered without branching.
struct Doubts {
  Int8 largest = Int8{} + kZeroExponent;
  Int8 overflow = Int8{};

  bool any() const {
    int32_t tops[8], signs[8];
    std::memcpy(tops, &largest, sizeof tops);
    std::memcpy(signs, &overflow, sizeof signs);
    bool found = false;
    for (int i = 0; i < 8; ++i) found |= tops[i] > kHighestAlignment || signs[i] < 0;
    return found;
  }
};

// One row of the result for one block of products; `largest` is the products' largest exponent.
template <int Count>
inline Float8 fast_block(const MmaTile& tile, int row, int first, int fraction_bits, Int8 largest,
                         Float8 c, Doubts& doubts) {
  const Int8 exponent_c = (((Int8)c & 0x7fffffff) >> 23) - 127;
  largest = exponent_c > largest ? exponent_c : largest;
  largest = largest > kLowestAlignment ? largest : Int8{} + kLowestAlignment;
  doubts.largest = largest > doubts.largest ? largest : doubts.largest;
  // Between 2^-107 and 2^125, so always representable where the result is used.
  const Float8 scale = power_of_two(fraction_bits - largest);
  Int8 low = __builtin_convertvector(c * scale, Int8);
  Int8 high = Int8{};
  for (int k = first; k < first + Count; k += 2) {
    Float8 b0, b1;
    std::memcpy(&b0, tile.b[k], sizeof b0);
    std::memcpy(&b1, tile.b[k + 1], sizeof b1);
    low += __builtin_convertvector(b0 * tile.a[row][k] * scale, Int8);
    high += __builtin_convertvector(b1 * tile.a[row][k + 1] * scale, Int8);
  }
  const Int8 sum = low + high;
  doubts.overflow |= (low ^ sum) & (high ^ sum);
  return truncated(sum) * power_of_two(largest - fraction_bits);
}

template <int Count>
inline Short16 largest_products(const Exponents& exponents, int pair, int first) {
  Short16 largest = Short16{} + static_cast<int16_t>(2 * kZeroExponent);
  for (int k = first; k < first + Count; ++k) {
    const auto both = static_cast<int32_t>(exponents.a[pair][k]);
    Short16 eb;
    std::memcpy(&eb, exponents.b[k], sizeof eb);
    const Short16 sum = (Short16)(Int8{} + both) + eb;
    largest = sum > largest ? sum : largest;
  }
  return largest;
}

template <int Depth, int Block>
void multiply_fast(MmaTile& tile, const MmaRounding& rounding) {
  Exponents exponents;
  if (!find_exponents<Depth>(tile, exponents)) return mma_hardware_reference(tile, rounding);
  alignas(64) float results[16][8];
  Doubts doubts;
  for (int pair = 0; pair < 8; ++pair) {
    Float8 even, odd;
    std::memcpy(&even, tile.c[2 * pair], sizeof even);
    std::memcpy(&odd, tile.c[2 * pair + 1], sizeof odd);
    for (int first = 0; first < Depth; first += Block) {
      const Int8 both = (Int8)largest_products<Block>(exponents, pair, first);
      even = fast_block<Block>(tile, 2 * pair, first, rounding.fraction_bits, (both << 16) >> 16,
                               even, doubts);
      odd = fast_block<Block>(tile, 2 * pair + 1, first, rounding.fraction_bits, both >> 16, odd,
                              doubts);
    }
    std::memcpy(results[2 * pair], &even, sizeof even);
    std::memcpy(results[2 * pair + 1], &odd, sizeof odd);
  }
  if (doubts.any()) return mma_hardware_reference(tile, rounding);
  std::memcpy(tile.c, results, sizeof results);
}

}  // namespace

void mma_hardware_reference(MmaTile& tile, const MmaRounding& rounding) {
  for (int first = 0; first < tile.depth; first += rounding.block) {
    const int count = std::min(rounding.block, tile.depth - first);
    for (int row = 0; row < tile.rows; ++row)
      for (int column = 0; column < 8; ++column)
        tile.c[row][column] = reference_block(tile, row, column, first, count, rounding);
  }
}

void mma_hardware(MmaTile& tile, const MmaRounding& rounding) {
  const int block = std::min(rounding.block, tile.depth);
  if (tile.depth == 16 && block == 16) return multiply_fast<16, 16>(tile, rounding);
  if (tile.depth == 16 && block == 8) return multiply_fast<16, 8>(tile, rounding);
  if (tile.depth == 8 && block == 8) return multiply_fast<8, 8>(tile, rounding);
  if (tile.depth == 8 && block == 4) return multiply_fast<8, 4>(tile, rounding);
  if (tile.depth == 4 && block == 4) return multiply_fast<4, 4>(tile, rounding);
  mma_hardware_reference(tile, rounding);
}

void mma_exact(MmaTile& tile) {
  for (int row = 0; row < tile.rows; ++row) {
    Float8 c;
    std::memcpy(&c, tile.c[row], sizeof c);
    Double8 sum = __builtin_convertvector(c, Double8);
    for (int k = 0; k < tile.depth; ++k) {
      Float8 b;
      std::memcpy(&b, tile.b[k], sizeof b);
      sum += __builtin_convertvector(b, Double8) * static_cast<double>(tile.a[row][k]);
    }
    c = __builtin_convertvector(sum, Float8);
    std::memcpy(tile.c[row], &c, sizeof c);
  }
}

}  // namespace linnet::vgpu
