// setp, set, selp, slct, testp and copysign.
#include <array>
#include <cmath>

#include "exec/families.h"
#include "exec/numbers.h"
#include "exec/pick.h"
#include "exec/warp.h"

namespace linnet::vgpu {
namespace {

// Comparisons on ordered numbers; the unordered variants also hold when an operand is NaN.
enum class Compare : uint8_t { Eq, Ne, Lt, Le, Gt, Ge, Num, Nan };

struct CompareWord {
  std::string_view name;
  Compare compare;
  bool unordered;
};

constexpr CompareWord kCompares[] = {
    {"eq", Compare::Eq, false}, {"ne", Compare::Ne, false},   {"lt", Compare::Lt, false},
    {"le", Compare::Le, false}, {"gt", Compare::Gt, false},   {"ge", Compare::Ge, false},
    {"lo", Compare::Lt, false}, {"ls", Compare::Le, false},   {"hi", Compare::Gt, false},
    {"hs", Compare::Ge, false}, {"equ", Compare::Eq, true},   {"neu", Compare::Ne, true},
    {"ltu", Compare::Lt, true}, {"leu", Compare::Le, true},   {"gtu", Compare::Gt, true},
    {"geu", Compare::Ge, true}, {"num", Compare::Num, false}, {"nan", Compare::Nan, false},
};

enum Flags : uint8_t { kUnordered = 1, kFtz = 2, kBoolMask = 12, kAnd = 4, kOr = 8, kXor = 12 };

template <class T>
uint32_t compare_lanes(const T* a, const T* b, Compare compare, bool unordered) {
  const auto nan = [=](int i) { return a[i] != a[i] || b[i] != b[i]; };
  uint32_t result = 0;
  switch (compare) {
    case Compare::Eq:
      result = ballot_lanes([=](int i) { return a[i] == b[i]; });
      break;
    // x != y holds for NaN in C++, but `ne` is an ordered comparison.
    case Compare::Ne:
      result = ballot_lanes([=](int i) { return a[i] < b[i] || a[i] > b[i]; });
      break;
    case Compare::Lt:
      result = ballot_lanes([=](int i) { return a[i] < b[i]; });
      break;
    case Compare::Le:
      result = ballot_lanes([=](int i) { return a[i] <= b[i]; });
      break;
    case Compare::Gt:
      result = ballot_lanes([=](int i) { return a[i] > b[i]; });
      break;
    case Compare::Ge:
      result = ballot_lanes([=](int i) { return a[i] >= b[i]; });
      break;
    case Compare::Num:
      return ballot_lanes([=](int i) { return !nan(i); });
    case Compare::Nan:
      return ballot_lanes(nan);
  }
  return unordered ? result | ballot_lanes(nan) : result;
}

uint32_t combine(const Warp& warp, const Op& op, uint32_t result) {
  if (!(op.flags & kBoolMask)) return result;
  const uint32_t other = warp.pred(op.c) ^ (op.negate_c ? kAllLanes : 0);
  switch (op.flags & kBoolMask) {
    case kAnd:
      return result & other;
    case kOr:
      return result | other;
    default:
      return result ^ other;
  }
}

struct Plain {
  template <class T>
  static const T* values(const Warp& warp, Slot slot, T*, bool) {
    return warp.src<T>(slot);
  }
};

// Short formats are compared as f32; `high` picks the upper half of a pair.
template <float (*Convert)(uint16_t), int Stride, int First>
struct Halves {
  static const float* values(const Warp& warp, Slot slot, float* space, bool) {
    const uint16_t* bits = warp.src<uint16_t>(slot);
    for (int i = 0; i < kLanes; ++i) space[i] = Convert(bits[i * Stride + First]);
    return space;
  }
};

struct Single {
  static const float* values(const Warp& warp, Slot slot, float* space, bool ftz) {
    const float* value = warp.src<float>(slot);
    if (!ftz) return value;
    for (int i = 0; i < kLanes; ++i) space[i] = flush(value[i]);
    return space;
  }
};

template <class T, class Load>
uint32_t evaluate(const Warp& warp, const Op& op) {
  alignas(64) T space_a[kLanes], space_b[kLanes];
  const T* a = Load::values(warp, op.a, space_a, op.flags & kFtz);
  const T* b = Load::values(warp, op.b, space_b, op.flags & kFtz);
  return compare_lanes(a, b, static_cast<Compare>(op.aux), op.flags & kUnordered);
}

template <class T, class Load>
void set_predicate(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t result = evaluate<T, Load>(warp, op);
  const uint32_t first = combine(warp, op, result);
  const uint32_t second = op.dst2 == kNoSlot ? 0 : combine(warp, op, ~result);
  warp.set_pred(op.dst, mask, first);
  if (op.dst2 != kNoSlot) warp.set_pred(op.dst2, mask, second);
}

template <float (*Convert)(uint16_t)>
void set_predicate_pair(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t low = combine(warp, op, evaluate<float, Halves<Convert, 2, 0>>(warp, op));
  const uint32_t high = combine(warp, op, evaluate<float, Halves<Convert, 2, 1>>(warp, op));
  warp.set_pred(op.dst, mask, low);
  warp.set_pred(op.dst2, mask, high);
}

// set: the value for true is in op.imm (all ones, or one in the float format of `dtype`).
template <class T, class Load>
void set_value(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t result = combine(warp, op, evaluate<T, Load>(warp, op));
  const auto value = static_cast<uint32_t>(op.imm);
  if (op.width == 2)
    each_lane(warp.dst<uint16_t>(op.dst), mask,
              [=](int i) { return static_cast<uint16_t>((result >> i) & 1u ? value : 0u); });
  else
    each_lane(warp.dst<uint32_t>(op.dst), mask,
              [=](int i) { return (result >> i) & 1u ? value : 0u; });
}

template <float (*Convert)(uint16_t)>
void set_value_pair(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t low = combine(warp, op, evaluate<float, Halves<Convert, 2, 0>>(warp, op));
  const uint32_t high = combine(warp, op, evaluate<float, Halves<Convert, 2, 1>>(warp, op));
  const auto one = static_cast<uint32_t>(op.imm);
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int i) {
    return ((low >> i) & 1u ? one : 0u) | ((high >> i) & 1u ? one << 16 : 0u);
  });
}

template <template <class, class> class Pick>
Handler compare_handler(Type type) {
  switch (type) {
    case Type::B16:
    case Type::U16:
      return Pick<uint16_t, Plain>::handler();
    case Type::S16:
      return Pick<int16_t, Plain>::handler();
    case Type::B32:
    case Type::U32:
      return Pick<uint32_t, Plain>::handler();
    case Type::S32:
      return Pick<int32_t, Plain>::handler();
    case Type::B64:
    case Type::U64:
      return Pick<uint64_t, Plain>::handler();
    case Type::S64:
      return Pick<int64_t, Plain>::handler();
    case Type::F32:
      return Pick<float, Single>::handler();
    case Type::F64:
      return Pick<double, Plain>::handler();
    case Type::F16:
      return Pick<float, Halves<half_to_float, 1, 0>>::handler();
    case Type::BF16:
      return Pick<float, Halves<bfloat_to_float, 1, 0>>::handler();
    default:
      return nullptr;
  }
}

template <class T, class Load>
struct PickPredicate {
  static Handler handler() { return set_predicate<T, Load>; }
};
template <class T, class Load>
struct PickValue {
  static Handler handler() { return set_value<T, Load>; }
};

void read_comparison(OpBuilder& b) {
  b.op.kind = OpClass::Compare;
  for (const CompareWord& word : kCompares) {
    if (word.name != b.get("cmp")) continue;
    b.op.aux = static_cast<uint16_t>(word.compare);
    if (word.unordered) b.op.flags |= kUnordered;
  }
  if (b.has("ftz")) b.op.flags |= kFtz;
  b.op.a = b.src(1, b.type());
  b.op.b = b.src(2, b.type());
  const std::string_view combining = b.get("bool");
  if (combining.empty() != (b.operands() == 3))
    b.fail("a predicate operand goes with .and/.or/.xor");
  if (combining.empty()) return;
  b.op.flags |= combining == "and" ? kAnd : combining == "or" ? kOr : kXor;
  b.op.c = b.pred_src(b.operand(3), b.op.negate_c);
}

void decode_setp(OpBuilder& b) {
  read_comparison(b);
  const Operand& target = b.operand(0);
  const bool pair = target.kind == OperandKind::Pair;
  b.op.dst = b.pred_dst(pair ? target.elements[0] : target);
  if (pair) b.op.dst2 = b.pred_dst(target.elements[1]);
  if (b.type() == Type::F16x2 || b.type() == Type::BF16x2) {
    if (!pair) b.fail("a packed comparison needs two destinations");
    b.op.run = b.type() == Type::F16x2 ? set_predicate_pair<half_to_float>
                                       : set_predicate_pair<bfloat_to_float>;
    return;
  }
  b.op.run = compare_handler<PickPredicate>(b.type());
}

void decode_set(OpBuilder& b) {
  read_comparison(b);
  const Type dtype = b.type("dtype");
  b.op.dst = b.dst(0, dtype);
  b.op.width = static_cast<uint8_t>(type_bytes(dtype));
  switch (dtype) {
    case Type::F32:
      b.op.imm = 0x3f80'0000;
      break;
    case Type::F16:
    case Type::F16x2:
      b.op.imm = 0x3c00;
      break;
    case Type::BF16:
    case Type::BF16x2:
      b.op.imm = 0x3f80;
      break;
    default:
      b.op.imm = 0xffff'ffff;
      break;
  }
  if (b.type() == Type::F16x2)
    b.op.run = set_value_pair<half_to_float>;
  else if (b.type() == Type::BF16x2)
    b.op.run = set_value_pair<bfloat_to_float>;
  else
    b.op.run = compare_handler<PickValue>(b.type());
}

template <class T>
void select(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  const uint32_t choose = warp.pred(op.c) ^ (op.negate_c ? kAllLanes : 0);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) { return (choose >> i) & 1u ? a[i] : b[i]; });
}

void decode_selp(OpBuilder& b) {
  b.op.kind = OpClass::Compare;
  b.op.dst = b.dst(0, b.type());
  b.op.a = b.src(1, b.type());
  b.op.b = b.src(2, b.type());
  b.op.c = b.pred_src(b.operand(3), b.op.negate_c);
  b.op.run = pick_bits(type_bytes(b.type()), []<class T>() -> Handler { return select<T>; });
}

template <class T, class C>
void select_by_sign(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  const C* c = warp.src<C>(op.c);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) { return c[i] >= C{0} ? a[i] : b[i]; });
}

void decode_slct(OpBuilder& b) {
  const Type dtype = b.type("dtype");
  const bool by_float = b.type("stype") == Type::F32;
  b.op.kind = OpClass::Compare;
  b.op.dst = b.dst(0, dtype);
  b.op.a = b.src(1, dtype);
  b.op.b = b.src(2, dtype);
  b.op.c = b.src(3, b.type("stype"));
  b.op.run = pick_bits(type_bytes(dtype), [by_float]<class T>() -> Handler {
    return by_float ? select_by_sign<T, float> : select_by_sign<T, int32_t>;
  });
}

constexpr std::string_view kTests[] = {"finite",     "infinite", "number",
                                       "notanumber", "normal",   "subnormal"};

template <class T>
bool test_number(T value, int test) {
  switch (test) {
    case 0:
      return std::isfinite(value);
    case 1:
      return std::isinf(value);
    case 2:
      return !std::isnan(value);
    case 3:
      return std::isnan(value);
    case 4:
      return std::isnormal(value);
    default:
      return value != 0 && std::fpclassify(value) == FP_SUBNORMAL;
  }
}

template <class T>
void test_property(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  const int test = op.flags;
  warp.set_pred(op.dst, mask, ballot_lanes([=](int i) { return test_number(a[i], test); }));
}

void decode_testp(OpBuilder& b) {
  b.op.kind = OpClass::Compare;
  b.op.dst = b.pred_dst(b.operand(0));
  b.op.a = b.src(1, b.type());
  for (uint8_t i = 0; i < std::size(kTests); ++i)
    if (kTests[i] == b.get("op")) b.op.flags = i;
  b.op.run = b.type() == Type::F32 ? test_property<float> : test_property<double>;
}

template <class T>
void copy_sign(Warp& warp, const Op& op, uint32_t mask) {
  constexpr T kSign = T{1} << (8 * sizeof(T) - 1);
  const T* a = warp.src<T>(op.a);
  const T* b = warp.src<T>(op.b);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) { return (a[i] & kSign) | (b[i] & ~kSign); });
}

void decode_copysign(OpBuilder& b) {
  b.op.kind = OpClass::Float;
  b.op.dst = b.dst(0, b.type());
  b.op.a = b.src(1, b.type());
  b.op.b = b.src(2, b.type());
  b.op.run = b.type() == Type::F32 ? copy_sign<uint32_t> : copy_sign<uint64_t>;
}

constexpr DecodeRow kRows[] = {
    {"setp", decode_setp}, {"set", decode_set},     {"selp", decode_selp},
    {"slct", decode_slct}, {"testp", decode_testp}, {"copysign", decode_copysign},
};

}  // namespace

std::span<const DecodeRow> compare_family() { return kRows; }

}  // namespace linnet::vgpu
