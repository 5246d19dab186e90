// The fragments of mma.sync: how the registers of 32 lanes make up tiles, and the ways there and
// back.
#pragma once

#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "exec/mma_arithmetic.h"
#include "exec/numbers.h"
#include "exec/warp.h"

namespace linnet::vgpu {

// In every shape lane 4*g + t holds, in register r of A, row g + 8*(r%2) and `Pack` elements from
// column Pack*t + 4*Pack*(r/2); of B, column g and rows Pack*t + 4*Pack*r; of C, row g + 8*(r/2)
// and column 2*t + r%2. A register of A over all lanes is therefore 8 rows of 4*Pack elements in
// order, and one of B the same transposed.
template <class Element, int Pack>
struct Fragments {
  static constexpr int kWidth = 4 * Pack;

  template <class Store>
  static void read_a(const Warp& warp, const uint32_t* slots, int rows, int registers,
                     Store store) {
    const int halves = rows / 8;
    for (int r = 0; r < registers; ++r) {
      const auto* values = warp.src<Element>(slots[r]);
      const int row = 8 * (r % halves), column = kWidth * (r / halves);
      for (int g = 0; g < 8; ++g)
        for (int i = 0; i < kWidth; ++i) store(row + g, column + i, values[g * kWidth + i]);
    }
  }
  template <class Store>
  static void read_b(const Warp& warp, const uint32_t* slots, int registers, Store store) {
    for (int r = 0; r < registers; ++r) {
      const auto* values = warp.src<Element>(slots[r]);
      for (int i = 0; i < kWidth; ++i)
        for (int g = 0; g < 8; ++g) store(kWidth * r + i, g, values[g * kWidth + i]);
    }
  }
};

typedef float Floats8 __attribute__((vector_size(32)));
typedef int32_t Ints8 __attribute__((vector_size(32)));
typedef int16_t Words8 __attribute__((vector_size(16)));
typedef int16_t Words16 __attribute__((vector_size(32)));

template <class Vector>
Vector load_vector(const void* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

// The exponents MmaTile wants, of 16-bit floats as they are.
template <class Format>
Words16 exponents_of(Words16 bits) {
  bits &= 0x7fff;
  Words16 field = bits >> Format::kFraction;
  field = field > 1 ? field : Words16{} + 1;
  field += static_cast<int16_t>(127 - 1 + Format::kSmallest);
  // Infinity and NaN have the exponent they have in f32.
  if constexpr (Format::kFraction == 10) field |= (bits >= 0x7c00) & 0xff;
  return field + ((bits == 0) & kZeroExponent);
}

// Eight 16-bit floats as f32. Compilers take such loops apart, hence the intrinsics.
template <class Format>
Floats8 floats_of(Words8 bits) {
#if defined(__AVX2__) && defined(__F16C__)
  if constexpr (Format::kFraction == 10) return (Floats8)_mm256_cvtph_ps((__m128i)bits);
  return (Floats8)((Ints8)_mm256_cvtepu16_epi32((__m128i)bits) << 16);
#else
  Floats8 floats;
  for (int i = 0; i < 8; ++i) floats[i] = Format::value(static_cast<uint16_t>(bits[i]));
  return floats;
#endif
}

template <class Format>
void store_floats(float* low, float* high, Words16 bits) {
  const auto first = floats_of<Format>(__builtin_shufflevector(bits, bits, 0, 1, 2, 3, 4, 5, 6, 7));
  const auto second =
      floats_of<Format>(__builtin_shufflevector(bits, bits, 8, 9, 10, 11, 12, 13, 14, 15));
  std::memcpy(low, &first, sizeof first);
  std::memcpy(high, &second, sizeof second);
}

// Words of eight rows become columns, in both halves of the vectors: three rounds of exchanging
// neighbours, pairs and quadruples.
inline void transpose(Words16 (&rows)[8]) {
  const auto low = [](Words16 a, Words16 b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
  };
  const auto high = [](Words16 a, Words16 b) {
    return __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15,
                                   31);
  };
  // Interleaving rows i and i + 4 moves every word one step of the way to its column's place.
  for (int round = 0; round < 3; ++round) {
    Words16 next[8];
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = low(rows[i], rows[i + 4]);
      next[2 * i + 1] = high(rows[i], rows[i + 4]);
    }
    for (int i = 0; i < 8; ++i) rows[i] = next[i];
  }
}

template <class A>
void read_factor_a(const Warp& warp, const uint32_t* slots, int registers, MmaTile& tile) {
  if constexpr (A::kPack == 2) {
    for (int r = 0; r < registers; r += 2) {
      const auto *upper = warp.src<int16_t>(slots[r]), *lower = warp.src<int16_t>(slots[r + 1]);
      for (int g = 0; g < 8; ++g) {
        const auto x = load_vector<Words8>(upper + 8 * g), y = load_vector<Words8>(lower + 8 * g);
        const Words16 pairs =
            __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
        const Words16 exponents = exponents_of<A>(pairs);
        std::memcpy(tile.exponent_a[g][4 * r], &exponents, sizeof exponents);
        store_floats<A>(tile.a[g][4 * r], tile.a[g][4 * r + 4], pairs);
      }
    }
  } else {
    Fragments<typename A::Element, A::kPack>::read_a(
        warp, slots, MmaTile::kRows, registers,
        [&](int row, int k, typename A::Element bits) { tile.a_at(row, k) = A::value(bits); });
    find_exponents_a(tile);
  }
}

template <class B>
void read_factor_b(const Warp& warp, const uint32_t* slots, int registers, MmaTile& tile) {
  if constexpr (B::kPack == 2) {
    // A shape with one register has it twice; the tile has room for the second.
    const auto* first = warp.src<int16_t>(slots[0]);
    const auto* second = warp.src<int16_t>(slots[registers - 1]);
    Words16 rows[8];
    for (int g = 0; g < 8; ++g)
      rows[MmaTile::place(g)] = __builtin_shufflevector(
          load_vector<Words8>(first + 8 * g), load_vector<Words8>(second + 8 * g), 0, 1, 2, 3, 4, 5,
          6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    transpose(rows);
    for (int k = 0; k < 8; ++k) {
      store_floats<B>(tile.b[k], tile.b[8 + k], rows[k]);
      const Words16 exponents = exponents_of<B>(rows[k]);
      for (int half = 0; half < 2; ++half) {
        const auto low = __builtin_shufflevector(exponents, exponents, 0, 1, 2, 3, 4, 5, 6, 7);
        const auto high =
            __builtin_shufflevector(exponents, exponents, 8, 9, 10, 11, 12, 13, 14, 15);
        const Words8 words = half ? high : low;
        const Words16 twice =
            __builtin_shufflevector(words, words, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        std::memcpy(tile.exponent_b[8 * half + k], &twice, sizeof twice);
      }
    }
  } else {
    Fragments<typename B::Element, B::kPack>::read_b(
        warp, slots, registers, [&](int k, int column, typename B::Element bits) {
          tile.b_at(k, column) = B::value(bits);
        });
    find_exponents_b(tile);
  }
}

// Lane 4*g + t has of rows g and g + 8 the columns 2*t and 2*t + 1: in four registers (f32), or in
// the halves of two (f16).
inline void read_addend(const uint32_t* const* registers, bool half, MmaTile& tile) {
  if (half) {
    for (int row = 0; row < MmaTile::kRows; ++row)
      for (int column = 0; column < MmaTile::kColumns; ++column) {
        const auto* values = reinterpret_cast<const uint16_t*>(registers[row / 8]);
        tile.c_at(row, column) = half_to_float(values[row % 8 * 8 + column]);
      }
    return;
  }
  for (int odd = 0; odd < 2; ++odd)
    for (int g = 0; g < 8; g += 2) {
      const auto upper = load_vector<Floats8>(registers[odd] + 4 * g);
      const auto lower = load_vector<Floats8>(registers[odd + 2] + 4 * g);
      const auto low = __builtin_shufflevector(upper, lower, 0, 8, 1, 9, 4, 12, 5, 13);
      const auto high = __builtin_shufflevector(upper, lower, 2, 10, 3, 11, 6, 14, 7, 15);
      const auto even_row = __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11);
      const auto odd_row = __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
      std::memcpy(tile.c[g][4 * odd], &even_row, sizeof even_row);
      std::memcpy(tile.c[g + 1][4 * odd], &odd_row, sizeof odd_row);
    }
}

inline void write_result(uint32_t* const* registers, bool half, MmaTile& tile) {
  if (half) {
    for (int row = 0; row < MmaTile::kRows; ++row)
      for (int column = 0; column < MmaTile::kColumns; ++column) {
        auto* values = reinterpret_cast<uint16_t*>(registers[row / 8]);
        values[row % 8 * 8 + column] = half_from_float(tile.c_at(row, column));
      }
    return;
  }
  for (int odd = 0; odd < 2; ++odd)
    for (int g = 0; g < 8; ++g) {
      auto row = load_vector<Floats8>(tile.c[g][4 * odd]);
      // NaN has one form, as canonical() of numbers.h gives it.
      const Ints8 is_nan = row != row;
      row = (Floats8)(((Ints8)row & ~is_nan) | (is_nan & static_cast<int32_t>(kNanF32)));
      const auto upper = __builtin_shufflevector(row, row, 0, 2, 4, 6);
      const auto lower = __builtin_shufflevector(row, row, 1, 3, 5, 7);
      std::memcpy(registers[odd] + 4 * g, &upper, sizeof upper);
      std::memcpy(registers[odd + 2] + 4 * g, &lower, sizeof lower);
    }
}

}  // namespace linnet::vgpu
