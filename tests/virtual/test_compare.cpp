#include <cmath>

#include "op_check.h"

using namespace linnet::vgpu::testing;

TEST_CASE("compare: setp on integers, signed and unsigned") {
  check_op(
      "setp.lt.s32 %p0, %r0, %r1;", 32,
      [](auto a, auto b, auto) -> uint64_t {
        return static_cast<int32_t>(a) < static_cast<int32_t>(b);
      },
      1);
  check_op(
      "setp.hs.u32 %p0, %r0, %r1;", 32,
      [](auto a, auto b, auto) -> uint64_t {
        return static_cast<uint32_t>(a) >= static_cast<uint32_t>(b);
      },
      1);
  check_op(
      "setp.ne.b64 %p0, %in0, %in1;", 64, [](auto a, auto b, auto) -> uint64_t { return a != b; },
      1);
  check_op(
      "setp.gt.s16 %p0, %h0, %h1;", 16,
      [](auto a, auto b, auto) -> uint64_t {
        return static_cast<int16_t>(a) > static_cast<int16_t>(b);
      },
      1);
}

TEST_CASE("compare: setp on floats, ordered and unordered") {
  const auto check = [](const char* name, auto f) {
    check_op(
        fmt::format("setp.{}.f32 %p0, %r0, %r1;", name), 32,
        [f](auto a, auto b, auto) -> uint64_t { return f(f32(a), f32(b)); }, 1, {}, float_patterns);
  };
  const auto nan = [](float x, float y) { return x != x || y != y; };
  check("eq", [](float x, float y) { return x == y; });
  check("ne", [](float x, float y) { return x < y || x > y; });
  check("neu", [](float x, float y) { return x != y; });
  check("ltu", [=](float x, float y) { return x < y || nan(x, y); });
  check("ge", [](float x, float y) { return x >= y; });
  check("num", [=](float x, float y) { return !nan(x, y); });
  check("nan", nan);
}

TEST_CASE("compare: combined predicates, second destination, set, selp, slct") {
  check_op(
      "setp.eq.u32 %p1, 0, %r2; setp.lt.and.u32 %p0|%p2, %r0, %r1, !%p1;", 32,
      [](auto a, auto b, auto c) -> uint64_t {
        return static_cast<uint32_t>(a) < static_cast<uint32_t>(b) && static_cast<uint32_t>(c) != 0;
      },
      1);
  check_op(
      "setp.lt.u32 %p1|%p0, %r0, %r1;", 32,
      [](auto a, auto b, auto) -> uint64_t {
        return !(static_cast<uint32_t>(a) < static_cast<uint32_t>(b));
      },
      1);
  check_op("set.gt.u32.s32 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) -> uint64_t {
    return static_cast<int32_t>(a) > static_cast<int32_t>(b) ? 0xffffffff : 0;
  });
  check_op("set.gt.f32.s32 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) -> uint64_t {
    return static_cast<int32_t>(a) > static_cast<int32_t>(b) ? 0x3f800000 : 0;
  });
  check_op("setp.lt.s32 %p1, %r2, 0; selp.b32 %r9, %r0, %r1, %p1;", 32,
           [](auto a, auto b, auto c) { return static_cast<int32_t>(c) < 0 ? a : b; });
  check_op("slct.u32.s32 %r9, %r0, %r1, %r2;", 32,
           [](auto a, auto b, auto c) { return static_cast<int32_t>(c) >= 0 ? a : b; });
  check_op(
      "setp.lt.s32 %p1, %r0, 0; setp.lt.s32 %p2, %r1, 0; xor.pred %p0, %p1, !%p2;", 32,
      [](auto a, auto b, auto) -> uint64_t {
        return (static_cast<int32_t>(a) < 0) != !(static_cast<int32_t>(b) < 0);
      },
      1);
}

TEST_CASE("compare: packed halves set two predicates") {
  check_op(
      "setp.lt.f16x2 %p0|%p1, %r0, %r1;", 32,
      [](auto a, auto b, auto) -> uint64_t {
        const auto value = [](uint64_t bits) {
          return linnet::vgpu::testing::f32(0) + [&] {
            const int exponent = static_cast<int>(bits >> 10 & 31);
            const double fraction = static_cast<double>(bits & 1023);
            const double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                                     : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                                    : std::ldexp(fraction, -24);
            return bits & 0x8000 ? -magnitude : magnitude;
          }();
        };
        return value(a & 0xffff) < value(b & 0xffff);
      },
      1);
}
