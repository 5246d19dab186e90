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

namespace {

// The same shape with other elements.
mlir::Type like(mlir::Type shape, mlir::Type element) {
  auto vector = llvm::dyn_cast<mlir::VectorType>(shape);
  return vector ? mlir::Type(vector.clone(element)) : element;
}

// Arithmetic on the bits of numbers, one or a vector of them.
class Bits {
 public:
  Bits(mlir::OpBuilder& builder, Value value) : b_(&builder), value_(value) {}

  static Bits of(mlir::OpBuilder& b, Value number) {
    unsigned width = mlir::getElementTypeOrSelf(number.getType()).getIntOrFloatBitWidth();
    return {b, b.create<arith::BitcastOp>(b.getUnknownLoc(),
                                          like(number.getType(), b.getIntegerType(width)), number)};
  }
  Value as(mlir::Type element) const { return make<arith::BitcastOp>(element); }
  Bits widened() const { return {*b_, make<arith::ExtUIOp>(b_->getI32Type())}; }
  Bits halved() const { return {*b_, make<arith::TruncIOp>(b_->getI16Type())}; }
  Value converted() const { return make<arith::SIToFPOp>(b_->getF32Type()); }

  Bits operator+(Bits o) const { return with<arith::AddIOp>(o); }
  Bits operator-(Bits o) const { return with<arith::SubIOp>(o); }
  Bits operator&(int32_t o) const { return with<arith::AndIOp>(number(o)); }
  Bits operator|(Bits o) const { return with<arith::OrIOp>(o); }
  Bits operator+(int32_t o) const { return *this + number(o); }
  Bits operator-(int32_t o) const { return *this - number(o); }
  Bits operator<<(int32_t o) const { return with<arith::ShLIOp>(number(o)); }
  Bits operator>>(int32_t o) const { return with<arith::ShRUIOp>(number(o)); }
  // `other` where `what` is less than a number; both are not negative.
  Bits where_less(Bits what, int32_t than, Bits other) const {
    return where(b_->create<arith::CmpIOp>(b_->getUnknownLoc(), arith::CmpIPredicate::slt,
                                           what.value_, number(than).value_),
                 other);
  }
  Bits where(Value condition, Bits other) const {
    return {*b_, b_->create<arith::SelectOp>(b_->getUnknownLoc(), condition, other.value_, value_)};
  }
  Bits number(int32_t bits) const {
    auto vector = llvm::dyn_cast<mlir::VectorType>(value_.getType());
    mlir::TypedAttr attribute = b_->getI32IntegerAttr(bits);
    if (vector) attribute = mlir::DenseElementsAttr::get(vector, bits);
    return {*b_, b_->create<arith::ConstantOp>(b_->getUnknownLoc(), attribute)};
  }
  // Without its lowest bits: to the nearest, from the middle to the even one.
  Bits rounded(int32_t bits) const {
    return (*this + (((*this >> bits) & 1) + ((1 << (bits - 1)) - 1))) >> bits;
  }

 private:
  template <class Op>
  Value make(mlir::Type element) const {
    return b_->create<Op>(b_->getUnknownLoc(), like(value_.getType(), element), value_);
  }
  template <class Op>
  Bits with(Bits other) const {
    return {*b_, b_->create<Op>(b_->getUnknownLoc(), value_, other.value_)};
  }

  mlir::OpBuilder* b_;
  Value value_;
};

// What has an exponent of f16 keeps its bits, 112 further up; below, numbers are whole multiples of
// 2^-24.
Value f16_to_f32(mlir::OpBuilder& b, Value value) {
  Bits bits = Bits::of(b, value).widened(), size = bits & 0x7fff, sign = (bits & 0x8000) << 16;
  Bits normal = (size << 13) + (112 << 23), beyond = (size << 13) + (224 << 23);
  Value least = b.create<arith::MulFOp>(b.getUnknownLoc(), size.converted(),
                                        size.number(0x33800000).as(b.getF32Type()));
  Bits result =
      beyond.where_less(size, 31 << 10, normal).where_less(size, 1 << 10, Bits::of(b, least));
  return (result | sign).as(b.getF32Type());
}

// Numbers below the normal ones of f16 are rounded by what adding 0.5 leaves of them.
Value f32_to_f16(mlir::OpBuilder& b, Value value) {
  Bits bits = Bits::of(b, value), size = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
  Bits normal = (size - (112 << 23)).rounded(13);
  Bits half = size.number(0x3f000000);
  Bits small = Bits::of(b, b.create<arith::AddFOp>(b.getUnknownLoc(), size.as(b.getF32Type()),
                                                   half.as(b.getF32Type()))) -
               half;
  Value nan = b.create<arith::CmpFOp>(b.getUnknownLoc(), arith::CmpFPredicate::UNO, value, value);
  Bits result = size.number(0x7c00)
                    .where_less(size, 143 << 23, normal)
                    .where_less(size, 113 << 23, small)
                    .where(nan, size.number(0x7e00));
  return (result | sign).halved().as(b.getF16Type());
}

// bf16 is the upper half of an f32.
Value bf16_to_f32(mlir::OpBuilder& b, Value value) {
  return (Bits::of(b, value).widened() << 16).as(b.getF32Type());
}

Value f32_to_bf16(mlir::OpBuilder& b, Value value) {
  Bits bits = Bits::of(b, value);
  Value nan = b.create<arith::CmpFOp>(b.getUnknownLoc(), arith::CmpFPredicate::UNO, value, value);
  return bits.rounded(16).where(nan, bits.number(0x7fc0)).halved().as(b.getBF16Type());
}

}  // namespace

Value Emitter::widen(Value value) {
  mlir::Type element = mlir::getElementTypeOrSelf(value.getType());
  if (element.isF32()) return value;
  if (element.isBF16()) return bf16_to_f32(b_, value);
  if (!has_f16_) return f16_to_f32(b_, value);
  return b_.create<arith::ExtFOp>(loc(), like(value.getType(), f32_type()), value);
}

// To nearest even, by arithmetic on bits where a machine has nothing else.
Value Emitter::narrow(Value value, Precision storage) {
  if (storage == Precision::f32) return value;
  bool bf16 = storage == Precision::bf16;
  if (bf16 ? rounds_to_bf16_ : has_f16_)
    return b_.create<arith::TruncFOp>(loc(), like(value.getType(), type_of(storage)), value);
  return bf16 ? f32_to_bf16(b_, value) : f32_to_f16(b_, value);
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
