// Matrix products as tensor cores compute them: exact products, block-wise sums with truncation.
#pragma once

#include <cstdint>

namespace linnet::vgpu {

// How one block of products is summed with the accumulator.
struct MmaRounding {
  int block = 16;          // products summed at once
  int fraction_bits = 25;  // kept below the largest exponent: 23 + the extra bits
};

// 16 x depth times depth x 8, laid out as registers of fragments hold them: rows r and r + 8 side
// by side, columns in the order 0 2 4 6 1 3 5 7. Fixed shapes keep loops free of address
// arithmetic.
struct MmaTile {
  static constexpr int kRows = 16, kColumns = 8;
  int depth = 16;
  int smallest_exponent = -126;  // of the input format: subnormals are not normalised
  alignas(64) float a[8][32][2];
  alignas(64) float b[32][8];
  // Of the factors, with a bias of 127, those of columns twice; far below all others for zero.
  alignas(64) int16_t exponent_a[8][32][2];
  alignas(64) int16_t exponent_b[32][8][2];
  alignas(64) float c[8][8][2];  // accumulator and result

  static constexpr int place(int column) { return column / 2 + column % 2 * 4; }
  float& a_at(int row, int k) { return a[row % 8][k][row / 8]; }
  float& b_at(int k, int column) { return b[k][place(column)]; }
  float& c_at(int row, int column) { return c[row % 8][place(column)][row / 8]; }
};

constexpr int16_t kZeroExponent = -16384;  // two of them still add up to a 16-bit number
// Fills in the exponents of factors that were written one by one.
void find_exponents_a(MmaTile& tile);
void find_exponents_b(MmaTile& tile);

// For each block of `rounding.block` products: all terms are aligned to the largest exponent among
// them and the accumulator, cut off below `fraction_bits`, summed exactly and truncated to f32. A
// sum of nothing is +0.
void mma_hardware(MmaTile& tile, const MmaRounding& rounding);
// The same rule written plainly in double; what the fast one falls back to and is tested against.
void mma_hardware_reference(MmaTile& tile, const MmaRounding& rounding);
// The ways of mma_hardware this processor has, by the bits of their vectors, the widest first.
struct MmaWay {
  int vector_bits;
  bool (*multiply)(MmaTile&, const MmaRounding&);  // false: the tile is left to the reference
};
const MmaWay* mma_ways(int& count);
// Takes another than the widest; nothing may run. For benchmarks.
void choose_mma_way(const MmaWay& way);
// Products and sums in double, rounded once.
void mma_exact(MmaTile& tile);

}  // namespace linnet::vgpu
