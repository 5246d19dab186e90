// f32 and f64 arithmetic, rounded to nearest; other roundings are in ops_rounded.cpp.
#include <cmath>

#include "exec/families.h"
#include "exec/numbers.h"
#include "exec/warp.h"

namespace linnet::vgpu {
namespace {

struct Add {
  template <class T>
  static T of(T a, T b) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  static T of(T a, T b) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  static T of(T a, T b) {
    return a * b;
  }
};
struct Div {
  template <class T>
  static T of(T a, T b) {
    return a / b;
  }
};

double canonical(double value) {
  return value != value ? std::bit_cast<double>(uint64_t{0x7fff'ffff'ffff'ffff}) : value;
}

template <bool Ftz>
float in(float value) {
  return Ftz ? flush(value) : value;
}

template <bool Ftz, bool Sat>
float out(float value) {
  value = linnet::vgpu::canonical(value);
  if (Ftz) value = flush(value);
  return Sat ? saturate(value) : value;
}

template <class F, bool Ftz, bool Sat>
void binary_f32(Warp& warp, const Op& op, uint32_t mask) {
  const float* a = warp.src<float>(op.a);
  const float* b = warp.src<float>(op.b);
  each_lane(warp.dst<float>(op.dst), mask, [=](int i) {
    return out<Ftz, Sat>(F::template of<float>(in<Ftz>(a[i]), in<Ftz>(b[i])));
  });
}

template <bool Ftz, bool Sat>
void fma_f32(Warp& warp, const Op& op, uint32_t mask) {
  const float* a = warp.src<float>(op.a);
  const float* b = warp.src<float>(op.b);
  const float* c = warp.src<float>(op.c);
  each_lane(warp.dst<float>(op.dst), mask, [=](int i) {
    return out<Ftz, Sat>(std::fma(in<Ftz>(a[i]), in<Ftz>(b[i]), in<Ftz>(c[i])));
  });
}

template <class F>
void binary_f64(Warp& warp, const Op& op, uint32_t mask) {
  const double* a = warp.src<double>(op.a);
  const double* b = warp.src<double>(op.b);
  each_lane(warp.dst<double>(op.dst), mask,
            [=](int i) { return canonical(F::template of<double>(a[i], b[i])); });
}

void fma_f64(Warp& warp, const Op& op, uint32_t mask) {
  const double* a = warp.src<double>(op.a);
  const double* b = warp.src<double>(op.b);
  const double* c = warp.src<double>(op.c);
  each_lane(warp.dst<double>(op.dst), mask,
            [=](int i) { return canonical(std::fma(a[i], b[i], c[i])); });
}

enum MinMaxFlags : uint8_t { kMax = 1, kFtz = 2, kNan = 4, kXorSign = 8, kAbs = 16 };

// -0 is below +0; a NaN loses against a number unless .NaN asks for it.
template <class T>
T select_extreme(T a, T b, bool max, bool nan) {
  if (a != a || b != b) {
    if (nan || (a != a && b != b)) return static_cast<T>(NAN);
    return a != a ? b : a;
  }
  if (a == b) return (std::signbit(a) == max) ? b : a;
  return (a < b) == max ? b : a;
}

void extreme_f32(Warp& warp, const Op& op, uint32_t mask) {
  const float* a = warp.src<float>(op.a);
  const float* b = warp.src<float>(op.b);
  const uint8_t flags = op.flags;
  each_lane(warp.dst<float>(op.dst), mask, [=](int i) {
    float x = flags & kFtz ? flush(a[i]) : a[i];
    float y = flags & kFtz ? flush(b[i]) : b[i];
    const bool negative = std::signbit(x) != std::signbit(y);
    if (flags & kAbs) x = std::fabs(x), y = std::fabs(y);
    const float result = linnet::vgpu::canonical(select_extreme(x, y, flags & kMax, flags & kNan));
    return flags & kXorSign && result == result ? std::copysign(result, negative ? -1.0f : 1.0f)
                                                : result;
  });
}

// The plain forms, without branches.
template <bool Max>
void plain_extreme_f32(Warp& warp, const Op& op, uint32_t mask) {
  const float* a = warp.src<float>(op.a);
  const float* b = warp.src<float>(op.b);
  each_lane(warp.dst<float>(op.dst), mask, [=](int i) {
    const float x = a[i], y = b[i];
    // Equal numbers differ at most in the sign of zero: combine the signs.
    const uint32_t bits_x = std::bit_cast<uint32_t>(x), bits_y = std::bit_cast<uint32_t>(y);
    const float tie = std::bit_cast<float>(Max ? bits_x & bits_y : bits_x | bits_y);
    float best = (x < y) == Max ? y : x;
    best = x == y ? tie : best;
    best = x != x ? y : best;
    best = y != y ? x : best;
    return linnet::vgpu::canonical(best);
  });
}

void extreme_f64(Warp& warp, const Op& op, uint32_t mask) {
  const double* a = warp.src<double>(op.a);
  const double* b = warp.src<double>(op.b);
  const bool max = op.flags & kMax;
  each_lane(warp.dst<double>(op.dst), mask,
            [=](int i) { return canonical(select_extreme(a[i], b[i], max, false)); });
}

enum SignFlags : uint8_t { kNegates = 1, kFlushes = 2 };

void sign_f32(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* a = warp.src<uint32_t>(op.a);
  const uint32_t keep = op.flags & kNegates ? kAllLanes : 0x7fff'ffffu;
  const uint32_t turn = op.flags & kNegates ? 0x8000'0000u : 0u;
  const bool flushes = op.flags & kFlushes;
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int i) {
    const uint32_t bits = (a[i] & keep) ^ turn;
    return flushes && (bits & 0x7f80'0000u) == 0 ? bits & 0x8000'0000u : bits;
  });
}

void sign_f64(Warp& warp, const Op& op, uint32_t mask) {
  const uint64_t* a = warp.src<uint64_t>(op.a);
  const uint64_t top = uint64_t{1} << 63;
  const uint64_t keep = op.flags & kNegates ? ~uint64_t{0} : ~top;
  const uint64_t turn = op.flags & kNegates ? top : 0;
  each_lane(warp.dst<uint64_t>(op.dst), mask, [=](int i) { return (a[i] & keep) ^ turn; });
}

template <class F>
Handler pick_f32(bool ftz, bool sat) {
  if (ftz) return sat ? binary_f32<F, true, true> : binary_f32<F, true, false>;
  return sat ? binary_f32<F, false, true> : binary_f32<F, false, false>;
}

Handler pick_fma(bool ftz, bool sat) {
  if (ftz) return sat ? fma_f32<true, true> : fma_f32<true, false>;
  return sat ? fma_f32<false, true> : fma_f32<false, false>;
}

Handler float_handler(std::string_view opcode, bool single, bool ftz, bool sat) {
  if (opcode == "add") return single ? pick_f32<Add>(ftz, sat) : binary_f64<Add>;
  if (opcode == "sub") return single ? pick_f32<Sub>(ftz, sat) : binary_f64<Sub>;
  if (opcode == "mul") return single ? pick_f32<Mul>(ftz, sat) : binary_f64<Mul>;
  if (opcode == "div") return single ? pick_f32<Div>(ftz, sat) : binary_f64<Div>;
  if (opcode == "fma" || opcode == "mad") return single ? pick_fma(ftz, sat) : fma_f64;
  if (opcode == "min" || opcode == "max") return single ? extreme_f32 : extreme_f64;
  if (opcode == "abs" || opcode == "neg") return single ? sign_f32 : sign_f64;
  return nullptr;
}

uint8_t float_flags(const OpBuilder& b, std::string_view opcode) {
  if (opcode == "abs" || opcode == "neg")
    return static_cast<uint8_t>((opcode == "neg" ? kNegates : 0) | (b.has("ftz") ? kFlushes : 0));
  return static_cast<uint8_t>((opcode == "max" ? kMax : 0) | (b.has("ftz") ? kFtz : 0) |
                              (b.has("nan") ? kNan : 0) | (b.has("xorsign") ? kXorSign : 0) |
                              (b.has("abs") ? kAbs : 0));
}

// The opcodes several types share go to the family of their type.
void decode_by_type(OpBuilder& b) {
  switch (b.type()) {
    case Type::F32:
    case Type::F64:
      return decode_float_arithmetic(b);
    case Type::F16:
    case Type::F16x2:
    case Type::BF16:
    case Type::BF16x2:
      return decode_half_arithmetic(b);
    default:
      return decode_integer_arithmetic(b);
  }
}

constexpr DecodeRow kRows[] = {
    {"add", decode_by_type}, {"sub", decode_by_type}, {"mul", decode_by_type},
    {"mad", decode_by_type}, {"fma", decode_by_type}, {"div", decode_by_type},
    {"abs", decode_by_type}, {"neg", decode_by_type}, {"min", decode_by_type},
    {"max", decode_by_type},
};

}  // namespace

std::span<const DecodeRow> arithmetic_family() { return kRows; }

void decode_float_arithmetic(OpBuilder& b) {
  const std::string_view rounding = b.get("rnd");
  if (!rounding.empty() && rounding != "rn") return decode_rounded_arithmetic(b);
  const std::string_view opcode = b.in.form.opcode();
  const Type type = b.type();
  b.op.kind = type == Type::F32 ? OpClass::Float : OpClass::Double;
  b.op.dst = b.dst(0, type);
  Slot* slots[] = {&b.op.a, &b.op.b, &b.op.c};
  for (size_t i = 1; i < b.operands(); ++i) *slots[i - 1] = b.src(i, type);
  b.op.flags = float_flags(b, opcode);
  b.op.run = float_handler(opcode, type == Type::F32, b.has("ftz"), b.has("sat"));
  if (type == Type::F32 && b.op.flags == 0 && opcode == "min") b.op.run = plain_extreme_f32<false>;
  if (type == Type::F32 && b.op.flags == kMax && opcode == "max")
    b.op.run = plain_extreme_f32<true>;
  if (opcode == "div" && b.has("mode")) {
    b.op.kind = OpClass::Mufu;
    b.op.run = approximate_division(b.has("ftz"));
  }
  if (!b.op.run) b.fail("no floating-point form");
}

}  // namespace linnet::vgpu
