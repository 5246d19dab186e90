// mma.sync: gathers the fragments of a warp into tiles, multiplies them and scatters the result.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "exec/cta.h"
#include "exec/families.h"
#include "exec/mma_arithmetic.h"
#include "exec/mma_formats.h"
#include "exec/mma_fragments.h"
#include "exec/numbers.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

// Operand registers stand in the op's list: d, a, b, c one after another.
int registers_d(const Op& op) { return op.width; }
int rows_of(const Op& op) { return op.aux >> 8; }
int depth_of(const Op& op) { return op.aux & 0xff; }

void check_converged(Warp& warp, uint32_t mask) {
  if (mask != kAllLanes)
    fault(warp, FindingKind::BadSyncMask, std::countr_zero(mask), mask,
          fmt::format("executed by lanes {:#010x}: it needs the whole warp", mask));
}

enum Flags : uint8_t {
  kHalfResult = 1,
  kHalfAddend = 2,
  kSaturate = 4,
  kSignedA = 8,
  kSignedB = 16
};

template <class A, class B>
void multiply_float(Warp& warp, const Op& op, uint32_t mask) {
  check_converged(warp, mask);
  MmaTile tile;
  tile.depth = depth_of(op);
  tile.smallest_exponent = std::min(A::kSmallest, B::kSmallest);
  const int a_registers = tile.depth / (2 * A::kPack);
  const int b_registers = tile.depth / (4 * B::kPack);
  const uint32_t* slots = warp.list(op);
  const uint32_t* a = slots + registers_d(op);
  const uint32_t* c = a + a_registers + b_registers;
  read_factor_a<A>(warp, a, a_registers, tile);
  read_factor_b<B>(warp, a + a_registers, b_registers, tile);
  const bool half_addend = op.flags & kHalfAddend, half_result = op.flags & kHalfResult;
  const uint32_t* addend[4];
  for (int i = 0; i < (half_addend ? 2 : 4); ++i) addend[i] = warp.src<uint32_t>(c[i]);
  read_addend(addend, half_addend, tile);
  if (warp.launch.settings.mma == MmaMode::Exact)
    mma_exact(tile);
  else
    mma_hardware(tile, rounding_of<A>(*warp.launch.profile));
  uint32_t* results[4];
  for (int i = 0; i < (half_result ? 2 : 4); ++i) results[i] = warp.dst<uint32_t>(slots[i]);
  write_result(results, half_result, tile);
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
  b.use.flop = static_cast<uint32_t>(2 * rows * 8 * depth);
  // Half the rate for operands of twice the size; products of doubles have units of their own.
  b.use.flop_as_bf16 = b.use.flop * static_cast<uint32_t>(element) / 2;
}

constexpr DecodeRow kRows[] = {{"mma", decode_mma}};

}  // namespace

std::span<const DecodeRow> mma_family() { return kRows; }

}  // namespace linnet::vgpu
