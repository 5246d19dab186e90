#include "op_check.h"

using namespace linnet::vgpu::testing;

namespace {
uint32_t u32(uint64_t x) { return static_cast<uint32_t>(x); }
int32_t s32(uint64_t x) { return static_cast<int32_t>(x); }

uint64_t field(uint64_t value, uint64_t position, uint64_t length, bool is_signed, uint64_t width) {
  position &= 0xff;
  length &= 0xff;
  uint64_t result = 0;
  const uint64_t top = std::min(position + length - 1, width - 1);
  const uint64_t sign = is_signed && length ? value >> top & 1 : 0;
  for (uint64_t i = 0; i < width; ++i)
    result |= (i < length && position + i < width ? value >> (position + i) & 1 : sign) << i;
  return result;
}
}  // namespace

TEST_CASE("bits: logic and lop3 with every kind of table") {
  check_op("and.b32 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) { return a & b; });
  check_op("or.b64 %out, %in0, %in1;", 64, [](auto a, auto b, auto) { return a | b; });
  check_op("xor.b16 %h9, %h0, %h1;", 16, [](auto a, auto b, auto) { return a ^ b; });
  check_op("not.b32 %r9, %r0;", 32, [](auto a, auto, auto) { return ~a; });
  check_op("cnot.b32 %r9, %r0;", 32, [](auto a, auto, auto) -> uint64_t { return u32(a) == 0; });
  for (const int table : {0x96, 0xe8, 0x01, 0xca, 0x3f})
    check_op(fmt::format("lop3.b32 %r9, %r0, %r1, %r2, {};", table), 32,
             [table](auto a, auto b, auto c) {
               uint64_t result = 0;
               for (int i = 0; i < 32; ++i) {
                 const uint64_t index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
                 result |= (static_cast<uint64_t>(table) >> index & 1) << i;
               }
               return result;
             });
}

TEST_CASE("bits: shifts clamp, funnel shifts clamp or wrap") {
  check_op("shl.b32 %r9, %r0, %r1;", 32,
           [](auto a, auto b, auto) { return u32(b) > 31 ? 0 : uint64_t{u32(a)} << u32(b); });
  check_op("shr.s32 %r9, %r0, %r1;", 32, [](auto a, auto b, auto) {
    return static_cast<uint64_t>(int64_t{s32(a)} >> std::min(u32(b), 31u));
  });
  check_op(
      "shr.u64 %out, %in0, %r1;\n", 32,
      [](auto a, auto b, auto) { return u32(b) > 63 ? 0 : a >> u32(b); }, 64);
  check_op("shf.l.wrap.b32 %r9, %r0, %r1, %r2;", 32, [](auto a, auto b, auto c) {
    return ((uint64_t{u32(b)} << 32 | u32(a)) << (c & 31)) >> 32;
  });
  check_op("shf.r.clamp.b32 %r9, %r0, %r1, %r2;", 32, [](auto a, auto b, auto c) {
    return (uint64_t{u32(b)} << 32 | u32(a)) >> std::min(u32(c), 32u);
  });
}

TEST_CASE("bits: counting, finding, reversing") {
  check_op("popc.b32 %r9, %r0;", 32,
           [](auto a, auto, auto) { return static_cast<uint64_t>(std::popcount(u32(a))); });
  check_op("clz.b64 %r9, %in0;", 32,
           [](auto a, auto, auto) { return static_cast<uint64_t>(std::countl_zero(a)); });
  check_op("brev.b32 %r9, %r0;", 32, [](auto a, auto, auto) {
    uint64_t r = 0;
    for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
    return r;
  });
  check_op("bfind.u32 %r9, %r0;", 32, [](auto a, auto, auto) {
    return static_cast<uint64_t>(u32(a) ? 31 - std::countl_zero(u32(a)) : -1);
  });
  check_op("bfind.shiftamt.s32 %r9, %r0;", 32, [](auto a, auto, auto) {
    const uint32_t v = s32(a) < 0 ? ~u32(a) : u32(a);
    return static_cast<uint64_t>(v ? std::countl_zero(v) : -1);
  });
}

TEST_CASE("bits: fields and byte permutations") {
  check_op("bfe.u32 %r9, %r0, %r1, %r2;", 32,
           [](auto a, auto b, auto c) { return field(u32(a), b, c, false, 32); });
  check_op("bfe.s32 %r9, %r0, %r1, %r2;", 32,
           [](auto a, auto b, auto c) { return field(u32(a), b, c, true, 32); });
  check_op("bfe.s32 %r9, %r0, 5, 7;", 32,
           [](auto a, auto, auto) { return field(u32(a), 5, 7, true, 32); });
  check_op("bfi.b32 %r9, %r0, %r1, 9, 11;", 32,
           [](auto a, auto b, auto) { return (b & ~(0x7ffull << 9)) | (a & 0x7ff) << 9; });
  check_op("prmt.b32 %r9, %r0, %r1, %r2;", 32, [](auto a, auto b, auto c) {
    const uint64_t both = uint64_t{u32(b)} << 32 | u32(a);
    uint64_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const uint64_t code = c >> (4 * i) & 15;
      uint64_t byte = both >> (8 * (code & 7)) & 0xff;
      if (code & 8) byte = byte & 0x80 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  });
  check_op("prmt.b32.rc16 %r9, %r0, %r1, %r2;", 32, [](auto a, auto, auto c) {
    const uint64_t half = c & 1 ? a >> 16 & 0xffff : a & 0xffff;
    return half << 16 | half;
  });
  check_op("bmsk.clamp.b32 %r9, 4, 8;", 32, [](auto, auto, auto) -> uint64_t { return 0xff0; });
  check_op("szext.wrap.s32 %r9, %r0, 5;", 32,
           [](auto a, auto, auto) { return static_cast<uint64_t>(int64_t{s32(a << 27) >> 27}); });
}
