#include "compiler/cpu/matrix_products.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;
namespace arith = mlir::arith;

namespace {

constexpr int64_t kTile = MatrixUnit::kTile;

}  // namespace

MatrixProducts::MatrixProducts(Emitter& emitter, const TileProgram& program, Memory& memory,
                               BlockEvaluator& blocks, TileOps& tile_ops, Scratch& scratch,
                               Prefetches& prefetches, NarrowUnit unit)
    : e_(emitter),
      program_(program),
      memory_(memory),
      blocks_(blocks),
      tile_ops_(tile_ops),
      scratch_(scratch),
      prefetches_(prefetches),
      unit_(emitter, unit) {
  if (unit == NarrowUnit::none) return;
  for (const Loop& loop : program.loops()) {
    for (mlir::Operation* op : loop.body) {
      for (Value operand : op->getOperands()) readers_[program.origin(operand)].push_back(op);
      if (auto product = llvm::dyn_cast<MatmulOp>(op)) any_ |= is_mine(product);
    }
    for (Value next : loop.next()) readers_[program.origin(next)].push_back(nullptr);
  }
  for (auto output : program.graph().getBody().getOps<OutputOp>())
    readers_[program.origin(output.getValue())].push_back(nullptr);
}

void MatrixProducts::start() {
  if (use_tiles()) unit_.configure(scratch_.take(kTile));
}
void MatrixProducts::finish() {
  if (use_tiles()) unit_.release();
}

// Operands of bf16, whole tiles high, and of some depth.
bool MatrixProducts::is_mine(MatmulOp op) {
  bool narrow = op.getPrecision() && *op.getPrecision() == Precision::bf16;
  int64_t depth = tile_of(op.getLhs()).getDimSize(op.getTransposeLhs() ? 0 : 1);
  return narrow && program_.schedule().chunk > 1 && tile_of(op).getDimSize(0) % kTile == 0 &&
         2 * depth >= MatrixUnit::kDepth;
}

MatmulOp MatrixProducts::fused_product(Value value) {
  value = program_.origin(value);
  auto op = memory_.in_memory(value) ? MatmulOp() : value.getDefiningOp<MatmulOp>();
  return op && is_mine(op) ? op : MatmulOp();
}

bool MatrixProducts::has_products(Value value) {
  bool any = false;
  if (!memory_.in_memory(value)) blocks_.for_each_product(value, [&](MatmulOp) { any = true; });
  return any;
}

bool MatrixProducts::is_at(Value value, Buffer target) {
  return memory_.in_memory(value) && memory_.buffer_of(value).pointer == target.pointer;
}

bool MatrixProducts::emit(Value value, Buffer target) {
  mlir::Operation* op = value.getDefiningOp();
  if (!any_) return false;
  if (is_at(value, target)) return true;
  if (memory_.in_memory(value) || !is_fusible(op)) return false;
  if (MatmulOp product = fused_product(value)) {
    multiply(product, target, Value(), false, false);
    return true;
  }
  if (llvm::isa<arith::AddFOp, arith::SubFOp>(op)) {
    bool subtract = llvm::isa<arith::SubFOp>(op);
    for (int side : {1, 0}) {
      MatmulOp product = fused_product(op->getOperand(side));
      if (!product || (side == 0 && subtract)) continue;
      Value other = program_.origin(op->getOperand(1 - side));
      bool by_rows = !is_at(other, target) && !has_products(other);
      Value to_pack = std::exchange(to_pack_, Value());  // by the last product of the sum
      if (!by_rows) memory_.make(other, target);
      to_pack_ = to_pack;
      multiply(product, target, other, by_rows, subtract);
      return true;
    }
  }
  if (llvm::isa<BroadcastOp, DecayMaskOp>(op)) return false;
  for (Value operand : op->getOperands()) {
    operand = program_.origin(operand);
    if (!operand.getDefiningOp() || !has_products(operand)) continue;
    Buffer place = scratch_.place(operand);
    if (emit(operand, place)) memory_.keep(operand, place);
  }
  return false;
}

void MatrixProducts::multiply(MatmulOp op, Buffer target, Value base, bool make_base, bool negate) {
  MatrixUnit::Product product{
      .left = packed(op.getLhs(), true, op.getTransposeLhs(), negate),
      .right = packed(op.getRhs(), false, op.getTransposeRhs(), false),
      .to = target,
      .depth = tile_of(op.getLhs()).getDimSize(op.getTransposeLhs() ? 0 : 1),
      .accumulate = static_cast<bool>(base),
      .during = prefetches_.share_of(op)};
  if (make_base) {
    product.before = [&](Value row, int64_t rows) {
      tile_ops_.emit_some_rows(base, target, row, rows);
    };
    product.base = [&](const Block& block) { return blocks_.evaluate(base, block); };
  }
  if (to_pack_ && is_at(to_pack_, target)) {
    Value carried = std::exchange(to_pack_, Value());
    product.after = [=, this](Value row, int64_t rows) { pack_across(carried, row, rows); };
    product.made = [=, this](const Block& block, const Values& sums) {
      unit_.pack_sums(block, sums, packed(carried, false, false, false));
    };
  }
  if (program_.is_lower_triangular(op.getLhs()))
    product.depth_of = [&](int64_t row, int64_t rows) {
      return op.getTransposeLhs() ? std::pair(row, product.depth)
                                  : std::pair(int64_t(0), std::min(row + rows, product.depth));
    };
  unit_.multiply(product);
}

bool MatrixProducts::is_only_packed(Value value) {
  if (!any_ || program_.placement(value) != Placement::scratch) return false;
  if (tile_of(value).getRank() != 2 || !is_fusible(value.getDefiningOp())) return false;
  Value outer = std::exchange(memory_.evaluating, value);
  bool products = has_products(value);
  memory_.evaluating = outer;
  return !products && llvm::all_of(readers_[value], [&](mlir::Operation* reader) {
    auto product = llvm::dyn_cast_or_null<MatmulOp>(reader);
    return product && is_mine(product);
  });
}

// Loads a tile that is in memory, computes one that is not.
MatrixUnit::Reader MatrixProducts::reader_of(Value value) {
  bool computed = value.getDefiningOp() && is_only_packed(value);
  return [this, value, computed](Value row, int64_t rows, Value column) {
    Value outer = memory_.evaluating;
    if (computed) memory_.evaluating = value;
    Values result = blocks_.evaluate(value, {row, column, rows, 1, std::nullopt});
    memory_.evaluating = outer;
    return result;
  };
}

// Rows of the left lie together, and columns of the right; the one is the other's transpose.
Buffer MatrixProducts::packed(Value value, bool is_left, bool is_transposed, bool negate) {
  value = program_.origin(value);
  Tile type = tile_of(value);
  int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  bool across = is_left == is_transposed;
  int form = kPacked | (across ? kAcross : 0) | (negate ? kMinus : 0);
  int64_t depth = MatrixUnit::packed_depth(across ? rows : columns);
  Buffer shape = across ? Buffer{{}, depth, columns, scratch_.padded(columns)}
                        : Buffer{{}, rows, depth, depth};
  Buffer result = scratch_.form_of(value, form, shape, [&](Buffer to) {
    if (!across) return unit_.pack_along_rows(reader_of(value), columns, to, negate);
    unit_.pack_across_rows(reader_of(value), e_.i64(0), rows, to, negate);
    unit_.clear_beyond(rows, to);
  });
  if (!is_transposed) return result;
  return scratch_.form_of(value, form | kFlipped,
                          {{}, result.columns, result.rows, scratch_.padded(result.rows)},
                          [&](Buffer to) { tile_ops_.transpose(result, to); });
}

bool MatrixProducts::is_kept_packed(Value carried) {
  return any_ && llvm::any_of(readers_[carried], [&](mlir::Operation* reader) {
           auto product = llvm::dyn_cast_or_null<MatmulOp>(reader);
           return product && is_mine(product) && !product.getTransposeRhs() &&
                  program_.origin(product.getRhs()) == carried;
         });
}

void MatrixProducts::pack_across(Value value, Value first, int64_t rows) {
  unit_.pack_across_rows(reader_of(value), first, rows, packed(value, false, false, false), false);
}

void MatrixProducts::pack_carried(const Loop& loop) {
  for (Value carried : loop.carried())
    if (is_kept_packed(carried)) packed(carried, false, false, false);
}

void MatrixProducts::begin_update(Value carried) {
  to_pack_ = is_kept_packed(carried) ? carried : Value();
}

void MatrixProducts::end_update(Value carried) {
  if (to_pack_) pack_across(carried, e_.i64(0), tile_of(carried).getDimSize(0));
  to_pack_ = Value();
}

// What is left of a row when its walk leaves its block of columns, times the columns before,
// decayed to the end of the last block before: all factors are at most one.
bool MatrixProducts::emit_scores(DecayDotOp op, Buffer target) {
  bool narrow = op.getPrecision() && *op.getPrecision() == Precision::bf16;
  if (!any_ || !narrow || target.rows % kTile != 0 || target.rows == kTile ||
      !tile_ops_.stepwise_gate(op))
    return false;
  Buffer a = memory_.buffer_of(op.getLhs());
  Value ends_at = scratch_.place(op, kRowEnds, a.rows * a.stride);
  Buffer ends{ends_at, a.rows, a.columns, a.stride};
  tile_ops_.scores_in_blocks(op, target, kTile, ends);
  int64_t depth = MatrixUnit::packed_depth(a.columns);
  Buffer left{scratch_.place(op, kRowEnds | kPacked, kTile * depth), kTile, depth, depth};
  for (int64_t row = kTile; row < target.rows; row += kTile) {
    auto read = [&](Value i, int64_t, Value column) -> Values {
      Value index = e_.add(e_.mul(e_.add(i, row), ends.stride), column);
      return {e_.load_vector(e_.at(ends.pointer, index))};
    };
    unit_.pack_along_rows(read, a.columns, left, false);
    Value place = e_.at(target.pointer, e_.i64(row * target.stride));
    unit_.multiply({.left = left,
                    .right = packed_columns(op, row / kTile),
                    .to = {place, kTile, row, target.stride},
                    .depth = a.columns,
                    .accumulate = false});
  }
  return true;
}

// The columns of the first `blocks` blocks, decayed to the end of the last.
Buffer MatrixProducts::packed_columns(DecayDotOp op, int64_t blocks) {
  Value right = program_.origin(op.getRhs());
  Buffer b = memory_.buffer_of(right);
  int64_t rows = blocks * kTile, depth = MatrixUnit::packed_depth(b.columns);
  int form = kColumns * static_cast<int>(2 * blocks + tile_ops_.sees_columns_before(op));
  Buffer decayed = scratch_.form_of(right, form, {{}, rows, b.columns, b.stride},
                                    [&](Buffer to) { tile_ops_.decay_columns(op, to); });
  Buffer along = scratch_.form_of(right, form | kPacked, {{}, rows, depth, depth}, [&](Buffer to) {
    auto read = [&](Value i, int64_t, Value column) -> Values {
      return {e_.load_vector(e_.at(decayed.pointer, e_.add(e_.mul(i, decayed.stride), column)))};
    };
    unit_.pack_along_rows(read, b.columns, to, false);
  });
  return scratch_.form_of(right, form | kPacked | kFlipped, {{}, depth, rows, rows},
                          [&](Buffer to) { tile_ops_.transpose(along, to); });
}

}  // namespace linnet::cpu
