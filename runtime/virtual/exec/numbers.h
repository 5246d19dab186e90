// Conversions between the number formats of the device, exact about rounding.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace linnet::vgpu {

constexpr uint32_t kNanF32 = 0x7fff'ffffu;  // the NaN arithmetic produces
constexpr uint16_t kNanF16 = 0x7fffu;
constexpr uint16_t kNanBF16 = 0x7fffu;

enum class Rounding : uint8_t { Nearest, Zero, Down, Up, NearestAway };

// Branch-free, so that loops over lanes vectorise.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) + (224u << 23);
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  uint32_t bits = magnitude >= 0x7c00u ? special : normal;
  bits = magnitude < 0x0400u ? std::bit_cast<uint32_t>(subnormal) : bits;
  return std::bit_cast<float>(bits | sign);
}

inline uint16_t half_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fff'ffffu;
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  const uint32_t normal = (rounded - (112u << 23)) >> 13;
  // Adding 0.5 makes the hardware round a subnormal result at the right bit.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
  uint32_t half = magnitude < (113u << 23) ? subnormal : normal;
  half = rounded >= (143u << 23) ? 0x7c00u : half;
  half = magnitude > 0x7f80'0000u ? kNanF16 : half;
  return static_cast<uint16_t>(magnitude > 0x7f80'0000u ? half : half | sign);
}

inline float bfloat_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t bfloat_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fff'ffffu) > 0x7f80'0000u ? kNanBF16 : rounded);
}

inline float canonical(float value) {
  return value != value ? std::bit_cast<float>(kNanF32) : value;
}

inline float flush(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits & 0x7f80'0000u) == 0 ? bits & 0x8000'0000u : bits);
}

inline float saturate(float value) {
  // NaN becomes 0, as the comparison is false for it.
  const float low = value > 0.0f ? value : 0.0f;
  return low < 1.0f ? low : 1.0f;
}

// A double rounded to float such that rounding once more to a shorter format is still correct:
// inexact results get an odd last bit.
inline float to_float_odd(double value) {
  const float near = static_cast<float>(value);
  const double back = near;
  const uint32_t bits = std::bit_cast<uint32_t>(near);
  const uint32_t nudged = std::fabs(back) > std::fabs(value) ? bits - 1 : bits + 1;
  const bool fix = back != value && !(bits & 1u) && value == value;
  return std::bit_cast<float>(fix ? nudged : bits);
}

// a * b + c with the product exact in double and the sum rounded to odd.
inline float fma_odd(float a, float b, float c) {
  const double product = static_cast<double>(a) * b;
  const double addend = c;
  const double sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);
  const uint64_t bits = std::bit_cast<uint64_t>(sum);
  const bool fix = error != 0 && !(bits & 1u) && std::fabs(sum) < HUGE_VAL && error == error;
  const uint64_t nudged = (error > 0) == (sum > 0) ? bits + 1 : bits - 1;
  return to_float_odd(std::bit_cast<double>(fix ? nudged : bits));
}

// A binary format with an implicit leading bit.
struct FloatFormat {
  int exponent_bits;
  int fraction_bits;
  bool has_infinity;  // e4m3 has none: its largest code but one is finite
};

constexpr FloatFormat kFormatF16{5, 10, true};
constexpr FloatFormat kFormatBF16{8, 7, true};
constexpr FloatFormat kFormatTF32{8, 10, true};
constexpr FloatFormat kFormatF32{8, 23, true};
constexpr FloatFormat kFormatE4M3{4, 3, false};
constexpr FloatFormat kFormatE5M2{5, 2, true};

// The slow and obvious encoder behind every conversion that has no fast loop. Values beyond the
// range become infinity, or the largest finite number when `saturate_finite`.
uint32_t encode_float(double value, const FloatFormat& format, Rounding rounding,
                      bool saturate_finite);
double decode_float(uint32_t bits, const FloatFormat& format);

}  // namespace linnet::vgpu
