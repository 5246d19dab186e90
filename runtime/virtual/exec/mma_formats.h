// Formats of the factors of matrix products, and how the tensor core sums them.
#pragma once

#include <algorithm>
#include <bit>

#include "exec/mma_arithmetic.h"
#include "exec/numbers.h"
#include "profile.h"

namespace linnet::vgpu {

struct FromHalf {
  using Element = uint16_t;
  static constexpr int kPack = 2;
  static constexpr int kFraction = 10;
  static constexpr int kSmallest = -14;
  static float value(uint16_t bits) { return half_to_float(bits); }
};
struct FromBfloat {
  using Element = uint16_t;
  static constexpr int kPack = 2;
  static constexpr int kFraction = 7;
  static constexpr int kSmallest = -126;
  static float value(uint16_t bits) { return bfloat_to_float(bits); }
};
struct FromTf32 {
  using Element = uint32_t;
  static constexpr int kPack = 1;
  static constexpr int kSmallest = -126;
  // The low 13 bits are not looked at.
  static float value(uint32_t bits) { return std::bit_cast<float>(bits & 0xffff'e000u); }
};
struct FromE4M3 {
  using Element = uint8_t;
  static constexpr int kPack = 4;
  static constexpr int kSmallest = -6;
  static float value(uint8_t bits) { return static_cast<float>(decode_float(bits, kFormatE4M3)); }
};
struct FromE5M2 {
  using Element = uint8_t;
  static constexpr int kPack = 4;
  static constexpr int kSmallest = -14;
  static float value(uint8_t bits) { return static_cast<float>(decode_float(bits, kFormatE5M2)); }
};

// A step of the hardware takes a fixed number of bytes, so narrow types are summed in longer
// blocks; 8-bit products are known to be kept with 13 fraction bits only.
template <class A>
MmaRounding rounding_of(const DeviceProfile& profile) {
  MmaRounding rounding;
  rounding.block = std::max(4, profile.mma_block * A::kPack / 2);
  rounding.fraction_bits = A::kPack == 4 ? 13 : 23 + profile.mma_extra_bits;
  return rounding;
}

}  // namespace linnet::vgpu
