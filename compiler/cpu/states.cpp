#include "compiler/cpu/states.h"

namespace linnet::cpu {

using chunk::Precision;
using chunk::Tile;
using mlir::Value;
namespace arith = mlir::arith;

Buffer States::flipped(Buffer state) {
  int64_t stride = scratch_.padded(state.rows);
  if (flipped_offset_ < 0) {
    flipped_offset_ = scratch_.used();
    scratch_.take(state.columns * stride);
  }
  return {scratch_.at(flipped_offset_), state.columns, state.rows, stride};
}

void States::load(const Bound& from, Buffer state) {
  Buffer lying = v_first_ ? flipped(state) : state;
  tile_ops_.load_rows(from.pointer, from.step, from.storage, lying, e_.i64(lying.rows));
  if (v_first_) tile_ops_.transpose(lying, state);
}

void States::store(Buffer state, const Bound& to) {
  bool flips = v_first_ && !state.step;
  Buffer lying = flips ? flipped(state) : state;
  if (flips) tile_ops_.transpose(state, lying);
  tile_ops_.store_rows(lying, to.pointer, to.step, to.storage, e_.i64(lying.rows));
}

void States::keep(Buffer state, Value chunk) {
  auto& b = e_.builder();
  auto compare = [&](arith::CmpIPredicate predicate, Value a) -> Value {
    return b.create<arith::CmpIOp>(e_.loc(), predicate, a, e_.i64(0));
  };
  e_.when(compare(arith::CmpIPredicate::ne, asked.pointer), [&] {
    Value left = b.create<arith::RemSIOp>(e_.loc(), chunk, asked.every);
    e_.when(compare(arith::CmpIPredicate::eq, left), [&] {
      Value index = b.create<arith::DivSIOp>(e_.loc(), chunk, asked.every);
      Value base = b.create<mlir::LLVM::IntToPtrOp>(e_.loc(), e_.pointer_type(), asked.pointer);
      store(state, {e_.at(base, e_.mul(index, asked.step)), asked.row_step, Precision::f32});
    });
  });
}

bool States::can_lie_in_place(Tile type, const Bound& from) const {
  auto is_whole = [&](unsigned axis) { return type.getDimSize(axis) % e_.lanes() == 0; };
  return from.storage == Precision::f32 && is_whole(1) && (!v_first_ || is_whole(0));
}

Buffer States::place(Tile type, const Bound& from, const Bound& to) {
  Buffer state = scratch_.shaped(to.pointer, type);
  if (v_first_) state = {to.pointer, state.columns, state.rows, state.rows};
  state.step = to.step;
  auto& b = e_.builder();
  auto number = [&](Value pointer) -> Value {
    return b.create<mlir::LLVM::PtrToIntOp>(e_.loc(), b.getI64Type(), pointer);
  };
  Value elsewhere = b.create<arith::CmpIOp>(e_.loc(), arith::CmpIPredicate::ne,
                                            number(from.pointer), number(to.pointer));
  e_.when(elsewhere, [&] { tile_ops_.load_rows_to(from.pointer, from.step, state); });
  return state;
}

}  // namespace linnet::cpu
