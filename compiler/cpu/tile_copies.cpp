// The part of TileOps between the caller's memory and tiles: copies with conversion.
#include "compiler/cpu/tile_ops.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;
namespace arith = mlir::arith;

mlir::Type TileOps::type_of(Precision storage) {
  auto& b = e_.builder();
  if (storage == Precision::bf16) return b.getBF16Type();
  if (storage == Precision::f16) return b.getF16Type();
  return b.getF32Type();
}

// bf16 is the upper half of an f32.
Value TileOps::widen(Value value) {
  auto& b = e_.builder();
  mlir::Type element = mlir::getElementTypeOrSelf(value.getType());
  if (element.isF32()) return value;
  auto vector = llvm::dyn_cast<mlir::VectorType>(value.getType());
  auto like = [&](mlir::Type type) -> mlir::Type {
    return vector ? mlir::Type(vector.clone(type)) : type;
  };
  if (element.isF16()) return b.create<arith::ExtFOp>(e_.loc(), like(e_.f32_type()), value);
  Value bits = b.create<arith::BitcastOp>(e_.loc(), like(b.getI16Type()), value);
  bits = b.create<arith::ExtUIOp>(e_.loc(), like(b.getI32Type()), bits);
  bits = b.create<arith::ShLIOp>(e_.loc(), bits, int_like(bits, 16));
  return b.create<arith::BitcastOp>(e_.loc(), like(e_.f32_type()), bits);
}

// A whole number of the shape of a vector or scalar of i32.
Value TileOps::int_like(Value value, int32_t number) {
  auto& b = e_.builder();
  auto vector = llvm::dyn_cast<mlir::VectorType>(value.getType());
  if (!vector) return b.create<arith::ConstantOp>(e_.loc(), b.getI32IntegerAttr(number));
  return b.create<arith::ConstantOp>(e_.loc(), mlir::DenseElementsAttr::get(vector, number));
}

// To nearest even; bf16 by integer arithmetic, which every machine has.
Value TileOps::narrow(Value value, Precision storage) {
  auto& b = e_.builder();
  mlir::Type narrow = type_of(storage);
  if (narrow.isF32()) return value;
  auto vector = llvm::dyn_cast<mlir::VectorType>(value.getType());
  auto like = [&](mlir::Type element) -> mlir::Type {
    return vector ? mlir::Type(vector.clone(element)) : element;
  };
  if (storage == Precision::f16) return b.create<arith::TruncFOp>(e_.loc(), like(narrow), value);
  Value bits = b.create<arith::BitcastOp>(e_.loc(), like(b.getI32Type()), value);
  Value odd = b.create<arith::AndIOp>(
      e_.loc(), b.create<arith::ShRUIOp>(e_.loc(), bits, int_like(bits, 16)), int_like(bits, 1));
  Value rounded = b.create<arith::AddIOp>(
      e_.loc(), bits, b.create<arith::AddIOp>(e_.loc(), odd, int_like(bits, 0x7fff)));
  Value nan = b.create<arith::CmpFOp>(e_.loc(), arith::CmpFPredicate::UNO, value, value);
  rounded = b.create<arith::SelectOp>(e_.loc(), nan, int_like(bits, 0x7fc00000), rounded);
  Value high =
      b.create<arith::TruncIOp>(e_.loc(), like(b.getI16Type()),
                                b.create<arith::ShRUIOp>(e_.loc(), rounded, int_like(bits, 16)));
  return b.create<arith::BitcastOp>(e_.loc(), like(narrow), high);
}

Value TileOps::load_as_f32(Value from, Value index, Precision storage, bool vector) {
  mlir::Type type = type_of(storage);
  Value pointer = e_.at(from, index, type);
  if (vector) type = mlir::VectorType::get(e_.lanes(), type);
  return widen(e_.builder().create<mlir::LLVM::LoadOp>(e_.loc(), type, pointer, 2));
}

void TileOps::store_as(Value value, Value to, Value index, Precision storage) {
  e_.store(narrow(value, storage), e_.at(to, index, type_of(storage)));
}

void TileOps::load_row(Value from, Precision storage, Value to, int64_t columns) {
  int64_t whole = columns / e_.lanes() * e_.lanes();
  int64_t together = whole % (4 * e_.lanes()) == 0 ? 4 : 1;
  e_.loop(e_.i64(0), e_.i64(whole), together * e_.lanes(), [&](Value j) {
    for (int64_t v = 0; v < together; ++v) {
      Value at = e_.add(j, v * e_.lanes());
      e_.store(load_as_f32(from, at, storage, true), e_.at(to, at));
    }
  });
  if (whole == columns) return;
  e_.store(e_.splat(0.f), e_.at(to, e_.i64(whole)));
  for (int64_t j = whole; j < columns; ++j)
    e_.store(load_as_f32(from, e_.i64(j), storage, false), e_.at(to, e_.i64(j)));
}

void TileOps::load_rows(Value from, Value step, Precision storage, Buffer to, Value valid) {
  e_.loop(e_.i64(0), valid, 1, [&](Value i) {
    load_row(e_.at(from, e_.mul(i, step), type_of(storage)), storage,
             e_.at(to.pointer, e_.mul(i, to.stride)), to.columns);
  });
  e_.loop(e_.mul(valid, to.stride), e_.i64(to.rows * to.stride), e_.lanes(),
          [&](Value at) { e_.store(e_.splat(0.f), e_.at(to.pointer, at)); });
}

void TileOps::load_rows_to(Value from, Value step, Buffer to) {
  e_.loop(e_.i64(0), e_.i64(to.rows), 1, [&](Value i) {
    load_row(e_.at(from, e_.mul(i, step)), Precision::f32,
             e_.at(to.pointer, blocks_.row_start(to, i)), to.columns);
  });
}

void TileOps::load_column(Value from, Value step, Precision storage, Buffer to, Value valid) {
  for (int64_t j = 0; j < to.stride; j += e_.lanes())
    e_.store(e_.splat(0.f), e_.at(to.pointer, e_.i64(j)));
  e_.loop(e_.i64(0), valid, 1, [&](Value i) {
    e_.store(load_as_f32(from, e_.mul(i, step), storage, false), e_.at(to.pointer, i));
  });
}

void TileOps::store_rows(Buffer from, Value to, Value step, Precision storage, Value valid) {
  int64_t whole = from.columns / e_.lanes() * e_.lanes();
  e_.loop(e_.i64(0), valid, 1, [&](Value i) {
    Value source = e_.at(from.pointer, e_.mul(i, from.stride)), start = e_.mul(i, step);
    e_.loop(e_.i64(0), e_.i64(whole), e_.lanes(), [&](Value j) {
      store_as(e_.load_vector(e_.at(source, j)), to, e_.add(start, j), storage);
    });
    for (int64_t j = whole; j < from.columns; ++j)
      store_as(e_.load(e_.at(source, e_.i64(j))), to, e_.add(start, j), storage);
  });
}

void TileOps::store_column(Buffer from, Value to, Value step, Precision storage, Value valid) {
  e_.loop(e_.i64(0), valid, 1, [&](Value i) {
    store_as(e_.load(e_.at(from.pointer, i)), to, e_.mul(i, step), storage);
  });
}

}  // namespace linnet::cpu
