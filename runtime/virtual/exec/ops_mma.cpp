// mma.sync: gathers the fragments of a warp into tiles, multiplies them and scatters the result.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "exec/cta.h"
#include "exec/families.h"
#include "exec/mma_arithmetic.h"
#include "exec/numbers.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

// Operand registers stand in the op's list: d, a, b, c one after another.
int registers_d(const Op& op) { return op.width; }
int rows_of(const Op& op) { return op.aux >> 8; }
int depth_of(const Op& op) { return op.aux & 0xff; }

// In every shape lane 4*g + t holds, in register r of A, row g + 8*(r%2) and `Pack` elements from
// column Pack*t + 4*Pack*(r/2); of B, column g and rows Pack*t + 4*Pack*r; of C, row g + 8*(r/2)
// and column 2*t + r%2. A register of A over all lanes is therefore 8 rows of 4*Pack elements in
// order, and one of B the same transposed.
template <class Element, int Pack>
struct Fragments {
  static constexpr int kWidth = 4 * Pack;

  template <class Store>
  static void read_a(const Warp& warp, const uint32_t* slots, int rows, int registers,
                     Store store) {
    const int halves = rows / 8;
    for (int r = 0; r < registers; ++r) {
      const auto* values = warp.src<Element>(slots[r]);
      const int row = 8 * (r % halves), column = kWidth * (r / halves);
      for (int g = 0; g < 8; ++g)
        for (int i = 0; i < kWidth; ++i) store(row + g, column + i, values[g * kWidth + i]);
    }
  }
  template <class Store>
  static void read_b(const Warp& warp, const uint32_t* slots, int registers, Store store) {
    for (int r = 0; r < registers; ++r) {
      const auto* values = warp.src<Element>(slots[r]);
      for (int i = 0; i < kWidth; ++i)
        for (int g = 0; g < 8; ++g) store(kWidth * r + i, g, values[g * kWidth + i]);
    }
  }
};

void check_converged(Warp& warp, uint32_t mask) {
  if (mask != kAllLanes)
    fault(warp, FindingKind::BadSyncMask, std::countr_zero(mask), mask,
          fmt::format("executed by lanes {:#010x}: it needs the whole warp", mask));
}

struct FromHalf {
  using Element = uint16_t;
  static constexpr int kPack = 2;
  static constexpr int kSmallest = -14;
  static float value(uint16_t bits) { return half_to_float(bits); }
};
struct FromBfloat {
  using Element = uint16_t;
  static constexpr int kPack = 2;
  static constexpr int kSmallest = -126;
  static float value(uint16_t bits) { return bfloat_to_float(bits); }
};
struct FromTf32 {
  using Element = uint32_t;
  static constexpr int kPack = 1;
  static constexpr int kSmallest = -126;
  // The low 13 bits are not looked at.
  static float value(uint32_t bits) { return std::bit_cast<float>(bits & 0xffff'e000u); }
};
struct FromE4M3 {
  using Element = uint8_t;
  static constexpr int kPack = 4;
  static constexpr int kSmallest = -6;
  static float value(uint8_t bits) { return static_cast<float>(decode_float(bits, kFormatE4M3)); }
};
struct FromE5M2 {
  using Element = uint8_t;
  static constexpr int kPack = 4;
  static constexpr int kSmallest = -14;
  static float value(uint8_t bits) { return static_cast<float>(decode_float(bits, kFormatE5M2)); }
};

// A step of the hardware takes a fixed number of bytes, so narrow types are summed in longer
// blocks; 8-bit products are known to be kept with 13 fraction bits only.
template <class A>
MmaRounding rounding_of(const DeviceProfile& profile) {
  MmaRounding rounding;
  rounding.block = std::max(4, profile.mma_block * A::kPack / 2);
  rounding.fraction_bits = A::kPack == 4 ? 13 : 23 + profile.mma_extra_bits;
  return rounding;
}

enum Flags : uint8_t {
  kHalfResult = 1,
  kHalfAddend = 2,
  kSaturate = 4,
  kSignedA = 8,
  kSignedB = 16
};

// Columns 2*t and 2*t + 1 of a row stand in two registers (f32) or in the halves of one (f16).
void read_addend(const Warp& warp, const uint32_t* slots, bool half, MmaTile& tile) {
  for (int part = 0; part < tile.rows / 8; ++part) {
    float (*rows)[8] = tile.c + 8 * part;
    if (half) {
      const uint16_t* values = warp.src<uint16_t>(slots[part]);
      for (int i = 0; i < 64; ++i) rows[i / 8][i % 8] = half_to_float(values[i]);
      continue;
    }
    const float* even = warp.src<float>(slots[2 * part]);
    const float* odd = warp.src<float>(slots[2 * part + 1]);
    for (int g = 0; g < 8; ++g)
      for (int t = 0; t < 4; ++t) {
        rows[g][2 * t] = even[4 * g + t];
        rows[g][2 * t + 1] = odd[4 * g + t];
      }
  }
}

void write_result(Warp& warp, const uint32_t* slots, bool half, const MmaTile& tile) {
  for (int part = 0; part < tile.rows / 8; ++part) {
    const float (*rows)[8] = tile.c + 8 * part;
    if (half) {
      uint16_t* values = warp.dst<uint16_t>(slots[part]);
      for (int i = 0; i < 64; ++i) values[i] = half_from_float(rows[i / 8][i % 8]);
      continue;
    }
    float* even = warp.dst<float>(slots[2 * part]);
    float* odd = warp.dst<float>(slots[2 * part + 1]);
    for (int g = 0; g < 8; ++g)
      for (int t = 0; t < 4; ++t) {
        even[4 * g + t] = canonical(rows[g][2 * t]);
        odd[4 * g + t] = canonical(rows[g][2 * t + 1]);
      }
  }
}

template <class A, class B>
void multiply_float(Warp& warp, const Op& op, uint32_t mask) {
  check_converged(warp, mask);
  MmaTile tile;
  tile.rows = rows_of(op);
  tile.depth = depth_of(op);
  tile.smallest_exponent = std::min(A::kSmallest, B::kSmallest);
  const int a_registers = tile.rows / 8 * tile.depth / (4 * A::kPack);
  const int b_registers = tile.depth / (4 * B::kPack);
  const uint32_t* slots = warp.list(op);
  const uint32_t* a = slots + registers_d(op);
  Fragments<typename A::Element, A::kPack>::read_a(
      warp, a, tile.rows, a_registers,
      [&](int row, int k, typename A::Element bits) { tile.a[row][k] = A::value(bits); });
  Fragments<typename B::Element, B::kPack>::read_b(
      warp, a + a_registers, b_registers,
      [&](int k, int column, typename B::Element bits) { tile.b[k][column] = B::value(bits); });
  read_addend(warp, a + a_registers + b_registers, op.flags & kHalfAddend, tile);
  if (warp.launch.settings.mma == MmaMode::Exact)
    mma_exact(tile);
  else
    mma_hardware(tile, rounding_of<A>(*warp.launch.profile));
  write_result(warp, slots, op.flags & kHalfResult, tile);
}

void multiply_int8(Warp& warp, const Op& op, uint32_t mask) {
  check_converged(warp, mask);
  const int rows = rows_of(op), depth = depth_of(op);
  const int a_registers = rows / 8 * depth / 16, b_registers = depth / 16;
  const uint32_t* slots = warp.list(op);
  const uint32_t* a = slots + registers_d(op);
  const uint32_t* c = a + a_registers + b_registers;
  int32_t left[16][32], right[32][8];
  const auto widen = [](uint8_t bits, bool is_signed_value) {
    return is_signed_value ? static_cast<int8_t>(bits) : static_cast<int32_t>(bits);
  };
  Fragments<uint8_t, 4>::read_a(warp, a, rows, a_registers, [&](int row, int k, uint8_t bits) {
    left[row][k] = widen(bits, op.flags & kSignedA);
  });
  Fragments<uint8_t, 4>::read_b(warp, a + a_registers, b_registers,
                                [&](int k, int column, uint8_t bits) {
                                  right[k][column] = widen(bits, op.flags & kSignedB);
                                });
  int32_t results[4][kLanes];
  for (int r = 0; r < rows / 4; ++r) {
    const int32_t* addend = warp.src<int32_t>(c[r]);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
      int64_t sum = addend[lane];
      for (int k = 0; k < depth; ++k) sum += left[row][k] * right[k][column];
      if (op.flags & kSaturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
      results[r][lane] = static_cast<int32_t>(sum);
    }
  }
  for (int r = 0; r < rows / 4; ++r)
    std::memcpy(warp.dst<int32_t>(slots[r]), results[r], sizeof results[r]);
}

void multiply_double(Warp& warp, const Op& op, uint32_t mask) {
  check_converged(warp, mask);
  const int rows = rows_of(op), depth = depth_of(op);
  const int a_registers = rows / 8 * depth / 4, b_registers = depth / 4;
  const uint32_t* slots = warp.list(op);
  const uint32_t* a = slots + registers_d(op);
  const uint32_t* c = a + a_registers + b_registers;
  double left[16][16], right[16][8], results[4][kLanes];
  Fragments<double, 1>::read_a(warp, a, rows, a_registers,
                               [&](int row, int k, double value) { left[row][k] = value; });
  Fragments<double, 1>::read_b(warp, a + a_registers, b_registers,
                               [&](int k, int column, double value) { right[k][column] = value; });
  for (int r = 0; r < rows / 4; ++r) {
    const double* addend = warp.src<double>(c[r]);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
      double sum = addend[lane];
      for (int k = 0; k < depth; ++k) sum = std::fma(left[row][k], right[k][column], sum);
      results[r][lane] = sum;
    }
  }
  for (int r = 0; r < rows / 4; ++r)
    std::memcpy(warp.dst<double>(slots[r]), results[r], sizeof results[r]);
}

template <class A>
Handler pick_fp8(Type b) {
  return b == Type::E4M3 ? multiply_float<A, FromE4M3> : multiply_float<A, FromE5M2>;
}

Handler pick_product(Type a, Type b) {
  switch (a) {
    case Type::F16:
      return multiply_float<FromHalf, FromHalf>;
    case Type::BF16:
      return multiply_float<FromBfloat, FromBfloat>;
    case Type::TF32:
      return multiply_float<FromTf32, FromTf32>;
    case Type::E4M3:
      return pick_fp8<FromE4M3>(b);
    case Type::E5M2:
      return pick_fp8<FromE5M2>(b);
    case Type::F64:
      return multiply_double;
    default:
      return multiply_int8;
  }
}

// "m16n8k16" -> 16, 8, 16; n is 8 in every shape of the table.
void read_shape(std::string_view text, int& rows, int& depth) {
  rows = text.starts_with("m16") ? 16 : 8;
  const std::string_view digits = text.substr(text.find('k') + 1);
  depth = 0;
  for (const char digit : digits) depth = depth * 10 + (digit - '0');
}

void decode_mma(OpBuilder& b) {
  int rows = 0, depth = 0;
  read_shape(b.get("shape"), rows, depth);
  const Type a = b.type("atype"), d = b.type("dtype"), c = b.type("ctype");
  const int element = type_bytes(a);
  const bool wide = a == Type::F64;
  const int pack = wide ? 1 : 4 / element;
  const Type input = wide ? Type::F64 : Type::B32;
  const auto result_registers = [&](Type type) {
    return static_cast<size_t>(type == Type::F16 ? rows / 8 : rows / 4);
  };
  b.op.kind = OpClass::Mma;
  b.op.aux = static_cast<uint16_t>(rows << 8 | depth);
  b.op.width = static_cast<uint8_t>(result_registers(d));
  b.list_dst(b.operand(0), wide ? 8 : 4, result_registers(d));
  b.list_src(b.operand(1), input, static_cast<size_t>(rows / 8 * depth / (4 * pack)));
  b.list_src(b.operand(2), input, static_cast<size_t>(depth / (4 * pack)));
  b.list_src(b.operand(3), input, result_registers(c));
  b.op.flags =
      static_cast<uint8_t>((d == Type::F16 ? kHalfResult : 0) | (c == Type::F16 ? kHalfAddend : 0) |
                           (b.has("satfinite") ? kSaturate : 0) | (a == Type::S8 ? kSignedA : 0) |
                           (b.type("btype") == Type::S8 ? kSignedB : 0));
  b.op.run = pick_product(a, b.type("btype"));
}

constexpr DecodeRow kRows[] = {{"mma", decode_mma}};

}  // namespace

std::span<const DecodeRow> mma_family() { return kRows; }

}  // namespace linnet::vgpu
