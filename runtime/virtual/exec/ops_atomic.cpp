// atom and red: read-modify-write on global and shared memory.
#include <cmath>

#include "exec/families.h"
#include "exec/memory_access.h"
#include "exec/numbers.h"

namespace linnet::vgpu {
namespace {

enum class Rmw : uint8_t { And, Or, Xor, Cas, Exch, Add, Inc, Dec, Min, Max };

constexpr std::string_view kNames[] = {"and", "or",  "xor", "cas", "exch",
                                       "add", "inc", "dec", "min", "max"};

// How the bits are understood.
enum class Number : uint8_t { Unsigned, Signed, F16, F16x2, BF16, BF16x2, F32, F64 };

template <class T>
T integer_result(Rmw rmw, bool is_signed_value, T old, T a, T b) {
  using S = std::make_signed_t<T>;
  switch (rmw) {
    case Rmw::And:
      return old & a;
    case Rmw::Or:
      return old | a;
    case Rmw::Xor:
      return old ^ a;
    case Rmw::Cas:
      return old == a ? b : old;
    case Rmw::Exch:
      return a;
    case Rmw::Add:
      return static_cast<T>(old + a);
    case Rmw::Inc:
      return old >= a ? T{0} : static_cast<T>(old + 1);
    case Rmw::Dec:
      return old == 0 || old > a ? a : static_cast<T>(old - 1);
    case Rmw::Min:
      return is_signed_value ? (static_cast<S>(a) < static_cast<S>(old) ? a : old)
                             : std::min(a, old);
    case Rmw::Max:
      return is_signed_value ? (static_cast<S>(a) > static_cast<S>(old) ? a : old)
                             : std::max(a, old);
  }
  return old;
}

template <float (*Decode)(uint16_t), uint16_t (*Encode)(float)>
uint16_t half_result(Rmw rmw, uint16_t old, uint16_t a) {
  const float x = Decode(old), y = Decode(a);
  if (rmw == Rmw::Add) return Encode(x + y);
  if (x != x) return a;
  if (y != y) return old;
  return (rmw == Rmw::Min) == (y < x) ? a : old;
}

uint64_t halves_result(Rmw rmw, Number number, uint64_t old, uint64_t a) {
  const bool bfloat = number == Number::BF16 || number == Number::BF16x2;
  const int count = number == Number::F16x2 || number == Number::BF16x2 ? 2 : 1;
  uint64_t result = 0;
  for (int i = 0; i < count; ++i) {
    const auto x = static_cast<uint16_t>(old >> (16 * i));
    const auto y = static_cast<uint16_t>(a >> (16 * i));
    const uint16_t z = bfloat ? half_result<bfloat_to_float, bfloat_from_float>(rmw, x, y)
                              : half_result<half_to_float, half_from_float>(rmw, x, y);
    result |= uint64_t{z} << (16 * i);
  }
  return result;
}

template <class T>
T combine(Rmw rmw, Number number, T old, T a, T b) {
  if (number == Number::Unsigned || number == Number::Signed || rmw == Rmw::Exch)
    return integer_result<T>(rmw, number == Number::Signed, old, a, b);
  if constexpr (sizeof(T) == 8) {
    return std::bit_cast<T>(std::bit_cast<double>(old) + std::bit_cast<double>(a));
  } else {
    if constexpr (sizeof(T) == 4) {
      // f32 atomics on global memory flush subnormals on no current device.
      if (number == Number::F32)
        return std::bit_cast<T>(canonical(std::bit_cast<float>(old) + std::bit_cast<float>(a)));
    }
    return static_cast<T>(halves_result(rmw, number, old, a));
  }
}

// Other host threads run other CTAs: global memory needs real atomics.
template <class T>
T update(uint8_t* host, Rmw rmw, Number number, T a, T b) {
  T* word = reinterpret_cast<T*>(host);
  T old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, combine(rmw, number, old, a, b), false,
                                      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return old;
}

template <class T>
void atomic(Warp& warp, const Op& op, uint32_t mask) {
  LaneAccess access;
  access.mask = mask;
  access.bytes = sizeof(T) * op.vector;
  access.kind = Access::Atomic;
  gather_addresses(warp, op, access.address);
  GlobalShadow* shadow = warp.launch.shadow.get();
  if (shadow) {
    shadow->acquire(warp.cta.linear);
    if (op.width) shadow->fence(warp.cta.linear);
  }
  resolve(warp, op, static_cast<Space>(op.target), access);
  const auto rmw = static_cast<Rmw>(op.flags & 15);
  const auto number = static_cast<Number>(op.flags >> 4);
  const uint32_t* values = warp.list(op);
  const T* b = op.c == kNoSlot ? nullptr : warp.src<T>(op.c);
  T* dst = op.dst == kNoSlot ? nullptr : warp.dst<T>(op.dst);
  active_lanes(mask, [&](int lane) {
    for (uint32_t v = 0; v < op.vector; ++v) {
      const T a = warp.src<T>(values[v])[lane];
      const T old =
          update<T>(access.host[lane] + v * sizeof(T), rmw, number, a, b ? b[lane] : T{0});
      if (dst) dst[lane] = old;
    }
  });
}

Number number_of(Type type) {
  switch (type) {
    case Type::S32:
    case Type::S64:
      return Number::Signed;
    case Type::F16:
      return Number::F16;
    case Type::F16x2:
      return Number::F16x2;
    case Type::BF16:
      return Number::BF16;
    case Type::BF16x2:
      return Number::BF16x2;
    case Type::F32:
      return Number::F32;
    case Type::F64:
      return Number::F64;
    default:
      return Number::Unsigned;
  }
}

void decode_atomic(OpBuilder& b) {
  const bool returns = b.in.form.opcode() == "atom";
  const size_t at = returns ? 1 : 0;
  const Type type = b.type();
  const std::string_view space = b.get("space");
  const Space where = space == "global"             ? Space::Global
                      : space.starts_with("shared") ? Space::Shared
                                                    : Space::Generic;
  b.op.kind = OpClass::Atomic;
  b.address(b.operand(at), where);
  b.op.target = static_cast<int32_t>(where);
  b.op.vector = b.has("vec") ? static_cast<uint8_t>(b.get("vec")[1] - '0') : 1;
  if (returns) b.op.dst = b.dst(0, type);
  b.list_src(b.operand(at + 1), type, b.op.vector);
  const std::string_view name = b.get("op");
  size_t index = 0;
  while (kNames[index] != name) ++index;
  if (static_cast<Rmw>(index) == Rmw::Cas) b.op.c = b.src(at + 2, type);
  const std::string_view sem = b.get("sem");
  b.op.width = sem == "release" || sem == "acq_rel";
  b.op.flags = static_cast<uint8_t>(index | static_cast<size_t>(number_of(type)) << 4);
  switch (type_bytes(type)) {
    case 2:
      b.op.run = atomic<uint16_t>;
      break;
    case 4:
      b.op.run = atomic<uint32_t>;
      break;
    case 8:
      b.op.run = atomic<uint64_t>;
      break;
    default:
      b.fail("128-bit atomics are not implemented");
  }
}

constexpr DecodeRow kRows[] = {{"atom", decode_atomic}, {"red", decode_atomic}};

}  // namespace

std::span<const DecodeRow> atomic_family() { return kRows; }

}  // namespace linnet::vgpu
