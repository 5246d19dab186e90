// The fragments of mma.sync: how the registers of 32 lanes make up tiles, and the ways there and
// back.
#pragma once

#include <cstring>

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

typedef float FloatRow __attribute__((vector_size(32)));
typedef float FloatHalf __attribute__((vector_size(16)));

// Rows become columns: three rounds of exchanging halves, quarters and neighbours.
inline void transpose(FloatRow (&rows)[8]) {
  FloatRow pairs[8], quads[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      quads[i + j] =
          __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      quads[i + j + 2] =
          __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; ++i) {
    rows[i] = __builtin_shufflevector(quads[i], quads[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(quads[i], quads[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

template <class B>
void read_factor_b(const Warp& warp, const uint32_t* slots, int registers, MmaTile& tile) {
  constexpr int kWidth = 4 * B::kPack;
  if constexpr (kWidth == 8) {
    for (int r = 0; r < registers; ++r) {
      const auto* values = warp.src<typename B::Element>(slots[r]);
      FloatRow rows[8];
      for (int g = 0; g < 8; ++g)
        for (int i = 0; i < 8; ++i) rows[g][i] = B::value(values[g * 8 + i]);
      transpose(rows);
      for (int i = 0; i < 8; ++i) std::memcpy(tile.b[8 * r + i], &rows[i], sizeof rows[i]);
    }
  } else {
    Fragments<typename B::Element, B::kPack>::read_b(
        warp, slots, registers,
        [&](int k, int column, typename B::Element bits) { tile.b[k][column] = B::value(bits); });
  }
}

// Columns 2*t and 2*t + 1 of a row stand in two registers (f32) or in the halves of one (f16).
inline void read_addend(const Warp& warp, const uint32_t* slots, bool half, MmaTile& tile) {
  for (int part = 0; part < tile.rows / 8; ++part) {
    float(*rows)[8] = tile.c + 8 * part;
    if (half) {
      const uint16_t* values = warp.src<uint16_t>(slots[part]);
      for (int i = 0; i < 64; ++i) rows[i / 8][i % 8] = half_to_float(values[i]);
      continue;
    }
    const float* even = warp.src<float>(slots[2 * part]);
    const float* odd = warp.src<float>(slots[2 * part + 1]);
    for (int g = 0; g < 8; ++g) {
      FloatHalf a, b;
      std::memcpy(&a, even + 4 * g, sizeof a);
      std::memcpy(&b, odd + 4 * g, sizeof b);
      const FloatRow row = __builtin_shufflevector(a, b, 0, 4, 1, 5, 2, 6, 3, 7);
      std::memcpy(rows[g], &row, sizeof row);
    }
  }
}

inline void write_result(Warp& warp, const uint32_t* slots, bool half, const MmaTile& tile) {
  typedef int32_t IntRow __attribute__((vector_size(32)));
  for (int part = 0; part < tile.rows / 8; ++part) {
    const float(*rows)[8] = tile.c + 8 * part;
    if (half) {
      uint16_t* values = warp.dst<uint16_t>(slots[part]);
      for (int i = 0; i < 64; ++i) values[i] = half_from_float(rows[i / 8][i % 8]);
      continue;
    }
    float* even = warp.dst<float>(slots[2 * part]);
    float* odd = warp.dst<float>(slots[2 * part + 1]);
    for (int g = 0; g < 8; ++g) {
      FloatRow row;
      std::memcpy(&row, rows[g], sizeof row);
      // NaN has one form, as canonical() of numbers.h gives it.
      const IntRow is_nan = row != row;
      row = (FloatRow)(((IntRow)row & ~is_nan) | (is_nan & static_cast<int32_t>(kNanF32)));
      const FloatHalf a = __builtin_shufflevector(row, row, 0, 2, 4, 6);
      const FloatHalf b = __builtin_shufflevector(row, row, 1, 3, 5, 7);
      std::memcpy(even + 4 * g, &a, sizeof a);
      std::memcpy(odd + 4 * g, &b, sizeof b);
    }
  }
}

}  // namespace linnet::vgpu
