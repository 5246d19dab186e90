// cvt and cvt.pack: every pair of number formats, with rounding, saturation and flushing.
#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/families.h"
#include "exec/numbers.h"
#include "exec/warp.h"

namespace linnet::vgpu {
namespace {

// Everything a conversion needs to know; kept in the op's list as plain words.
struct Conversion {
  Type from = Type::None, to = Type::None;
  int from_bytes = 0, to_bytes = 0;  // of the registers
  Rounding rounding = Rounding::Nearest;
  bool to_integral = false;  // .rni and friends
  bool ftz = false, sat = false, satfinite = false, relu = false;

  uint32_t packed() const {
    return static_cast<uint32_t>(from) | static_cast<uint32_t>(to) << 5 |
           static_cast<uint32_t>(rounding) << 10 | static_cast<uint32_t>(to_integral) << 13 |
           static_cast<uint32_t>(ftz) << 14 | static_cast<uint32_t>(sat) << 15 |
           static_cast<uint32_t>(satfinite) << 16 | static_cast<uint32_t>(relu) << 17 |
           static_cast<uint32_t>(from_bytes) << 18 | static_cast<uint32_t>(to_bytes) << 23;
  }
  static Conversion unpack(uint32_t word) {
    Conversion c;
    c.from = static_cast<Type>(word & 31);
    c.to = static_cast<Type>(word >> 5 & 31);
    c.rounding = static_cast<Rounding>(word >> 10 & 7);
    c.to_integral = word >> 13 & 1;
    c.ftz = word >> 14 & 1;
    c.sat = word >> 15 & 1;
    c.satfinite = word >> 16 & 1;
    c.relu = word >> 17 & 1;
    c.from_bytes = static_cast<int>(word >> 18 & 31);
    c.to_bytes = static_cast<int>(word >> 23 & 31);
    return c;
  }
};

uint64_t load_bits(const uint8_t* lanes, int lane, int register_bytes, int value_bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, lanes + lane * register_bytes, static_cast<size_t>(value_bytes));
  return bits;
}

// Integers are widened to the register by their own sign.
void store_bits(uint8_t* lanes, int lane, int register_bytes, uint64_t bits) {
  std::memcpy(lanes + lane * register_bytes, &bits, static_cast<size_t>(register_bytes));
}

double float_value(uint64_t bits, Type type) {
  switch (type) {
    case Type::F16:
      return half_to_float(static_cast<uint16_t>(bits));
    case Type::BF16:
      return bfloat_to_float(static_cast<uint16_t>(bits));
    case Type::F64:
      return std::bit_cast<double>(bits);
    default:
      return std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
}

uint64_t float_bits(double value, const Conversion& c) {
  switch (c.to) {
    case Type::F16:
      return encode_float(value, kFormatF16, c.rounding, c.satfinite);
    case Type::BF16:
      return encode_float(value, kFormatBF16, c.rounding, c.satfinite);
    case Type::TF32:
      return uint64_t{encode_float(value, kFormatTF32, c.rounding, c.satfinite)} << 13;
    case Type::F64:
      return std::bit_cast<uint64_t>(value);
    default:
      return encode_float(value, kFormatF32, c.rounding, c.satfinite);
  }
}

double round_integral(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::Zero:
      return std::trunc(value);
    case Rounding::Down:
      return std::floor(value);
    case Rounding::Up:
      return std::ceil(value);
    default:
      return std::nearbyint(value);
  }
}

int value_bits(Type type) { return 8 * type_bytes(type); }

double lowest(Type type) { return is_signed(type) ? -std::ldexp(1.0, value_bits(type) - 1) : 0.0; }
double beyond(Type type) { return std::ldexp(1.0, value_bits(type) - (is_signed(type) ? 1 : 0)); }

uint64_t integer_from_float(double value, Type type) {
  if (std::isnan(value)) return 0;
  if (value <= lowest(type)) return is_signed(type) ? ~uint64_t{0} << (value_bits(type) - 1) : 0;
  if (value >= beyond(type)) {
    const int bits = value_bits(type) - (is_signed(type) ? 1 : 0);
    return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  }
  return is_signed(type) ? static_cast<uint64_t>(static_cast<int64_t>(value))
                         : static_cast<uint64_t>(value);
}

__int128 integer_value(uint64_t bits, Type type) {
  if (!is_signed(type)) return bits;
  const int shift = 64 - value_bits(type);
  return static_cast<int64_t>(bits << shift) >> shift;
}

// An integer as a double that rounds to any shorter format as the integer itself would: bits that
// do not fit are folded into an odd last bit.
double sticky_double(__int128 value, bool exact) {
  const double near = static_cast<double>(value);
  if (exact || static_cast<__int128>(near) == value) return near;
  const uint64_t bits = std::bit_cast<uint64_t>(near);
  if (bits & 1) return near;
  const bool too_large = (static_cast<__int128>(near) > value) == (value > 0);
  return std::bit_cast<double>(too_large ? bits - 1 : bits + 1);
}

uint64_t round_to_double(__int128 value, Rounding rounding) {
  double near = static_cast<double>(value);
  const __int128 back = static_cast<__int128>(near);
  if (back < value && rounding == Rounding::Up) near = std::nextafter(near, HUGE_VAL);
  if (back > value && rounding == Rounding::Down) near = std::nextafter(near, -HUGE_VAL);
  if (rounding == Rounding::Zero && (value > 0 ? back > value : back < value))
    near = std::nextafter(near, 0.0);
  return std::bit_cast<uint64_t>(near);
}

uint64_t convert_one(uint64_t bits, const Conversion& c) {
  if (!is_float(c.from)) {
    const __int128 value = integer_value(bits, c.from);
    if (c.to == Type::F64) return round_to_double(value, c.rounding);
    if (is_float(c.to)) return float_bits(sticky_double(value, false), c);
    if (!c.sat) return static_cast<uint64_t>(integer_value(static_cast<uint64_t>(value), c.to));
    const int magnitude = value_bits(c.to) - (is_signed(c.to) ? 1 : 0);
    const __int128 top = (static_cast<__int128>(1) << magnitude) - 1;
    const __int128 bottom = is_signed(c.to) ? -top - 1 : 0;
    return static_cast<uint64_t>(std::clamp(value, bottom, top));
  }
  double value = float_value(bits, c.from);
  if (c.ftz && c.from == Type::F32) value = flush(static_cast<float>(value));
  if (c.to_integral) value = round_integral(value, c.rounding);
  if (!is_float(c.to)) return integer_from_float(value, c.to);
  if (c.sat) value = value > 0 ? std::min(value, 1.0) : 0.0;
  if (c.relu && value < 0) value = 0;
  uint64_t result = float_bits(value, c);
  if (c.ftz && c.to == Type::F32)
    result = std::bit_cast<uint32_t>(flush(std::bit_cast<float>(static_cast<uint32_t>(result))));
  return result;
}

void convert_general(Warp& warp, const Op& op, uint32_t mask) {
  const Conversion c = Conversion::unpack(warp.list(op)[0]);
  const uint8_t* from = warp.src<uint8_t>(op.a);
  uint8_t* to = warp.dst<uint8_t>(op.dst);
  uint64_t results[kLanes];
  active_lanes(mask, [&](int lane) {
    results[lane] = convert_one(load_bits(from, lane, c.from_bytes, type_bytes(c.from)), c);
  });
  active_lanes(mask, [&](int lane) { store_bits(to, lane, c.to_bytes, results[lane]); });
}

// ---- Fast loops for the conversions that kernels are full of ----

template <class From, class To>
void convert_cast(Warp& warp, const Op& op, uint32_t mask) {
  const From* a = warp.src<From>(op.a);
  each_lane(warp.dst<To>(op.dst), mask, [=](int i) { return static_cast<To>(a[i]); });
}

void half_to_single(Warp& warp, const Op& op, uint32_t mask) {
  const uint16_t* a = warp.src<uint16_t>(op.a);
  each_lane(warp.dst<float>(op.dst), mask, [=](int i) { return canonical(half_to_float(a[i])); });
}
void bfloat_to_single(Warp& warp, const Op& op, uint32_t mask) {
  const uint16_t* a = warp.src<uint16_t>(op.a);
  each_lane(warp.dst<float>(op.dst), mask, [=](int i) { return canonical(bfloat_to_float(a[i])); });
}
void single_to_half(Warp& warp, const Op& op, uint32_t mask) {
  const float* a = warp.src<float>(op.a);
  each_lane(warp.dst<uint16_t>(op.dst), mask, [=](int i) { return half_from_float(a[i]); });
}
void single_to_bfloat(Warp& warp, const Op& op, uint32_t mask) {
  const float* a = warp.src<float>(op.a);
  each_lane(warp.dst<uint16_t>(op.dst), mask, [=](int i) { return bfloat_from_float(a[i]); });
}

template <uint16_t (*Encode)(float)>
void singles_to_pair(Warp& warp, const Op& op, uint32_t mask) {
  const float* high = warp.src<float>(op.a);
  const float* low = warp.src<float>(op.b);
  each_lane(warp.dst<uint32_t>(op.dst), mask,
            [=](int i) { return static_cast<uint32_t>(Encode(high[i])) << 16 | Encode(low[i]); });
}

// f32 to s32 towards zero, the most common float to integer conversion.
void single_to_int(Warp& warp, const Op& op, uint32_t mask) {
  const float* a = warp.src<float>(op.a);
  each_lane(warp.dst<int32_t>(op.dst), mask, [=](int i) {
    const float x = a[i];
    const float inside = x >= -2147483648.0f && x < 2147483648.0f ? x : 0.0f;
    const int32_t edge = x >= 2147483648.0f ? INT32_MAX : x < 0.0f ? INT32_MIN : 0;
    const bool fits = x >= -2147483648.0f && x < 2147483648.0f;
    return fits ? static_cast<int32_t>(inside) : edge;
  });
}

struct FastRow {
  Type from, to;
  int from_bytes, to_bytes;
  Rounding rounding;
  bool to_integral;
  Handler run;
};

constexpr Rounding kNearest = Rounding::Nearest;
constexpr FastRow kFast[] = {
    {Type::U32, Type::U64, 4, 8, kNearest, false, convert_cast<uint32_t, uint64_t>},
    {Type::S32, Type::S64, 4, 8, kNearest, false, convert_cast<int32_t, int64_t>},
    {Type::U64, Type::U32, 8, 4, kNearest, false, convert_cast<uint64_t, uint32_t>},
    {Type::S64, Type::U32, 8, 4, kNearest, false, convert_cast<uint64_t, uint32_t>},
    {Type::U64, Type::S32, 8, 4, kNearest, false, convert_cast<uint64_t, int32_t>},
    {Type::U32, Type::U16, 4, 2, kNearest, false, convert_cast<uint32_t, uint16_t>},
    {Type::U16, Type::U32, 2, 4, kNearest, false, convert_cast<uint16_t, uint32_t>},
    {Type::S16, Type::S32, 2, 4, kNearest, false, convert_cast<int16_t, int32_t>},
    {Type::S32, Type::F32, 4, 4, kNearest, false, convert_cast<int32_t, float>},
    {Type::U32, Type::F32, 4, 4, kNearest, false, convert_cast<uint32_t, float>},
    {Type::F16, Type::F32, 2, 4, kNearest, false, half_to_single},
    {Type::BF16, Type::F32, 2, 4, kNearest, false, bfloat_to_single},
    {Type::F32, Type::F16, 4, 2, kNearest, false, single_to_half},
    {Type::F32, Type::BF16, 4, 2, kNearest, false, single_to_bfloat},
    {Type::F32, Type::S32, 4, 4, Rounding::Zero, true, single_to_int},
};

Handler fast_handler(const Conversion& c) {
  if (c.ftz || c.sat || c.satfinite || c.relu) return nullptr;
  for (const FastRow& row : kFast)
    if (row.from == c.from && row.to == c.to && row.from_bytes == c.from_bytes &&
        row.to_bytes == c.to_bytes && row.rounding == c.rounding &&
        row.to_integral == c.to_integral)
      return row.run;
  return nullptr;
}

// ---- Pairs ----

const FloatFormat& pair_format(Type type) {
  switch (type) {
    case Type::F16x2:
      return kFormatF16;
    case Type::BF16x2:
      return kFormatBF16;
    case Type::E4M3x2:
      return kFormatE4M3;
    default:
      return kFormatE5M2;
  }
}

uint32_t encode_element(double value, const Conversion& c) {
  if (c.relu && value < 0) value = 0;
  return encode_float(value, pair_format(c.to), c.rounding, c.satfinite);
}

// d = {a in the high half, b in the low half}; or element by element from another packed format.
void convert_pair(Warp& warp, const Op& op, uint32_t mask) {
  const Conversion c = Conversion::unpack(warp.list(op)[0]);
  const int to_bits = 4 * type_bytes(c.to);
  const int from_bits = 4 * type_bytes(c.from);
  uint8_t* to = warp.dst<uint8_t>(op.dst);
  active_lanes(mask, [&](int lane) {
    double low = 0, high = 0;
    if (c.from == Type::F32) {
      high = warp.src<float>(op.a)[lane];
      low = warp.src<float>(op.b)[lane];
    } else {
      const uint64_t bits = load_bits(warp.src<uint8_t>(op.a), lane, c.from_bytes, c.from_bytes);
      const uint32_t ones = (1u << from_bits) - 1;
      low = decode_float(static_cast<uint32_t>(bits) & ones, pair_format(c.from));
      high = decode_float(static_cast<uint32_t>(bits) >> from_bits, pair_format(c.from));
    }
    store_bits(to, lane, c.to_bytes,
               uint64_t{encode_element(high, c)} << to_bits | encode_element(low, c));
  });
}

void decode_pair(OpBuilder& b, Conversion c) {
  b.op.dst = b.dst(0, c.to);
  c.to_bytes = type_bytes(c.to);
  c.from_bytes = type_bytes(c.from);
  b.op.a = b.src(1, c.from);
  if (c.from == Type::F32) {
    if (b.operands() != 3) b.fail("a packed conversion from f32 takes two sources");
    b.op.b = b.src(2, c.from);
  } else if (b.operands() != 2 || type_bytes(c.from) == 0) {
    b.fail("no such packed conversion");
  }
  b.list_add(c.packed());
  const bool plain = c.rounding == Rounding::Nearest && !c.relu && !c.satfinite;
  b.op.run = convert_pair;
  if (plain && c.from == Type::F32 && c.to == Type::F16x2)
    b.op.run = singles_to_pair<half_from_float>;
  if (plain && c.from == Type::F32 && c.to == Type::BF16x2)
    b.op.run = singles_to_pair<bfloat_from_float>;
}

bool is_pair(Type type) {
  return type == Type::F16x2 || type == Type::BF16x2 || type == Type::E4M3x2 ||
         type == Type::E5M2x2;
}

void pack_saturated(Warp& warp, const Op& op, uint32_t mask) {
  const int32_t* a = warp.src<int32_t>(op.a);
  const int32_t* b = warp.src<int32_t>(op.b);
  const uint32_t* c = op.c == kNoSlot ? nullptr : warp.src<uint32_t>(op.c);
  const int bits = op.width * 8;
  const bool is_signed_result = op.flags;
  const int32_t top = (1 << (bits - (is_signed_result ? 1 : 0))) - 1;
  const int32_t bottom = is_signed_result ? -top - 1 : 0;
  const uint32_t ones = (1u << bits) - 1;
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int i) {
    const uint32_t high = static_cast<uint32_t>(std::clamp(a[i], bottom, top)) & ones;
    const uint32_t low = static_cast<uint32_t>(std::clamp(b[i], bottom, top)) & ones;
    const uint32_t pair = high << bits | low;
    return bits == 16 ? pair : pair | (c ? c[i] << 16 : 0u);
  });
}

void decode_pack(OpBuilder& b) {
  const Type dtype = b.type("dtype");
  b.op.dst = b.dst(0, Type::B32);
  b.op.a = b.src(1, Type::S32);
  b.op.b = b.src(2, Type::S32);
  if (b.operands() == 4) b.op.c = b.src(3, Type::B32);
  b.op.width = static_cast<uint8_t>(type_bytes(dtype));
  b.op.flags = is_signed(dtype);
  b.op.run = pack_saturated;
}

Rounding rounding_of(std::string_view word) {
  if (word == "rz" || word == "rzi") return Rounding::Zero;
  if (word == "rm" || word == "rmi") return Rounding::Down;
  if (word == "rp" || word == "rpi") return Rounding::Up;
  if (word == "rna") return Rounding::NearestAway;
  return Rounding::Nearest;
}

void decode_cvt(OpBuilder& b) {
  b.op.kind = OpClass::Convert;
  if (b.has("pack")) return decode_pack(b);
  Conversion c;
  c.from = b.type("stype");
  c.to = b.type("dtype");
  const std::string_view rounding = b.get("rnd");
  c.rounding = rounding_of(rounding);
  c.to_integral = rounding.size() == 3 && rounding.back() == 'i';
  c.ftz = b.has("ftz");
  c.sat = b.has("sat");
  c.satfinite = b.has("satfinite");
  c.relu = b.has("relu");
  if (is_pair(c.to) || is_pair(c.from)) return decode_pair(b, c);
  if (b.operands() != 2) b.fail("too many operands");
  if (c.from == Type::TF32) b.fail("tf32 is no source format");
  if (is_float(c.from) && !is_float(c.to) && !c.to_integral)
    b.fail("float to integer needs .rni, .rzi, .rmi or .rpi");
  b.op.dst = b.wide_dst(b.operand(0), type_bytes(c.to), c.to_bytes);
  b.op.a = b.wide_src(b.operand(1), c.from, c.from_bytes);
  b.list_add(c.packed());
  b.op.run = fast_handler(c);
  if (!b.op.run) b.op.run = convert_general;
}

constexpr DecodeRow kRows[] = {{"cvt", decode_cvt}};

}  // namespace

std::span<const DecodeRow> convert_family() { return kRows; }

}  // namespace linnet::vgpu
