// Bit operations: logic, shifts, permutes, field extraction and counting.
#include <bit>
#include <type_traits>

#include "exec/families.h"
#include "exec/pick.h"
#include "exec/warp.h"

namespace linnet::vgpu {
namespace {

struct And {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <class T, class F>
void binary(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) { return F::template of<T>(a[i], b[i]); });
}

enum PredFlags : uint8_t { kNegateA = 1, kNegateB = 2 };

template <class F>
void pred_binary(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t a = warp.pred(op.a) ^ (op.flags & kNegateA ? kAllLanes : 0);
  const uint32_t b = warp.pred(op.b) ^ (op.flags & kNegateB ? kAllLanes : 0);
  warp.set_pred(op.dst, mask, F::template of<uint32_t>(a, b));
}

template <class F>
void decode_logic(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  if (b.type() == Type::Pred) {
    bool negate_a = false, negate_b = false;
    b.op.dst = b.pred_dst(b.operand(0));
    b.op.a = b.pred_src(b.operand(1), negate_a);
    b.op.b = b.pred_src(b.operand(2), negate_b);
    b.op.flags = static_cast<uint8_t>((negate_a ? kNegateA : 0) | (negate_b ? kNegateB : 0));
    b.op.run = pred_binary<F>;
    return;
  }
  b.op.dst = b.dst(0, b.type());
  b.op.a = b.src(1, b.type());
  b.op.b = b.src(2, b.type());
  b.op.run = pick_bits(type_bytes(b.type()), []<class T>() -> Handler { return binary<T, F>; });
}

template <class T>
void invert(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) { return static_cast<T>(~a[i]); });
}

void pred_invert(Warp& warp, const Op& op, uint32_t mask) {
  warp.set_pred(op.dst, mask, ~warp.pred(op.a));
}

template <class T>
void logical_not(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) { return static_cast<T>(a[i] == 0); });
}

void decode_not(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  const bool logical = b.in.form.opcode() == "cnot";
  if (b.type() == Type::Pred) {
    bool negated = false;
    b.op.dst = b.pred_dst(b.operand(0));
    b.op.a = b.pred_src(b.operand(1), negated);
    if (negated) b.fail("'!' on the operand of not");
    b.op.run = pred_invert;
    return;
  }
  b.op.dst = b.dst(0, b.type());
  b.op.a = b.src(1, b.type());
  b.op.run = pick_bits(type_bytes(b.type()), [logical]<class T>() -> Handler {
    return logical ? logical_not<T> : invert<T>;
  });
}

// Shift amounts are clamped, not taken modulo the width.
template <class T>
void shift_left(Warp& warp, const Op& op, uint32_t mask) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  const T* a = warp.src<T>(op.a);
  const uint32_t* b = warp.src<uint32_t>(op.b);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) {
    return static_cast<T>(b[i] >= kBits ? T{0} : static_cast<T>(a[i] << (b[i] & (kBits - 1))));
  });
}

template <class T>
void shift_right(Warp& warp, const Op& op, uint32_t mask) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  const T* a = warp.src<T>(op.a);
  const uint32_t* b = warp.src<uint32_t>(op.b);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) {
    const T beyond = std::is_signed_v<T> ? static_cast<T>(a[i] >> (kBits - 1)) : T{0};
    return b[i] >= kBits ? beyond : static_cast<T>(a[i] >> (b[i] & (kBits - 1)));
  });
}

void decode_shift(OpBuilder& b) {
  const Type type = b.type();
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, type);
  b.op.a = b.src(1, type);
  b.op.b = b.src(2, Type::U32);
  if (b.in.form.opcode() == "shl")
    b.op.run = pick_bits(type_bytes(type), []<class T>() -> Handler { return shift_left<T>; });
  else if (is_signed(type))
    b.op.run = pick_integer(type, []<class T>() -> Handler { return shift_right<T>; });
  else
    b.op.run = pick_bits(type_bytes(type), []<class T>() -> Handler { return shift_right<T>; });
}

enum FunnelFlags : uint8_t { kLeft = 1, kClamp = 2 };

void funnel_shift(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* a = warp.src<uint32_t>(op.a);
  const uint32_t* b = warp.src<uint32_t>(op.b);
  const uint32_t* c = warp.src<uint32_t>(op.c);
  const bool left = op.flags & kLeft;
  const bool clamp = op.flags & kClamp;
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int i) {
    const uint32_t n = clamp ? (c[i] < 32 ? c[i] : 32) : c[i] & 31;
    const uint64_t both = uint64_t{b[i]} << 32 | a[i];
    return static_cast<uint32_t>(left ? (both << n) >> 32 : both >> n);
  });
}

void decode_funnel(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, Type::B32);
  b.op.a = b.src(1, Type::B32);
  b.op.b = b.src(2, Type::B32);
  b.op.c = b.src(3, Type::U32);
  b.op.flags = static_cast<uint8_t>((b.get("dir") == "l" ? kLeft : 0) |
                                    (b.get("mode") == "clamp" ? kClamp : 0));
  b.op.run = funnel_shift;
}

// Sum of the minterms the table selects.
void lookup3(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* a = warp.src<uint32_t>(op.a);
  const uint32_t* b = warp.src<uint32_t>(op.b);
  const uint32_t* c = warp.src<uint32_t>(op.c);
  uint32_t on[8];
  for (int j = 0; j < 8; ++j) on[j] = op.imm >> j & 1 ? kAllLanes : 0u;
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int i) {
    const uint32_t not_a = ~a[i] & ((~b[i] & ((~c[i] & on[0]) | (c[i] & on[1]))) |
                                    (b[i] & ((~c[i] & on[2]) | (c[i] & on[3]))));
    const uint32_t with_a = a[i] & ((~b[i] & ((~c[i] & on[4]) | (c[i] & on[5]))) |
                                    (b[i] & ((~c[i] & on[6]) | (c[i] & on[7]))));
    return not_a | with_a;
  });
  if (op.dst2 == kNoSlot) return;
  const uint32_t* result = warp.dst<uint32_t>(op.dst);
  const uint32_t nonzero = ballot_lanes([=](int i) { return result[i] != 0; });
  const uint32_t other = warp.pred(op.d) ^ (op.negate_c ? kAllLanes : 0);
  warp.set_pred(op.dst2, mask, op.flags ? nonzero & other : nonzero | other);
}

void decode_lookup3(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  const Operand& target = b.operand(0);
  const bool with_pred = b.has("bool");
  if (with_pred != (target.kind == OperandKind::Pair)) b.fail("destination must be d|p");
  b.op.dst = b.dst(with_pred ? target.elements[0] : target, 4);
  b.op.a = b.src(1, Type::B32);
  b.op.b = b.src(2, Type::B32);
  b.op.c = b.src(3, Type::B32);
  b.op.imm = static_cast<int64_t>(b.immediate(4) & 0xff);
  if (with_pred) {
    b.op.dst2 = b.pred_dst(target.elements[1]);
    b.op.d = b.pred_src(b.operand(5), b.op.negate_c);
    b.op.flags = b.get("bool") == "and";
  }
  b.op.run = lookup3;
}

uint32_t permute_selector(uint32_t selector, std::string_view mode) {
  const uint32_t n = selector & 3;
  const auto codes = [](uint32_t d, uint32_t c, uint32_t b, uint32_t a) {
    return d << 12 | c << 8 | b << 4 | a;
  };
  if (mode == "f4e") return codes(n + 3, n + 2, n + 1, n);
  if (mode == "b4e") return codes((n + 5) & 7, (n + 6) & 7, (n + 7) & 7, n);
  if (mode == "rc8") return codes(n, n, n, n);
  if (mode == "ecl") return codes(3, n > 2 ? n : 2, n > 1 ? n : 1, n);
  if (mode == "ecr") return codes(n, n < 2 ? n : 2, n < 1 ? n : 1, 0);
  const uint32_t low = n & 1 ? 2 : 0;  // rc16
  return codes(low + 1, low, low + 1, low);
}

constexpr std::string_view kPermuteModes[] = {"", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};

void permute(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* a = warp.src<uint32_t>(op.a);
  const uint32_t* b = warp.src<uint32_t>(op.b);
  const uint32_t* c = warp.src<uint32_t>(op.c);
  const std::string_view mode = kPermuteModes[op.flags];
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int i) {
    const uint64_t both = uint64_t{b[i]} << 32 | a[i];
    const uint32_t selector = mode.empty() ? c[i] : permute_selector(c[i], mode);
    uint32_t result = 0;
    for (int j = 0; j < 4; ++j) {
      const uint32_t code = selector >> (4 * j) & 0xf;
      uint32_t byte = static_cast<uint32_t>(both >> (8 * (code & 7))) & 0xff;
      if (code & 8) byte = byte & 0x80 ? 0xff : 0;
      result |= byte << (8 * j);
    }
    return result;
  });
}

void decode_permute(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, Type::B32);
  b.op.a = b.src(1, Type::B32);
  b.op.b = b.src(2, Type::B32);
  b.op.c = b.src(3, Type::B32);
  for (uint8_t i = 0; i < std::size(kPermuteModes); ++i)
    if (kPermuteModes[i] == b.get("mode")) b.op.flags = i;
  b.op.run = permute;
}

template <class T>
void count_ones(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  each_lane(warp.dst<uint32_t>(op.dst), mask,
            [=](int i) { return static_cast<uint32_t>(std::popcount(a[i])); });
}

template <class T>
void leading_zeros(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  each_lane(warp.dst<uint32_t>(op.dst), mask,
            [=](int i) { return static_cast<uint32_t>(std::countl_zero(a[i])); });
}

// Position of the most significant bit that differs from the sign; -1 when there is none.
template <class T>
void find_bit(Warp& warp, const Op& op, uint32_t mask) {
  using U = std::make_unsigned_t<T>;
  const T* a = warp.src<T>(op.a);
  const bool as_shift = op.flags;
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int i) {
    const U value = static_cast<U>(std::is_signed_v<T> && a[i] < 0 ? ~a[i] : a[i]);
    if (value == 0) return kAllLanes;
    const auto zeros = static_cast<uint32_t>(std::countl_zero(value));
    return as_shift ? zeros : static_cast<uint32_t>(8 * sizeof(T)) - 1 - zeros;
  });
}

template <class T>
void reverse_bits(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) {
    T value = a[i], result = 0;
    for (size_t bit = 0; bit < 8 * sizeof(T); ++bit, value >>= 1)
      result = static_cast<T>(result << 1 | (value & 1));
    return result;
  });
}

void decode_count(OpBuilder& b) {
  const std::string_view opcode = b.in.form.opcode();
  const bool wide = type_bytes(b.type()) == 8;
  b.op.kind = OpClass::Integer;
  b.op.a = b.src(1, b.type());
  b.op.flags = b.has("shiftamt");
  if (opcode == "brev") {
    b.op.dst = b.dst(0, b.type());
    b.op.run = wide ? reverse_bits<uint64_t> : reverse_bits<uint32_t>;
    return;
  }
  b.op.dst = b.dst(0, Type::U32);
  if (opcode == "popc")
    b.op.run = wide ? count_ones<uint64_t> : count_ones<uint32_t>;
  else if (opcode == "clz")
    b.op.run = wide ? leading_zeros<uint64_t> : leading_zeros<uint32_t>;
  else
    b.op.run = pick_integer(b.type(), []<class T>() -> Handler { return find_bit<T>; });
}

template <class T>
void extract_field(Warp& warp, const Op& op, uint32_t mask) {
  using U = std::make_unsigned_t<T>;
  constexpr uint32_t kBits = 8 * sizeof(T);
  const T* a = warp.src<T>(op.a);
  const uint32_t* b = warp.src<uint32_t>(op.b);
  const uint32_t* c = warp.src<uint32_t>(op.c);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) -> T {
    const uint32_t position = b[i] & 0xff;
    const uint32_t length = c[i] & 0xff;
    if (length == 0) return 0;
    const uint32_t last = std::min(position + length - 1, kBits - 1);
    const bool sign = std::is_signed_v<T> && (static_cast<U>(a[i]) >> last & 1);
    U field = position < kBits ? static_cast<U>(a[i]) >> position : U{0};
    if (length < kBits) field &= (U{1} << length) - 1;
    const uint32_t valid = position < kBits ? std::min(length, kBits - position) : 0;
    if (sign && valid < kBits) field |= ~U{0} << valid;
    return static_cast<T>(field);
  });
}

void decode_extract(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, b.type());
  b.op.a = b.src(1, b.type());
  b.op.b = b.src(2, Type::U32);
  b.op.c = b.src(3, Type::U32);
  b.op.run = pick_integer(b.type(), []<class T>() -> Handler { return extract_field<T>; });
}

template <class T>
void insert_field(Warp& warp, const Op& op, uint32_t mask) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  const uint32_t* c = warp.src<uint32_t>(op.c);
  const uint32_t* d = warp.src<uint32_t>(op.d);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) -> T {
    const uint32_t position = c[i] & 0xff;
    const uint32_t length = d[i] & 0xff;
    if (position >= kBits || length == 0) return b[i];
    const T ones = length >= kBits ? ~T{0} : (T{1} << length) - 1;
    const T field = ones << position;
    return (b[i] & ~field) | ((a[i] << position) & field);
  });
}

void decode_insert(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, b.type());
  b.op.a = b.src(1, b.type());
  b.op.b = b.src(2, b.type());
  b.op.c = b.src(3, Type::U32);
  b.op.d = b.src(4, Type::U32);
  b.op.run = type_bytes(b.type()) == 8 ? insert_field<uint64_t> : insert_field<uint32_t>;
}

enum MaskFlags : uint8_t { kWrapMask = 1, kSigned = 2 };

void make_mask(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* a = warp.src<uint32_t>(op.a);
  const uint32_t* b = warp.src<uint32_t>(op.b);
  const bool wrap = op.flags & kWrapMask;
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int i) {
    const uint32_t position = wrap ? a[i] & 31 : std::min(a[i], 32u);
    const uint32_t length = wrap ? b[i] & 31 : std::min(b[i], 32u);
    const uint64_t ones = (uint64_t{1} << length) - 1;
    return static_cast<uint32_t>(ones << position);
  });
}

void extend_field(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* a = warp.src<uint32_t>(op.a);
  const uint32_t* b = warp.src<uint32_t>(op.b);
  const bool wrap = op.flags & kWrapMask;
  const bool extends_sign = op.flags & kSigned;
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int i) {
    const uint32_t n = wrap ? b[i] & 31 : std::min(b[i], 32u);
    if (n == 0) return 0u;
    const uint32_t shift = 32 - n;
    const uint32_t high = a[i] << shift;
    return extends_sign ? static_cast<uint32_t>(static_cast<int32_t>(high) >> shift)
                        : high >> shift;
  });
}

void decode_mask(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, Type::B32);
  b.op.a = b.src(1, Type::B32);
  b.op.b = b.src(2, Type::U32);
  b.op.flags = static_cast<uint8_t>((b.get("mode") == "wrap" ? kWrapMask : 0) |
                                    (b.type() == Type::S32 ? kSigned : 0));
  b.op.run = b.in.form.opcode() == "bmsk" ? make_mask : extend_field;
}

// The n-th set bit from a base position, upwards or downwards.
void find_nth_set(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* bits = warp.src<uint32_t>(op.a);
  const uint32_t* base = warp.src<uint32_t>(op.b);
  const int32_t* offset = warp.src<int32_t>(op.c);
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int i) -> uint32_t {
    if (base[i] > 31) return kAllLanes;
    if (offset[i] == 0) return bits[i] >> base[i] & 1 ? base[i] : kAllLanes;
    const int step = offset[i] > 0 ? 1 : -1;
    int wanted = offset[i] > 0 ? offset[i] : -offset[i];
    for (int at = static_cast<int>(base[i]); at >= 0 && at < 32; at += step)
      if ((bits[i] >> at & 1) && --wanted == 0) return static_cast<uint32_t>(at);
    return kAllLanes;
  });
}

void decode_nth(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, Type::B32);
  b.op.a = b.src(1, Type::B32);
  b.op.b = b.src(2, Type::B32);
  b.op.c = b.src(3, Type::S32);
  b.op.run = find_nth_set;
}

constexpr DecodeRow kRows[] = {
    {"and", decode_logic<And>}, {"or", decode_logic<Or>}, {"xor", decode_logic<Xor>},
    {"not", decode_not},        {"cnot", decode_not},     {"shl", decode_shift},
    {"shr", decode_shift},      {"shf", decode_funnel},   {"lop3", decode_lookup3},
    {"prmt", decode_permute},   {"popc", decode_count},   {"clz", decode_count},
    {"bfind", decode_count},    {"brev", decode_count},   {"bfe", decode_extract},
    {"bfi", decode_insert},     {"bmsk", decode_mask},    {"szext", decode_mask},
    {"fns", decode_nth},
};

}  // namespace

std::span<const DecodeRow> bits_family() { return kRows; }

}  // namespace linnet::vgpu
