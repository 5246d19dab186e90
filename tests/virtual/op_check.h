// Compares one PTX instruction on 32 lanes of interesting operands with a C++ function.
#pragma once

#include <doctest/doctest.h>

#include <bit>
#include <functional>

#include "ptx_runner.h"

namespace linnet::vgpu::testing {

constexpr const char* kRegisters =
    ".reg .b32 %r<16>; .reg .b16 %h<16>; .reg .pred %p<8>; .reg .b64 %d<8>;\n";

using Reference = std::function<uint64_t(uint64_t, uint64_t, uint64_t)>;

// `bits` is the width of operands and result: %r0, %r1, %r2 -> %r9 (32), %h (16), %in -> %out (64).
// The result width may differ: `result_bits`.
inline void check_op(const std::string& text, int bits, const Reference& reference,
                     int result_bits = 0, const Settings& settings = {},
                     const std::function<std::vector<uint64_t>(uint32_t)>& make = patterns) {
  if (!result_bits) result_bits = bits;
  std::string body;
  for (int i = 0; i < 3; ++i) {
    if (bits == 32) body += fmt::format("cvt.u32.u64 %r{}, %in{};\n", i, i);
    if (bits == 16) body += fmt::format("cvt.u16.u64 %h{}, %in{};\n", i, i);
  }
  body += text + "\n";
  if (result_bits == 32) body += "cvt.u64.u32 %out, %r9;\n";
  if (result_bits == 16) body += "cvt.u64.u16 %out, %h9;\n";
  if (result_bits == 1) body += "selp.u64 %out, 1, 0, %p0;\n";
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const auto a = make(seed), b = make(seed + 10), c = make(seed + 20);
    const auto result = run_lanes(body, {a, b, c}, kRegisters, settings);
    const uint64_t keep = result_bits == 64 ? ~uint64_t{0} : (uint64_t{1} << result_bits) - 1;
    for (size_t lane = 0; lane < 32; ++lane) {
      const uint64_t expected = reference(a[lane], b[lane], c[lane]) & keep;
      REQUIRE_MESSAGE(result[lane] == expected,
                      fmt::format("{}: a={:#x} b={:#x} c={:#x} gave {:#x}, expected {:#x}", text,
                                  a[lane], b[lane], c[lane], result[lane], expected));
    }
  }
}

inline float f32(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
inline uint64_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
inline double f64(uint64_t bits) { return std::bit_cast<double>(bits); }
inline uint64_t bits_of(double value) { return std::bit_cast<uint64_t>(value); }

// Floats of all sizes, with zeros, infinities, NaN and subnormals among them.
inline std::vector<uint64_t> float_patterns(uint32_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const uint32_t special[] = {0, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u,
                              1, 0x80000001u, 0x007fffffu, 0x7f7fffffu, 0x3f800000u};
  std::vector<uint64_t> values;
  for (size_t i = 0; i < 32; ++i) {
    if (i < 16)
      values.push_back(bits_of(normal(random)));
    else if (i < 24)
      values.push_back(static_cast<uint32_t>(random()));
    else
      values.push_back(special[random() % std::size(special)]);
  }
  return values;
}

inline uint64_t canonical_bits(float value) {
  return value != value ? 0x7fffffffu : bits_of(value);
}

}  // namespace linnet::vgpu::testing
