#include "op_check.h"

using namespace linnet::vgpu::testing;

namespace {
int32_t s32(uint64_t x) { return static_cast<int32_t>(x); }
uint32_t u32(uint64_t x) { return static_cast<uint32_t>(x); }
int16_t s16(uint64_t x) { return static_cast<int16_t>(x); }
int64_t s64(uint64_t x) { return static_cast<int64_t>(x); }
uint64_t of(int64_t x) { return static_cast<uint64_t>(x); }
}  // namespace

TEST_CASE("integer: add, sub, mul, mad wrap in every width") {
  check_op("add.s32 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) { return a + b; });
  check_op("sub.u32 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) { return a - b; });
  check_op("mul.lo.s32 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) { return u32(a) * u32(b); });
  check_op("mad.lo.u32 %r9, %r0, %r1, %r2;", 32,
           [](auto a, auto b, auto c) { return u32(a) * u32(b) + u32(c); });
  check_op("add.s16 %h9, %h0, %h1;", 16, [](auto a, auto b, auto) { return a + b; });
  check_op("mul.lo.u16 %h9, %h0, %h1;", 16, [](auto a, auto b, auto) { return a * b; });
  check_op("add.u64 %out, %in0, %in1;", 64, [](auto a, auto b, auto) { return a + b; });
  check_op("mad.lo.s64 %out, %in0, %in1, %in2;", 64,
           [](auto a, auto b, auto c) { return a * b + c; });
}

TEST_CASE("integer: high and wide products") {
  check_op("mul.hi.u32 %r9, %r0, %r1;", 32,
           [](auto a, auto b, auto) { return (uint64_t{u32(a)} * u32(b)) >> 32; });
  check_op("mul.hi.s32 %r9, %r0, %r1;", 32,
           [](auto a, auto b, auto) { return of((int64_t{s32(a)} * s32(b)) >> 32); });
  check_op("mul.hi.u64 %out, %in0, %in1;", 64, [](auto a, auto b, auto) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
  });
  check_op(
      "mul.wide.s32 %out, %r0, %r1;", 32,
      [](auto a, auto b, auto) { return of(int64_t{s32(a)} * s32(b)); }, 64);
  check_op(
      "mul.wide.u16 %r9, %h0, %h1;", 16,
      [](auto a, auto b, auto) { return (a & 0xffff) * (b & 0xffff); }, 32);
  check_op(
      "mad.wide.s32 %out, %r0, %r1, %in2;", 32,
      [](auto a, auto b, auto c) { return of(int64_t{s32(a)} * s32(b)) + c; }, 64);
  check_op("mad.hi.s32 %r9, %r0, %r1, %r2;", 32,
           [](auto a, auto b, auto c) { return of((int64_t{s32(a)} * s32(b)) >> 32) + c; });
  check_op("mul24.lo.s32 %r9, %r0, %r1;", 32,
           [](auto a, auto b, auto) { return of(int64_t{s32(a << 8) >> 8} * (s32(b << 8) >> 8)); });
}

TEST_CASE("integer: division, remainder, extremes, absolute values") {
  check_op("div.s32 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) -> uint64_t {
    return s32(b) == 0 ? ~uint64_t{0} : s32(b) == -1 ? 0 - a : of(s32(a) / s32(b));
  });
  check_op("rem.u32 %r9, %r0, %r1;", 32,
           [](auto a, auto b, auto) { return u32(b) ? u32(a) % u32(b) : u32(a); });
  check_op("div.u64 %out, %in0, %in1;", 64,
           [](auto a, auto b, auto) { return b ? a / b : ~uint64_t{0}; });
  check_op("min.s32 %r9, %r0, %r1;", 32,
           [](auto a, auto b, auto) { return of(std::min(s32(a), s32(b))); });
  check_op("max.u32 %r9, %r0, %r1;", 32,
           [](auto a, auto b, auto) { return std::max(u32(a), u32(b)); });
  check_op("max.s16x2 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) {
    const auto high = static_cast<uint16_t>(std::max(s16(a >> 16), s16(b >> 16)));
    return uint64_t{high} << 16 | static_cast<uint16_t>(std::max(s16(a), s16(b)));
  });
  check_op("abs.s32 %r9, %r0;", 32, [](auto a, auto, auto) { return s32(a) < 0 ? 0 - a : a; });
  check_op("neg.s64 %out, %in0;", 64, [](auto a, auto, auto) { return 0 - a; });
  check_op("sad.s32 %r9, %r0, %r1, %r2;", 32,
           [](auto a, auto b, auto c) { return c + of(std::abs(int64_t{s32(a)} - s32(b))); });
  check_op("add.sat.s32 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) {
    return of(std::clamp<int64_t>(int64_t{s32(a)} + s32(b), INT32_MIN, INT32_MAX));
  });
}

TEST_CASE("integer: carries chain 64-bit sums out of 32-bit ones") {
  check_op(
      "mov.b64 {%r4, %r5}, %in0; mov.b64 {%r6, %r7}, %in1;\n"
      "add.cc.u32 %r4, %r4, %r6; addc.u32 %r5, %r5, %r7; mov.b64 %out, {%r4, %r5};",
      64, [](auto a, auto b, auto) { return a + b; });
  check_op(
      "mov.b64 {%r4, %r5}, %in0; mov.b64 {%r6, %r7}, %in1;\n"
      "sub.cc.u32 %r4, %r4, %r6; subc.u32 %r5, %r5, %r7; mov.b64 %out, {%r4, %r5};",
      64, [](auto a, auto b, auto) { return a - b; });
  check_op(
      "mad.lo.cc.u32 %r4, %r0, %r1, %r2; madc.hi.u32 %r5, %r0, %r1, 0; mov.b64 %out, {%r4, %r5};",
      32, [](auto a, auto b, auto c) { return uint64_t{u32(a)} * u32(b) + u32(c); }, 64);
}

TEST_CASE("integer: byte dot products") {
  check_op("dp4a.s32.u32 %r9, %r0, %r1, %r2;", 32, [](auto a, auto b, auto c) {
    int64_t sum = s32(c);
    for (int i = 0; i < 4; ++i)
      sum +=
          static_cast<int8_t>(a >> (8 * i)) * static_cast<int>(static_cast<uint8_t>(b >> (8 * i)));
    return of(sum);
  });
  check_op("dp2a.hi.s32.s32 %r9, %r0, %r1, %r2;", 32, [](auto a, auto b, auto c) {
    int64_t sum = s32(c);
    for (int i = 0; i < 2; ++i)
      sum += int64_t{s16(a >> (16 * i))} * static_cast<int8_t>(b >> (16 + 8 * i));
    return of(sum);
  });
  CHECK(s64(0) == 0);
}
