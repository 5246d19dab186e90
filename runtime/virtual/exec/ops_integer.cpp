// Integer arithmetic: add, sub, mul, mad, div, rem, min, max, carries and dot products.
#include <limits>
#include <type_traits>

#include "exec/families.h"
#include "exec/pick.h"
#include "exec/warp.h"

namespace linnet::vgpu {
namespace {

// Arithmetic wraps: it is done on unsigned numbers wide enough not to be promoted to int.
template <class T>
using Wrap = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
using Double = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

struct Add {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(Wrap<T>(a) + Wrap<T>(b));
  }
};
struct Sub {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(Wrap<T>(a) - Wrap<T>(b));
  }
};
struct MulLo {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(Wrap<T>(a) * Wrap<T>(b));
  }
};
struct MulHi {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>((Double<T>(a) * Double<T>(b)) >> (8 * sizeof(T)));
  }
};
struct Min {
  template <class T>
  static T of(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static T of(T a, T b) {
    return a < b ? b : a;
  }
};
struct MinRelu {
  template <class T>
  static T of(T a, T b) {
    return Max::of<T>(Min::of<T>(a, b), 0);
  }
};
struct MaxRelu {
  template <class T>
  static T of(T a, T b) {
    return Max::of<T>(Max::of<T>(a, b), 0);
  }
};
// Division by zero gives all ones on the device; the smallest number by -1 wraps.
struct Div {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub::of<T>(0, a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct AddSat {
  template <class T>
  static T of(T a, T b) {
    const int64_t sum = int64_t{a} + b;
    return static_cast<T>(std::min<int64_t>(std::max<int64_t>(sum, INT32_MIN), INT32_MAX));
  }
};
struct SubSat {
  template <class T>
  static T of(T a, T b) {
    const int64_t sum = int64_t{a} - b;
    return static_cast<T>(std::min<int64_t>(std::max<int64_t>(sum, INT32_MIN), INT32_MAX));
  }
};
struct Mul24Lo {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(product(a, b));
  }
  template <class T>
  static int64_t product(T a, T b) {
    if (std::is_signed_v<T>)
      return int64_t{static_cast<int32_t>(static_cast<uint32_t>(a) << 8) >> 8} *
             (static_cast<int32_t>(static_cast<uint32_t>(b) << 8) >> 8);
    return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(a) & 0xffffffu} *
                                (static_cast<uint32_t>(b) & 0xffffffu));
  }
};
struct Mul24Hi {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(Mul24Lo::product(a, b) >> 16);
  }
};

template <class T, class F>
void binary(Warp& warp, const Op& op, uint32_t mask) {
  T* dst = warp.dst<T>(op.dst);
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  each_lane(dst, mask, [=](int i) { return F::template of<T>(a[i], b[i]); });
}

// Pairs of 16-bit numbers in a 32-bit register.
template <class T, class F>
void packed_binary(Warp& warp, const Op& op, uint32_t mask) {
  alignas(64) T values[2 * kLanes];
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  for (int i = 0; i < 2 * kLanes; ++i) values[i] = F::template of<T>(a[i], b[i]);
  alignas(64) uint32_t pairs[kLanes];
  std::memcpy(pairs, values, sizeof pairs);
  blend(warp.dst<uint32_t>(op.dst), pairs, mask);
}

template <class T, class F>
void multiply_add(Warp& warp, const Op& op, uint32_t mask) {
  T* dst = warp.dst<T>(op.dst);
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  const T* c = warp.src<T>(op.c);
  each_lane(dst, mask, [=](int i) { return Add::of<T>(F::template of<T>(a[i], b[i]), c[i]); });
}

void multiply_add_hi_sat(Warp& warp, const Op& op, uint32_t mask) {
  const int32_t* a = warp.src<int32_t>(op.a);
  const int32_t* b = warp.src<int32_t>(op.b);
  const int32_t* c = warp.src<int32_t>(op.c);
  each_lane(warp.dst<int32_t>(op.dst), mask,
            [=](int i) { return AddSat::of<int32_t>(MulHi::of<int32_t>(a[i], b[i]), c[i]); });
}

template <class T>
void multiply_wide(Warp& warp, const Op& op, uint32_t mask) {
  using Wide = Double<T>;
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  each_lane(warp.dst<Wide>(op.dst), mask, [=](int i) { return Wide(a[i]) * Wide(b[i]); });
}

template <class T>
void multiply_add_wide(Warp& warp, const Op& op, uint32_t mask) {
  using Wide = Double<T>;
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  const Wide* c = warp.src<Wide>(op.c);
  each_lane(warp.dst<Wide>(op.dst), mask,
            [=](int i) { return Add::of<Wide>(Wide(a[i]) * Wide(b[i]), c[i]); });
}

template <class T>
void sum_of_differences(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  const T* c = warp.src<T>(op.c);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) {
    return Add::of<T>(c[i], a[i] < b[i] ? Sub::of<T>(b[i], a[i]) : Sub::of<T>(a[i], b[i]));
  });
}

template <class T>
void absolute(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  each_lane(warp.dst<T>(op.dst), mask,
            [=](int i) { return a[i] < 0 ? Sub::of<T>(0, a[i]) : a[i]; });
}

template <class T>
void negate(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) { return Sub::of<T>(0, a[i]); });
}

enum CarryFlags : uint8_t { kReadsCarry = 1, kWritesCarry = 2, kSubtracts = 4, kHigh = 8 };

// a + b (+ carry) or a - b (- borrow), exact in the next wider type.
template <class T>
void add_carry(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  T* dst = warp.dst<T>(op.dst);
  uint32_t carry = warp.carry;
  active_lanes(mask, [&](int lane) {
    using Wide = unsigned __int128;
    const Wide in = op.flags & kReadsCarry ? (carry >> lane) & 1u : 0u;
    const Wide sum = op.flags & kSubtracts ? Wide(a[lane]) - Wide(b[lane]) - in
                                           : Wide(a[lane]) + Wide(b[lane]) + in;
    dst[lane] = static_cast<T>(sum);
    const uint32_t out = (sum >> (8 * sizeof(T))) & 1u;
    carry = (carry & ~(1u << lane)) | out << lane;
  });
  if (op.flags & kWritesCarry) warp.carry = carry;
}

template <class T>
void multiply_add_carry(Warp& warp, const Op& op, uint32_t mask) {
  using U = std::make_unsigned_t<T>;
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  const U* c = warp.src<U>(op.c);
  U* dst = warp.dst<U>(op.dst);
  uint32_t carry = warp.carry;
  active_lanes(mask, [&](int lane) {
    const U product = static_cast<U>(op.flags & kHigh ? MulHi::of<T>(a[lane], b[lane])
                                                      : MulLo::of<T>(a[lane], b[lane]));
    const unsigned __int128 in = op.flags & kReadsCarry ? (carry >> lane) & 1u : 0u;
    const unsigned __int128 sum = in + product + c[lane];
    dst[lane] = static_cast<U>(sum);
    carry = (carry & ~(1u << lane)) | (static_cast<uint32_t>(sum >> (8 * sizeof(T))) & 1u) << lane;
  });
  if (op.flags & kWritesCarry) warp.carry = carry;
}

enum DotFlags : uint8_t { kSignedA = 1, kSignedB = 2, kHighHalf = 4 };

int64_t part(uint32_t word, int index, int bits, bool is_signed) {
  const uint32_t value = word >> (index * bits) & ((1u << bits) - 1);
  return is_signed ? static_cast<int32_t>(value << (32 - bits)) >> (32 - bits)
                   : static_cast<int64_t>(value);
}

void dot4(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* a = warp.src<uint32_t>(op.a);
  const uint32_t* b = warp.src<uint32_t>(op.b);
  const uint32_t* c = warp.src<uint32_t>(op.c);
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=, &op](int i) {
    int64_t sum = c[i];
    for (int j = 0; j < 4; ++j)
      sum += part(a[i], j, 8, op.flags & kSignedA) * part(b[i], j, 8, op.flags & kSignedB);
    return static_cast<uint32_t>(sum);
  });
}

void dot2(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* a = warp.src<uint32_t>(op.a);
  const uint32_t* b = warp.src<uint32_t>(op.b);
  const uint32_t* c = warp.src<uint32_t>(op.c);
  const int first = op.flags & kHighHalf ? 2 : 0;
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=, &op](int i) {
    int64_t sum = c[i];
    for (int j = 0; j < 2; ++j)
      sum += part(a[i], j, 16, op.flags & kSignedA) * part(b[i], first + j, 8, op.flags & kSignedB);
    return static_cast<uint32_t>(sum);
  });
}

void sources(OpBuilder& b, Type type, size_t count) {
  Slot* slots[] = {&b.op.a, &b.op.b, &b.op.c};
  for (size_t i = 0; i < count; ++i) *slots[i] = b.src(i + 1, type);
}

template <class F>
void decode_binary(OpBuilder& b) {
  const Type type = b.type();
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, type);
  sources(b, type, 2);
  if (type == Type::U16x2)
    b.op.run = packed_binary<uint16_t, F>;
  else if (type == Type::S16x2)
    b.op.run = packed_binary<int16_t, F>;
  else
    b.op.run = pick_integer(type, []<class T>() -> Handler { return binary<T, F>; });
}

// 32-bit only, for operations that exist for no other width.
template <class F>
void decode_binary32(OpBuilder& b) {
  const Type type = b.type();
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, type);
  sources(b, type, 2);
  if (type == Type::S16x2)
    b.op.run = packed_binary<int16_t, F>;
  else
    b.op.run = type == Type::S32 ? binary<int32_t, F> : binary<uint32_t, F>;
}

void decode_carry(OpBuilder& b) {
  const std::string_view opcode = b.in.form.opcode();
  const Type type = b.type();
  b.op.kind = OpClass::Integer;
  if (opcode == "addc" || opcode == "subc" || opcode == "madc") b.op.flags |= kReadsCarry;
  if (b.has("cc")) b.op.flags |= kWritesCarry;
  if (opcode.starts_with("sub")) b.op.flags |= kSubtracts;
  if (b.get("mode") == "hi") b.op.flags |= kHigh;
  b.op.dst = b.dst(0, type);
  if (opcode.starts_with("mad")) {
    sources(b, type, 3);
    b.op.run = pick_integer(type, []<class T>() -> Handler { return multiply_add_carry<T>; });
  } else {
    sources(b, type, 2);
    b.op.run = type_bytes(type) == 4 ? add_carry<uint32_t> : add_carry<uint64_t>;
  }
}

void decode_multiply(OpBuilder& b) {
  const bool adds = b.in.form.opcode() == "mad";
  const std::string_view mode = b.get("mode");
  const Type type = b.type();
  b.op.kind = OpClass::Integer;
  sources(b, type, 2);
  if (mode == "wide") {
    const int wide = 2 * type_bytes(type);
    b.op.dst = b.dst(b.operand(0), wide);
    if (adds) b.op.c = b.src(3, wide == 4 ? Type::U32 : Type::U64);
    b.op.run = pick_integer(type, [adds]<class T>() -> Handler {
      if constexpr (sizeof(T) == 8)
        return nullptr;
      else
        return adds ? multiply_add_wide<T> : multiply_wide<T>;
    });
    return;
  }
  b.op.dst = b.dst(0, type);
  const bool high = mode == "hi";
  if (adds) b.op.c = b.src(3, type);
  if (b.has("sat")) {
    b.op.run = multiply_add_hi_sat;
  } else if (adds) {
    b.op.run = pick_integer(type, [high]<class T>() -> Handler {
      return high ? multiply_add<T, MulHi> : multiply_add<T, MulLo>;
    });
  } else {
    b.op.run = pick_integer(
        type, [high]<class T>() -> Handler { return high ? binary<T, MulHi> : binary<T, MulLo>; });
  }
}

void decode_24(OpBuilder& b) {
  const bool is_signed = b.type() == Type::S32;
  const bool high = b.get("mode") == "hi";
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, b.type());
  if (b.in.form.opcode() == "mul24") {
    sources(b, b.type(), 2);
    b.op.run = is_signed ? (high ? binary<int32_t, Mul24Hi> : binary<int32_t, Mul24Lo>)
                         : (high ? binary<uint32_t, Mul24Hi> : binary<uint32_t, Mul24Lo>);
  } else {
    sources(b, b.type(), 3);
    b.op.run = is_signed
                   ? (high ? multiply_add<int32_t, Mul24Hi> : multiply_add<int32_t, Mul24Lo>)
                   : (high ? multiply_add<uint32_t, Mul24Hi> : multiply_add<uint32_t, Mul24Lo>);
  }
}

void decode_sad(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, b.type());
  sources(b, b.type(), 3);
  b.op.run = pick_integer(b.type(), []<class T>() -> Handler { return sum_of_differences<T>; });
}

void decode_unary(OpBuilder& b) {
  const bool is_abs = b.in.form.opcode() == "abs";
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, b.type());
  sources(b, b.type(), 1);
  b.op.run = pick_integer(b.type(), [is_abs]<class T>() -> Handler {
    if constexpr (std::is_signed_v<T>)
      return is_abs ? absolute<T> : negate<T>;
    else
      return nullptr;
  });
}

void decode_dot(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  if (b.type("atype") == Type::S32) b.op.flags |= kSignedA;
  if (b.type("btype") == Type::S32) b.op.flags |= kSignedB;
  if (b.get("mode") == "hi") b.op.flags |= kHighHalf;
  b.op.dst = b.dst(0, Type::B32);
  sources(b, Type::B32, 3);
  b.op.run = b.in.form.opcode() == "dp4a" ? dot4 : dot2;
}

constexpr DecodeRow kRows[] = {
    {"rem", decode_binary<Rem>}, {"addc", decode_carry}, {"subc", decode_carry},
    {"madc", decode_carry},      {"mul24", decode_24},   {"mad24", decode_24},
    {"sad", decode_sad},         {"dp4a", decode_dot},   {"dp2a", decode_dot},
};

}  // namespace

std::span<const DecodeRow> integer_family() { return kRows; }

void decode_integer_arithmetic(OpBuilder& b) {
  const std::string_view opcode = b.in.form.opcode();
  if (b.has("cc")) return decode_carry(b);
  if (opcode == "add") return b.has("sat") ? decode_binary32<AddSat>(b) : decode_binary<Add>(b);
  if (opcode == "sub") return b.has("sat") ? decode_binary32<SubSat>(b) : decode_binary<Sub>(b);
  if (opcode == "min") return b.has("relu") ? decode_binary32<MinRelu>(b) : decode_binary<Min>(b);
  if (opcode == "max") return b.has("relu") ? decode_binary32<MaxRelu>(b) : decode_binary<Max>(b);
  if (opcode == "div") return decode_binary<Div>(b);
  if (opcode == "mul" || opcode == "mad") return decode_multiply(b);
  if (opcode == "abs" || opcode == "neg") return decode_unary(b);
  b.fail("no integer form");
}

}  // namespace linnet::vgpu
