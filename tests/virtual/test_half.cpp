#include <cmath>

#include "exec/numbers.h"
#include "op_check.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

uint64_t encode_half(double value) {
  return encode_float(value, kFormatF16, Rounding::Nearest, false);
}
uint64_t encode_bfloat(double value) {
  return encode_float(value, kFormatBF16, Rounding::Nearest, false);
}
double half(uint64_t bits) { return half_to_float(static_cast<uint16_t>(bits)); }
double bfloat(uint64_t bits) { return bfloat_to_float(static_cast<uint16_t>(bits)); }

}  // namespace

TEST_CASE("half: f16 and bf16 arithmetic rounds once") {
  check_op("add.f16 %h9, %h0, %h1;", 16,
           [](auto a, auto b, auto) { return encode_half(half(a) + half(b)); });
  check_op("mul.bf16 %h9, %h0, %h1;", 16,
           [](auto a, auto b, auto) { return encode_bfloat(bfloat(a) * bfloat(b)); });
  check_op("sub.f16x2 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) {
    return encode_half(half(a >> 16) - half(b >> 16)) << 16 | encode_half(half(a) - half(b));
  });
  // The exact sum of a product and an addend has at most 113 bits: long double plus care would do,
  // but these operands are chosen by bits, so use the odd-rounded helper against a wide reference.
  check_op("fma.rn.bf16x2 %r9, %r0, %r1, %r2;", 32, [](auto a, auto b, auto c) {
    const auto one = [](uint64_t x, uint64_t y, uint64_t z) {
      const __float128 exact = static_cast<__float128>(bfloat(x)) * bfloat(y) + bfloat(z);
      const double near = static_cast<double>(exact);
      if (std::isnan(near) || std::isinf(near)) return encode_bfloat(near);
      // Round to odd so that the second rounding is right.
      double odd = near;
      if (static_cast<__float128>(near) != exact && !(bits_of(near) & 1))
        odd = std::bit_cast<double>((static_cast<__float128>(near) > exact) == (near > 0)
                                        ? bits_of(near) - 1
                                        : bits_of(near) + 1);
      return encode_bfloat(odd);
    };
    return one(a >> 16, b >> 16, c >> 16) << 16 | one(a, b, c);
  });
}

TEST_CASE("half: relu, min, max, abs, neg") {
  check_op("fma.rn.relu.f16 %h9, %h0, %h1, %h2;", 16, [](auto a, auto b, auto c) -> uint64_t {
    const double exact = half(a) * half(b) + half(c);
    return exact < 0 ? 0 : encode_half(exact) & (exact == 0 ? 0x7fff : 0xffff);
  });
  check_op("max.f16 %h9, %h0, %h1;", 16, [](auto a, auto b, auto) -> uint64_t {
    const double x = half(a), y = half(b);
    if (x != x && y != y) return 0x7fff;
    if (x != x) return b;
    if (y != y) return a;
    return x == y ? a & b : x > y ? a : b;
  });
  check_op("neg.bf16x2 %r9, %r0;", 32, [](auto a, auto, auto) { return a ^ 0x80008000; });
  check_op("abs.f16x2 %r9, %r0;", 32, [](auto a, auto, auto) { return a & 0x7fff7fff; });
}

TEST_CASE("half: ex2 and tanh in 16 bits") {
  check_op("ex2.approx.f16 %h9, %h0;", 16,
           [](auto a, auto, auto) { return encode_half(static_cast<float>(std::exp2(half(a)))); });
  check_op("tanh.approx.bf16 %h9, %h0;", 16, [](auto a, auto, auto) {
    return encode_bfloat(static_cast<float>(std::tanh(bfloat(a))));
  });
}
