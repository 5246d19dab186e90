// f16 and bf16 arithmetic, single and in pairs: computed in f32 and rounded once.
#include <cmath>

#include "exec/families.h"
#include "exec/numbers.h"
#include "exec/warp.h"

namespace linnet::vgpu {
namespace {

struct F16 {
  static float to_float(uint16_t bits) { return half_to_float(bits); }
  static uint16_t from_float(float value) { return half_from_float(value); }
  static constexpr uint16_t kSmallestNormal = 0x0400;
};
struct BF16 {
  static float to_float(uint16_t bits) { return bfloat_to_float(bits); }
  static uint16_t from_float(float value) { return bfloat_from_float(value); }
  static constexpr uint16_t kSmallestNormal = 0x0080;
};

enum Flags : uint8_t { kFtz = 1, kSat = 2, kRelu = 4, kNan = 8, kXorSign = 16, kAbs = 32 };

// The f32 result of + - * on two short numbers rounds correctly when rounded again; fma needs care.
struct Add {
  static float of(float a, float b, float) { return a + b; }
};
struct Sub {
  static float of(float a, float b, float) { return a - b; }
};
struct Mul {
  static float of(float a, float b, float) { return a * b; }
};
struct Fma {
  static float of(float a, float b, float c) { return fma_odd(a, b, c); }
};

template <class Format>
uint16_t flush_half(uint16_t bits) {
  return (bits & 0x7fff) < Format::kSmallestNormal ? bits & 0x8000 : bits;
}

template <class Format>
uint16_t finish(float value, uint8_t flags) {
  if (flags & kSat) value = saturate(value);
  // bf16 sums of bf16 numbers may be inexact in f32 only far below the last bit: rounding is safe.
  uint16_t bits = Format::from_float(value);
  if (flags & kFtz) bits = flush_half<Format>(bits);
  if ((flags & kRelu) && (bits & 0x8000) && value == value) bits = 0;
  return bits;
}

template <int PerLane>
void store_halves(Warp& warp, const Op& op, uint32_t mask, const uint16_t* values) {
  if constexpr (PerLane == 1) {
    blend(warp.dst<uint16_t>(op.dst), values, mask);
  } else {
    alignas(64) uint32_t pairs[kLanes];
    std::memcpy(pairs, values, sizeof pairs);
    blend(warp.dst<uint32_t>(op.dst), pairs, mask);
  }
}

template <class Format, int PerLane, class F>
void arithmetic(Warp& warp, const Op& op, uint32_t mask) {
  const uint16_t* a = warp.src<uint16_t>(op.a);
  const uint16_t* b = warp.src<uint16_t>(op.b);
  const uint16_t* c = warp.src<uint16_t>(op.c);
  alignas(64) uint16_t values[kLanes * PerLane];
  if (op.flags == 0) {
    for (int i = 0; i < kLanes * PerLane; ++i)
      values[i] = Format::from_float(
          F::of(Format::to_float(a[i]), Format::to_float(b[i]), Format::to_float(c[i])));
  } else {
    const auto in = [&](uint16_t bits) {
      return Format::to_float(op.flags & kFtz ? flush_half<Format>(bits) : bits);
    };
    for (int i = 0; i < kLanes * PerLane; ++i)
      values[i] = finish<Format>(F::of(in(a[i]), in(b[i]), in(c[i])), op.flags);
  }
  store_halves<PerLane>(warp, op, mask, values);
}

template <bool Max>
struct Extreme {
  static uint16_t of(uint16_t a, uint16_t b, float x, float y, uint8_t flags) {
    const uint16_t sign = flags & kXorSign ? (a ^ b) & 0x8000 : 0;
    if (flags & kAbs) a &= 0x7fff, b &= 0x7fff, x = std::fabs(x), y = std::fabs(y);
    if (x != x || y != y) {
      if ((flags & kNan) || (x != x && y != y)) return 0x7fff;
      return static_cast<uint16_t>((x != x ? b : a) | sign);
    }
    const bool take_b = x == y ? ((a & 0x8000) != 0) == Max : (x < y) == Max;
    return static_cast<uint16_t>((take_b ? b : a) | sign);
  }
};

template <class Format, int PerLane, bool Max>
void extreme(Warp& warp, const Op& op, uint32_t mask) {
  const uint16_t* a = warp.src<uint16_t>(op.a);
  const uint16_t* b = warp.src<uint16_t>(op.b);
  alignas(64) uint16_t values[kLanes * PerLane];
  for (int i = 0; i < kLanes * PerLane; ++i) {
    const uint16_t x = op.flags & kFtz ? flush_half<Format>(a[i]) : a[i];
    const uint16_t y = op.flags & kFtz ? flush_half<Format>(b[i]) : b[i];
    values[i] = Extreme<Max>::of(x, y, Format::to_float(x), Format::to_float(y), op.flags);
  }
  store_halves<PerLane>(warp, op, mask, values);
}

template <class Format, int PerLane, bool Negates>
void sign(Warp& warp, const Op& op, uint32_t mask) {
  const uint16_t* a = warp.src<uint16_t>(op.a);
  alignas(64) uint16_t values[kLanes * PerLane];
  for (int i = 0; i < kLanes * PerLane; ++i) {
    const uint16_t bits = op.flags & kFtz ? flush_half<Format>(a[i]) : a[i];
    values[i] = static_cast<uint16_t>(Negates ? bits ^ 0x8000 : bits & 0x7fff);
  }
  store_halves<PerLane>(warp, op, mask, values);
}

template <class Format, int PerLane>
Handler half_handler(std::string_view opcode) {
  if (opcode == "add") return arithmetic<Format, PerLane, Add>;
  if (opcode == "sub") return arithmetic<Format, PerLane, Sub>;
  if (opcode == "mul") return arithmetic<Format, PerLane, Mul>;
  if (opcode == "fma") return arithmetic<Format, PerLane, Fma>;
  if (opcode == "min") return extreme<Format, PerLane, false>;
  if (opcode == "max") return extreme<Format, PerLane, true>;
  if (opcode == "abs") return sign<Format, PerLane, false>;
  if (opcode == "neg") return sign<Format, PerLane, true>;
  return nullptr;
}

}  // namespace

void decode_half_arithmetic(OpBuilder& b) {
  const Type type = b.type();
  const std::string_view opcode = b.in.form.opcode();
  b.op.kind = OpClass::Half;
  b.op.dst = b.dst(0, type);
  b.op.a = b.op.b = b.op.c = b.src(1, type);
  if (b.operands() > 2) b.op.b = b.src(2, type);
  if (b.operands() > 3) b.op.c = b.src(3, type);
  b.op.flags = static_cast<uint8_t>((b.has("ftz") ? kFtz : 0) | (b.has("sat") ? kSat : 0) |
                                    (b.has("relu") ? kRelu : 0) | (b.has("nan") ? kNan : 0) |
                                    (b.has("xorsign") ? kXorSign : 0) | (b.has("abs") ? kAbs : 0));
  switch (type) {
    case Type::F16:
      b.op.run = half_handler<F16, 1>(opcode);
      break;
    case Type::F16x2:
      b.op.run = half_handler<F16, 2>(opcode);
      break;
    case Type::BF16:
      b.op.run = half_handler<BF16, 1>(opcode);
      break;
    default:
      b.op.run = half_handler<BF16, 2>(opcode);
      break;
  }
  if (!b.op.run) b.fail("no half-precision form");
}

}  // namespace linnet::vgpu
