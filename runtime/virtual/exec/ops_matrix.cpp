// ldmatrix, stmatrix and movmatrix: 8x8 matrices of 16-bit elements spread over a warp.
#include <fmt/format.h>

#include "exec/families.h"
#include "exec/memory_access.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

using Matrix = uint16_t[8][8];

// Lane i holds elements 2*(i%4) and the next of row i/4, in one 32-bit register.
uint32_t fragment(const Matrix& matrix, int lane, bool transposed) {
  const int row = lane / 4, column = lane % 4 * 2;
  const uint32_t low = transposed ? matrix[column][row] : matrix[row][column];
  const uint32_t high = transposed ? matrix[column + 1][row] : matrix[row][column + 1];
  return high << 16 | low;
}

void place_fragment(Matrix& matrix, int lane, bool transposed, uint32_t value) {
  const int row = lane / 4, column = lane % 4 * 2;
  (transposed ? matrix[column][row] : matrix[row][column]) = static_cast<uint16_t>(value);
  (transposed ? matrix[column + 1][row] : matrix[row][column + 1]) =
      static_cast<uint16_t>(value >> 16);
}

void check_converged(Warp& warp, uint32_t mask) {
  if (mask != kAllLanes)
    fault(warp, FindingKind::BadSyncMask, std::countr_zero(mask), mask,
          fmt::format("executed by lanes {:#010x}: it needs the whole warp", mask));
}

// Rows are 16 bytes; lane 8*m + r gives the address of row r of matrix m.
void resolve_rows(Warp& warp, const Op& op, Access kind, LaneAccess& access) {
  access.mask = op.list_size == 4 ? kAllLanes : (1u << (8 * op.list_size)) - 1;
  access.bytes = 16;
  access.kind = kind;
  gather_addresses(warp, op, access.address);
  resolve(warp, op, static_cast<Space>(op.target), access);
}

void load_matrices(Warp& warp, const Op& op, uint32_t mask) {
  check_converged(warp, mask);
  LaneAccess access;
  resolve_rows(warp, op, Access::Read, access);
  for (uint32_t m = 0; m < op.list_size; ++m) {
    Matrix matrix;
    for (int row = 0; row < 8; ++row)
      std::memcpy(matrix[row], access.host[static_cast<int>(8 * m) + row], 16);
    uint32_t* dst = warp.dst<uint32_t>(warp.list(op)[m]);
    // Without .trans the rows already lie in lane order.
    if (!op.flags)
      std::memcpy(dst, matrix, sizeof matrix);
    else
      for (int lane = 0; lane < kLanes; ++lane) dst[lane] = fragment(matrix, lane, true);
  }
}

void store_matrices(Warp& warp, const Op& op, uint32_t mask) {
  check_converged(warp, mask);
  LaneAccess access;
  resolve_rows(warp, op, Access::Write, access);
  for (uint32_t m = 0; m < op.list_size; ++m) {
    Matrix matrix;
    const uint32_t* src = warp.src<uint32_t>(warp.list(op)[m]);
    for (int lane = 0; lane < kLanes; ++lane) place_fragment(matrix, lane, op.flags, src[lane]);
    for (int row = 0; row < 8; ++row)
      std::memcpy(access.host[static_cast<int>(8 * m) + row], matrix[row], 16);
  }
}

void transpose_matrix(Warp& warp, const Op& op, uint32_t mask) {
  check_converged(warp, mask);
  Matrix matrix;
  const uint32_t* src = warp.src<uint32_t>(op.a);
  for (int lane = 0; lane < kLanes; ++lane) place_fragment(matrix, lane, false, src[lane]);
  uint32_t* dst = warp.dst<uint32_t>(op.dst);
  for (int lane = 0; lane < kLanes; ++lane) dst[lane] = fragment(matrix, lane, true);
}

void decode_matrix(OpBuilder& b) {
  const bool loads = b.in.form.opcode() == "ldmatrix";
  const Space space = b.has("space") ? Space::Shared : Space::Generic;
  b.op.kind = OpClass::Matrix;
  b.op.flags = b.has("trans");
  b.op.target = static_cast<int32_t>(space);
  b.address(b.operand(loads ? 1 : 0), space);
  const auto count = static_cast<size_t>(b.get("num")[1] - '0');
  if (loads)
    b.list_dst(b.operand(0), 4, count);
  else
    b.list_src(b.operand(1), Type::B32, count);
  b.op.run = loads ? load_matrices : store_matrices;
}

void decode_movmatrix(OpBuilder& b) {
  b.op.kind = OpClass::Matrix;
  b.op.dst = b.dst(0, Type::B32);
  b.op.a = b.src(1, Type::B32);
  b.op.run = transpose_matrix;
}

constexpr DecodeRow kRows[] = {
    {"ldmatrix", decode_matrix}, {"stmatrix", decode_matrix}, {"movmatrix", decode_movmatrix}};

}  // namespace

std::span<const DecodeRow> matrix_family() { return kRows; }

}  // namespace linnet::vgpu
