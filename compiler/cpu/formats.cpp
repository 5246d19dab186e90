// The part of Emitter about numbers in memory: f32, bf16 and f16.
#include "compiler/cpu/emitter.h"

namespace linnet::cpu {

using chunk::Precision;
using mlir::Value;
namespace arith = mlir::arith;

mlir::Type Emitter::type_of(Precision storage) {
  if (storage == Precision::bf16) return b_.getBF16Type();
  if (storage == Precision::f16) return b_.getF16Type();
  return b_.getF32Type();
}

// bf16 is the upper half of an f32.
Value Emitter::widen(Value value) {
  mlir::Type element = mlir::getElementTypeOrSelf(value.getType());
  if (element.isF32()) return value;
  auto vector = llvm::dyn_cast<mlir::VectorType>(value.getType());
  auto like = [&](mlir::Type type) -> mlir::Type {
    return vector ? mlir::Type(vector.clone(type)) : type;
  };
  if (element.isF16()) return b_.create<arith::ExtFOp>(loc(), like(f32_type()), value);
  Value bits = b_.create<arith::BitcastOp>(loc(), like(b_.getI16Type()), value);
  bits = b_.create<arith::ExtUIOp>(loc(), like(b_.getI32Type()), bits);
  bits = b_.create<arith::ShLIOp>(loc(), bits, int_like(bits, 16));
  return b_.create<arith::BitcastOp>(loc(), like(f32_type()), bits);
}

// A whole number of the shape of a vector or scalar of i32.
Value Emitter::int_like(Value value, int32_t number) {
  auto vector = llvm::dyn_cast<mlir::VectorType>(value.getType());
  if (!vector) return b_.create<arith::ConstantOp>(loc(), b_.getI32IntegerAttr(number));
  return b_.create<arith::ConstantOp>(loc(), mlir::DenseElementsAttr::get(vector, number));
}

// To nearest even; bf16 by integer arithmetic where a machine has nothing else.
Value Emitter::narrow(Value value, Precision storage) {
  mlir::Type narrow = type_of(storage);
  if (narrow.isF32()) return value;
  auto vector = llvm::dyn_cast<mlir::VectorType>(value.getType());
  auto like = [&](mlir::Type element) -> mlir::Type {
    return vector ? mlir::Type(vector.clone(element)) : element;
  };
  if (storage == Precision::f16 || rounds_to_bf16_)
    return b_.create<arith::TruncFOp>(loc(), like(narrow), value);
  Value bits = b_.create<arith::BitcastOp>(loc(), like(b_.getI32Type()), value);
  Value odd = b_.create<arith::AndIOp>(
      loc(), b_.create<arith::ShRUIOp>(loc(), bits, int_like(bits, 16)), int_like(bits, 1));
  Value rounded = b_.create<arith::AddIOp>(
      loc(), bits, b_.create<arith::AddIOp>(loc(), odd, int_like(bits, 0x7fff)));
  Value nan = b_.create<arith::CmpFOp>(loc(), arith::CmpFPredicate::UNO, value, value);
  rounded = b_.create<arith::SelectOp>(loc(), nan, int_like(bits, 0x7fc00000), rounded);
  Value high = b_.create<arith::TruncIOp>(
      loc(), like(b_.getI16Type()), b_.create<arith::ShRUIOp>(loc(), rounded, int_like(bits, 16)));
  return b_.create<arith::BitcastOp>(loc(), like(narrow), high);
}

Value Emitter::load_as_f32(Value from, Value index, Precision storage, bool vector) {
  mlir::Type type = type_of(storage);
  Value pointer = at(from, index, type);
  if (vector) type = mlir::VectorType::get(lanes_, type);
  return widen(b_.create<mlir::LLVM::LoadOp>(loc(), type, pointer, 2));
}

void Emitter::store_as(Value value, Value to, Value index, Precision storage) {
  store(narrow(value, storage), at(to, index, type_of(storage)));
}

}  // namespace linnet::cpu
