#include <cmath>

#include "exec/numbers.h"
#include "op_check.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {
void check_float(const std::string& text, const Reference& reference, int result = 32) {
  check_op(text, 32, reference, result, {}, float_patterns);
}
uint64_t saturated(double value, double low, double high) {
  if (std::isnan(value)) return 0;
  return static_cast<uint64_t>(static_cast<int64_t>(std::clamp(value, low, high)));
}
}  // namespace

TEST_CASE("convert: integers widen by their sign and narrow by cutting") {
  check_op("cvt.s32.s8 %r9, %r0;", 32, [](auto a, auto, auto) {
    return static_cast<uint64_t>(int64_t{static_cast<int8_t>(a)});
  });
  check_op("cvt.u32.u16 %r9, %h0;", 16, [](auto a, auto, auto) { return a & 0xffff; }, 32);
  check_op(
      "cvt.s64.s32 %out, %r0;", 32,
      [](auto a, auto, auto) { return static_cast<uint64_t>(int64_t{static_cast<int32_t>(a)}); },
      64);
  check_op("cvt.sat.u8.s32 %r9, %r0;", 32,
           [](auto a, auto, auto) { return saturated(static_cast<int32_t>(a), 0, 255); });
  check_op("cvt.pack.sat.s16.s32 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) {
    return (saturated(static_cast<int32_t>(a), -32768, 32767) & 0xffff) << 16 |
           (saturated(static_cast<int32_t>(b), -32768, 32767) & 0xffff);
  });
}

TEST_CASE("convert: floats to integers round and saturate") {
  check_float("cvt.rzi.s32.f32 %r9, %r0;", [](auto a, auto, auto) {
    return saturated(std::trunc(f32(a)), INT32_MIN, INT32_MAX);
  });
  check_float("cvt.rni.u32.f32 %r9, %r0;", [](auto a, auto, auto) {
    return saturated(std::nearbyint(f32(a)), 0, 4294967295.0);
  });
  check_float("cvt.rmi.s8.f32 %r9, %r0;",
              [](auto a, auto, auto) { return saturated(std::floor(f32(a)), -128, 127); });
  check_float("cvt.rpi.f32.f32 %r9, %r0;",
              [](auto a, auto, auto) { return canonical_bits(std::ceil(f32(a))); });
}

TEST_CASE("convert: integers to floats round as asked") {
  check_op("cvt.rn.f32.s64 %r9, %in0;", 32,
           [](auto a, auto, auto) { return bits_of(static_cast<float>(static_cast<int64_t>(a))); });
  check_op("cvt.rn.f32.u32 %r9, %r0;", 32, [](auto a, auto, auto) {
    return bits_of(static_cast<float>(static_cast<uint32_t>(a)));
  });
  check_op("cvt.rz.f32.u32 %r9, %r0;", 32, [](auto a, auto, auto) {
    return encode_float(static_cast<uint32_t>(a), kFormatF32, Rounding::Zero, false);
  });
  check_op("cvt.rn.f64.u64 %out, %in0;", 64,
           [](auto a, auto, auto) { return bits_of(static_cast<double>(a)); });
}

TEST_CASE("convert: between float formats, every rounding") {
  const auto to = [](const FloatFormat& format, Rounding rounding) {
    return [&format, rounding](uint64_t a, uint64_t, uint64_t) -> uint64_t {
      return encode_float(f32(a), format, rounding, false);
    };
  };
  check_float("cvt.rn.f16.f32 %h9, %r0;", to(kFormatF16, Rounding::Nearest), 16);
  check_float("cvt.rz.f16.f32 %h9, %r0;", to(kFormatF16, Rounding::Zero), 16);
  check_float("cvt.rn.bf16.f32 %h9, %r0;", to(kFormatBF16, Rounding::Nearest), 16);
  check_float("cvt.rz.bf16.f32 %h9, %r0;", to(kFormatBF16, Rounding::Zero), 16);
  check_float("cvt.rna.tf32.f32 %r9, %r0;", [](auto a, auto, auto) {
    return uint64_t{encode_float(f32(a), kFormatTF32, Rounding::NearestAway, false)} << 13;
  });
  check_op(
      "cvt.f32.f16 %r9, %h0;", 16,
      [](auto a, auto, auto) { return canonical_bits(half_to_float(static_cast<uint16_t>(a))); },
      32);
  check_op("cvt.rn.f32.f64 %r9, %in0;", 32,
           [](auto a, auto, auto) { return canonical_bits(static_cast<float>(f64(a))); });
  check_float(
      "cvt.f64.f32 %out, %r0;",
      [](auto a, auto, auto) { return bits_of(static_cast<double>(f32(a))); }, 64);
}

TEST_CASE("convert: two floats packed into a pair") {
  const auto pair = [](const FloatFormat& format, bool relu, bool finite) {
    return [&format, relu, finite](uint64_t a, uint64_t b, uint64_t) {
      const auto one = [&](uint64_t bits) -> uint64_t {
        double value = f32(bits);
        if (relu && value < 0) value = 0;
        return encode_float(value, format, Rounding::Nearest, finite);
      };
      const int width = format.exponent_bits + format.fraction_bits + 1;
      return one(a) << width | one(b);
    };
  };
  check_float("cvt.rn.bf16x2.f32 %r9, %r0, %r1;", pair(kFormatBF16, false, false));
  check_float("cvt.rn.f16x2.f32 %r9, %r0, %r1;", pair(kFormatF16, false, false));
  check_float("cvt.rn.relu.bf16x2.f32 %r9, %r0, %r1;", pair(kFormatBF16, true, false));
  check_float("cvt.rn.satfinite.e4m3x2.f32 %h9, %r0, %r1;", pair(kFormatE4M3, false, true), 16);
  check_float("cvt.rn.satfinite.e5m2x2.f32 %h9, %r0, %r1;", pair(kFormatE5M2, false, true), 16);
}
