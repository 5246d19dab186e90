// The part of TileOps between the caller's memory and tiles: copies with conversion.
#include "compiler/cpu/tile_ops.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;

void TileOps::load_row(Value from, Precision storage, Value to, int64_t columns) {
  int64_t whole = columns / e_.lanes() * e_.lanes();
  int64_t together = whole % (4 * e_.lanes()) == 0 ? 4 : 1;
  e_.loop(e_.i64(0), e_.i64(whole), together * e_.lanes(), [&](Value j) {
    for (int64_t v = 0; v < together; ++v) {
      Value at = e_.add(j, v * e_.lanes());
      e_.store(e_.load_as_f32(from, at, storage, true), e_.at(to, at));
    }
  });
  if (whole == columns) return;
  e_.store(e_.splat(0.f), e_.at(to, e_.i64(whole)));
  for (int64_t j = whole; j < columns; ++j)
    e_.store(e_.load_as_f32(from, e_.i64(j), storage, false), e_.at(to, e_.i64(j)));
}

void TileOps::load_rows(Value from, Value step, Precision storage, Buffer to, Value valid) {
  e_.loop(e_.i64(0), valid, 1, [&](Value i) {
    load_row(e_.at(from, e_.mul(i, step), e_.type_of(storage)), storage,
             e_.at(to.pointer, e_.mul(i, to.stride)), to.columns);
  });
  e_.loop(e_.mul(valid, to.stride), e_.i64(to.rows * to.stride), e_.lanes(),
          [&](Value at) { e_.store(e_.splat(0.f), e_.at(to.pointer, at)); });
}

void TileOps::load_rows_to(Value from, Value step, Buffer to) {
  e_.loop(e_.i64(0), e_.i64(to.rows), 1, [&](Value i) {
    load_row(e_.at(from, e_.mul(i, step)), Precision::f32, e_.at(to.pointer, to.row_start(e_, i)),
             to.columns);
  });
}

// As they are.
void TileOps::copy_rows(Value from, Value step, Precision storage, Buffer to, Value valid) {
  auto type = mlir::VectorType::get(e_.lanes(), e_.type_of(storage));
  Value zero =
      e_.builder().create<mlir::arith::ConstantOp>(e_.loc(), e_.builder().getZeroAttr(type));
  e_.loop(e_.i64(0), e_.i64(to.rows), 1, [&](Value i) {
    Value there = e_.builder().create<mlir::arith::CmpIOp>(
        e_.loc(), mlir::arith::CmpIPredicate::slt, i, valid);
    Value row = e_.minimum(i, e_.sub(valid, e_.i64(1)));
    e_.loop(e_.i64(0), e_.i64(to.columns), e_.lanes(), [&](Value j) {
      Value source = e_.at(from, e_.add(e_.mul(row, step), j), e_.type_of(storage));
      Value x = e_.builder().create<mlir::LLVM::LoadOp>(e_.loc(), type, source, 2);
      e_.store(e_.select(there, x, zero),
               e_.at(to.pointer, e_.add(e_.mul(i, to.stride), j), e_.type_of(storage)));
    });
  });
}

void TileOps::copy_rows_back(Buffer from, Value to, Value step, Precision storage, Value valid) {
  mlir::Type number = e_.type_of(storage);
  auto type = mlir::VectorType::get(e_.lanes(), number);
  e_.loop(e_.i64(0), valid, 1, [&](Value i) {
    e_.loop(e_.i64(0), e_.i64(from.columns), e_.lanes(), [&](Value j) {
      Value source = e_.at(from.pointer, e_.add(e_.mul(i, from.stride), j), number);
      e_.store(e_.builder().create<mlir::LLVM::LoadOp>(e_.loc(), type, source, 2),
               e_.at(to, e_.add(e_.mul(i, step), j), number));
    });
  });
}

void TileOps::load_column(Value from, Value step, Precision storage, Buffer to, Value valid) {
  for (int64_t j = 0; j < to.stride; j += e_.lanes())
    e_.store(e_.splat(0.f), e_.at(to.pointer, e_.i64(j)));
  e_.loop(e_.i64(0), valid, 1, [&](Value i) {
    e_.store(e_.load_as_f32(from, e_.mul(i, step), storage, false), e_.at(to.pointer, i));
  });
}

void TileOps::store_rows(Buffer from, Value to, Value step, Precision storage, Value valid) {
  int64_t whole = from.columns / e_.lanes() * e_.lanes();
  e_.loop(e_.i64(0), valid, 1, [&](Value i) {
    Value source = e_.at(from.pointer, from.row_start(e_, i)), start = e_.mul(i, step);
    e_.loop(e_.i64(0), e_.i64(whole), e_.lanes(), [&](Value j) {
      e_.store_as(e_.load_vector(e_.at(source, j)), to, e_.add(start, j), storage);
    });
    for (int64_t j = whole; j < from.columns; ++j)
      e_.store_as(e_.load(e_.at(source, e_.i64(j))), to, e_.add(start, j), storage);
  });
}

void TileOps::store_column(Buffer from, Value to, Value step, Precision storage, Value valid) {
  e_.loop(e_.i64(0), valid, 1, [&](Value i) {
    e_.store_as(e_.load(e_.at(from.pointer, i)), to, e_.mul(i, step), storage);
  });
}

}  // namespace linnet::cpu
