// f32 and f64 arithmetic rounded towards zero, down or up, through the host's rounding mode.
// This file is compiled with -frounding-math.
#include <cfenv>
#include <cmath>

#include "exec/families.h"
#include "exec/numbers.h"
#include "exec/warp.h"

namespace linnet::vgpu {
namespace {

enum Flags : uint8_t { kModeMask = 3, kFtz = 4, kSat = 8 };

class HostRounding {
 public:
  explicit HostRounding(uint8_t mode) {
    constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(kModes[mode & kModeMask]);
  }
  ~HostRounding() { std::fesetround(FE_TONEAREST); }
};

struct Add {
  template <class T>
  static T of(T a, T b, T) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  static T of(T a, T b, T) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  static T of(T a, T b, T) {
    return a * b;
  }
};
struct Div {
  template <class T>
  static T of(T a, T b, T) {
    return a / b;
  }
};
struct Fma {
  template <class T>
  static T of(T a, T b, T c) {
    return std::fma(a, b, c);
  }
};
struct Reciprocal {
  template <class T>
  static T of(T a, T, T) {
    return T(1) / a;
  }
};
struct Root {
  template <class T>
  static T of(T a, T, T) {
    return std::sqrt(a);
  }
};

float finish(float value, uint8_t flags) {
  value = canonical(value);
  if (flags & kFtz) value = flush(value);
  return flags & kSat ? saturate(value) : value;
}
double finish(double value, uint8_t) {
  return value != value ? std::bit_cast<double>(uint64_t{0x7fff'ffff'ffff'ffff}) : value;
}
float begin(float value, uint8_t flags) { return flags & kFtz ? flush(value) : value; }
double begin(double value, uint8_t) { return value; }

template <class T, class F>
void rounded(Warp& warp, const Op& op, uint32_t mask) {
  const HostRounding rounding(op.flags);
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  const T* c = warp.src<T>(op.c);
  T* dst = warp.dst<T>(op.dst);
  active_lanes(mask, [&](int lane) {
    // volatile keeps the operation between the changes of the rounding mode
    volatile T x = begin(a[lane], op.flags), y = begin(b[lane], op.flags),
               z = begin(c[lane], op.flags);
    volatile T result = F::template of<T>(x, y, z);
    dst[lane] = finish(T(result), op.flags);
  });
}

template <class F>
Handler pick(Type type) {
  return type == Type::F32 ? rounded<float, F> : rounded<double, F>;
}

Handler rounded_handler(std::string_view opcode, Type type) {
  if (opcode == "add") return pick<Add>(type);
  if (opcode == "sub") return pick<Sub>(type);
  if (opcode == "mul") return pick<Mul>(type);
  if (opcode == "div") return pick<Div>(type);
  if (opcode == "fma" || opcode == "mad") return pick<Fma>(type);
  if (opcode == "rcp") return pick<Reciprocal>(type);
  if (opcode == "sqrt") return pick<Root>(type);
  return nullptr;
}

}  // namespace

void decode_rounded_arithmetic(OpBuilder& b) {
  const Type type = b.type();
  const std::string_view rounding = b.get("rnd");
  b.op.kind = type == Type::F32 ? OpClass::Float : OpClass::Double;
  b.op.dst = b.dst(0, type);
  b.op.a = b.op.b = b.op.c = b.src(1, type);
  if (b.operands() > 2) b.op.b = b.src(2, type);
  if (b.operands() > 3) b.op.c = b.src(3, type);
  const int mode = rounding == "rz" ? 1 : rounding == "rm" ? 2 : rounding == "rp" ? 3 : 0;
  b.op.flags = static_cast<uint8_t>(mode | (b.has("ftz") ? kFtz : 0) | (b.has("sat") ? kSat : 0));
  b.op.run = rounded_handler(b.in.form.opcode(), type);
  if (!b.op.run) b.fail("no rounded form");
}

}  // namespace linnet::vgpu
