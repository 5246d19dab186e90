// Matrix products as tensor cores compute them: exact products, block-wise sums with truncation.
#pragma once

#include <cstdint>

namespace linnet::vgpu {

// How one block of products is summed with the accumulator.
struct MmaRounding {
  int block = 16;          // products summed at once
  int fraction_bits = 25;  // kept below the largest exponent: 23 + the extra bits
};

// Fixed shapes keep the inner loops free of address arithmetic: up to 16 x 8 x 32.
struct MmaTile {
  int rows = 16;
  int depth = 16;
  int smallest_exponent = -126;  // of the input format: subnormals are not normalised
  alignas(64) float a[16][32];   // row-major
  alignas(64) float b[32][8];
  alignas(64) float c[16][8];  // accumulator and result
};

// For each block of `rounding.block` products: all terms are aligned to the largest exponent among
// them and the accumulator, cut off below `fraction_bits`, summed exactly and truncated to f32.
void mma_hardware(MmaTile& tile, const MmaRounding& rounding);
// The same rule written plainly in double; what the fast one falls back to and is tested against.
void mma_hardware_reference(MmaTile& tile, const MmaRounding& rounding);
// Products and sums in double, rounded once.
void mma_exact(MmaTile& tile);

}  // namespace linnet::vgpu
