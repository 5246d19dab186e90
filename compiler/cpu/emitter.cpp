#include "compiler/cpu/emitter.h"

#include <cmath>

namespace linnet::cpu {

using mlir::Value;
namespace arith = mlir::arith;
namespace LLVM = mlir::LLVM;

Emitter::Emitter(mlir::OpBuilder& builder, const Target& target)
    : b_(builder),
      lanes_(target.lanes),
      ahead_into_(target.ahead_into),
      has_fma_(target.has_fma),
      has_f16_(target.has_f16),
      rounds_to_bf16_(target.narrow_unit != NarrowUnit::none) {}

Value Emitter::constant(mlir::TypedAttr value) {
  return b_.create<arith::ConstantOp>(loc(), value);
}
Value Emitter::i64(int64_t value) { return constant(b_.getI64IntegerAttr(value)); }
Value Emitter::f32(float value) { return constant(b_.getF32FloatAttr(value)); }
Value Emitter::splat(float value) {
  return constant(mlir::DenseElementsAttr::get(mlir::ShapedType(vector_type()), value));
}
Value Emitter::splat(Value scalar) {
  return b_.create<mlir::vector::SplatOp>(loc(), scalar, vector_type());
}
Value Emitter::int_splat(int32_t value) {
  return constant(mlir::DenseElementsAttr::get(mlir::ShapedType(int_vector_type()), value));
}
Value Emitter::lane_numbers() {
  llvm::SmallVector<int32_t> numbers(lanes_);
  for (int64_t i = 0; i < lanes_; ++i) numbers[i] = i;
  return constant(
      mlir::DenseElementsAttr::get(mlir::ShapedType(int_vector_type()), llvm::ArrayRef(numbers)));
}

Value Emitter::add(Value a, Value b) { return b_.create<arith::AddIOp>(loc(), a, b); }
Value Emitter::sub(Value a, Value b) { return b_.create<arith::SubIOp>(loc(), a, b); }
Value Emitter::mul(Value a, Value b) { return b_.create<arith::MulIOp>(loc(), a, b); }
Value Emitter::add(Value a, int64_t b) { return b == 0 ? a : add(a, i64(b)); }
Value Emitter::mul(Value a, int64_t b) { return b == 1 ? a : mul(a, i64(b)); }
Value Emitter::minimum(Value a, Value b) { return b_.create<arith::MinSIOp>(loc(), a, b); }

Value Emitter::divide(Value a, int64_t b) { return b_.create<arith::DivUIOp>(loc(), a, i64(b)); }

Value Emitter::fadd(Value a, Value b) { return b_.create<arith::AddFOp>(loc(), a, b); }
Value Emitter::fsub(Value a, Value b) { return b_.create<arith::SubFOp>(loc(), a, b); }
Value Emitter::fmul(Value a, Value b) { return b_.create<arith::MulFOp>(loc(), a, b); }
Value Emitter::fma(Value a, Value b, Value c) {
  if (!has_fma_) return fadd(fmul(a, b), c);  // LLVM would call the C library
  return b_.create<mlir::vector::FMAOp>(loc(), a, b, c);
}
Value Emitter::select(Value condition, Value a, Value b) {
  return b_.create<arith::SelectOp>(loc(), condition, a, b);
}

std::pair<Value, Value> Emitter::exchange(Value a, Value b, int64_t half) {
  llvm::SmallVector<int64_t> low, high;  // lanes of a, then of b
  for (int64_t k = 0; k < lanes_; ++k) {
    low.push_back(k & half ? lanes_ + k - half : k);
    high.push_back(k & half ? lanes_ + k : k + half);
  }
  return {b_.create<mlir::vector::ShuffleOp>(loc(), a, b, low),
          b_.create<mlir::vector::ShuffleOp>(loc(), a, b, high)};
}

Value Emitter::total(Value vector) {
  return b_.create<mlir::vector::ReductionOp>(loc(), mlir::vector::CombiningKind::ADD, vector,
                                              arith::FastMathFlags::reassoc);
}

// By exchanging halves, quarters, ... between rows.
void Emitter::transpose(Values& rows) {
  for (int64_t half = lanes_ / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < lanes_; ++i)
      if (!(i & half)) std::tie(rows[i], rows[i + half]) = exchange(rows[i], rows[i + half], half);
}

Value Emitter::columns_up_to(Value first_column, Value row, bool below) {
  Value limit = b_.create<arith::TruncIOp>(loc(), b_.getI32Type(), sub(row, first_column));
  Value limits = b_.create<mlir::vector::SplatOp>(loc(), limit, int_vector_type());
  auto predicate = below ? arith::CmpIPredicate::slt : arith::CmpIPredicate::sle;
  return b_.create<arith::CmpIOp>(loc(), predicate, lane_numbers(), limits);
}

Value Emitter::at(Value pointer, Value index, mlir::Type type) {
  return b_.create<LLVM::GEPOp>(loc(), pointer_type(), type, pointer,
                                llvm::ArrayRef<LLVM::GEPArg>{index});
}
Value Emitter::at(Value pointer, Value index) { return at(pointer, index, f32_type()); }
Value Emitter::load(Value pointer) {
  return b_.create<LLVM::LoadOp>(loc(), f32_type(), pointer, 4);
}
Value Emitter::load_vector(Value pointer) {
  return b_.create<LLVM::LoadOp>(loc(), vector_type(), pointer, 4);
}
void Emitter::store(Value value, Value pointer) {
  b_.create<LLVM::StoreOp>(loc(), value, pointer, 2);
}
void Emitter::store_past_caches(Value vector, Value pointer) {
  b_.create<LLVM::StoreOp>(loc(), vector, pointer, lanes_ * sizeof(float), /*isVolatile=*/false,
                           /*isNonTemporal=*/true);
}
void Emitter::fence_stores() {
  b_.create<LLVM::CallIntrinsicOp>(loc(), mlir::TypeRange(),
                                   b_.getStringAttr("llvm.x86.sse.sfence"), mlir::ValueRange());
}
void Emitter::prefetch(Value pointer, bool write, Ahead ahead) {
  constexpr int64_t kLevels = 4, kData = 1;  // 3 is the first cache
  int64_t cache = ahead == Ahead::near ? 1 : ahead == Ahead::much ? 2 : ahead_into_;
  b_.create<LLVM::Prefetch>(loc(), pointer, write, kLevels - cache, kData);
}
Value Emitter::load_int(Value pointer) {
  return b_.create<LLVM::LoadOp>(loc(), b_.getI64Type(), pointer, 8);
}
Value Emitter::load_pointer(Value pointer) {
  return b_.create<LLVM::LoadOp>(loc(), pointer_type(), pointer, 8);
}

void Emitter::loop(Value from, Value to, int64_t step, llvm::function_ref<void(Value)> body) {
  loop(from, to, step, {}, [&](Value i, const Values&) {
    body(i);
    return Values();
  });
}

Values Emitter::loop(Value from, Value to, int64_t step, const Values& init,
                     llvm::function_ref<Values(Value, const Values&)> body) {
  // Of one turn at most, as loops over the rows of a single token are.
  auto first = mlir::getConstantIntValue(from), end = mlir::getConstantIntValue(to);
  if (first && end && *end <= *first + step) return *first < *end ? body(from, init) : init;
  auto loop = b_.create<mlir::scf::ForOp>(loc(), from, to, i64(step), init);
  mlir::OpBuilder::InsertionGuard guard(b_);
  if (init.empty()) loop.getBody()->getTerminator()->erase();
  b_.setInsertionPointToEnd(loop.getBody());
  Values next = body(loop.getInductionVar(), Values(loop.getRegionIterArgs()));
  b_.create<mlir::scf::YieldOp>(loc(), next);
  return Values(loop.getResults());
}

void Emitter::when(Value condition, llvm::function_ref<void()> then,
                   llvm::function_ref<void()> otherwise) {
  auto branch = [](llvm::function_ref<void()> body) {
    return [body](mlir::OpBuilder& b, mlir::Location at) {
      body();
      b.create<mlir::scf::YieldOp>(at);
    };
  };
  auto first = branch(then), second = branch(otherwise);
  if (otherwise)
    b_.create<mlir::scf::IfOp>(loc(), condition, first, second);
  else
    b_.create<mlir::scf::IfOp>(loc(), condition, first);
}

Value Emitter::compare(arith::CmpFPredicate predicate, Value a, Value b) {
  return b_.create<arith::CmpFOp>(loc(), predicate, a, b);
}

// Horner's rule, the highest power first.
Value Emitter::polynomial(Value x, llvm::ArrayRef<float> coefficients) {
  Value sum = splat(coefficients.front());
  for (float c : coefficients.drop_front()) sum = fma(sum, x, splat(c));
  return sum;
}

// 2^n e^r with |r| <= ln(2)/2, the polynomial fitted to a relative error of 4e-9. Adding a large
// number leaves n, the nearest whole one, in the lowest bits, from where it goes to the exponent.
// Zero below the smallest normal float.
Value Emitter::exp(Value x) {
  auto bits = [&](Value y) { return b_.create<arith::BitcastOp>(loc(), int_vector_type(), y); };
  Value large = splat(12582912.f);
  Value shifted = fma(x, splat(1.44269504f), large), n = fsub(shifted, large);
  Value r = fma(n, splat(-0.693359375f), x);  // ln 2 in two parts, the first exact in few bits
  r = fma(n, splat(2.12194440e-4f), r);
  Value p = polynomial(
      r, {1.3814541e-3f, 8.3687454e-3f, 4.1668389e-2f, 1.6666521e-1f, 4.9999994e-1f, 1.f, 1.f});
  Value raised = b_.create<arith::ShLIOp>(loc(), bits(shifted), int_splat(23));
  Value y = b_.create<arith::BitcastOp>(loc(), vector_type(),
                                        b_.create<arith::AddIOp>(loc(), bits(p), raised));
  y = select(compare(arith::CmpFPredicate::OLT, x, splat(-87.33654f)), splat(0.f), y);
  Value beyond = fmul(x, splat(INFINITY));  // and what is no number stays none
  return select(compare(arith::CmpFPredicate::UGT, x, splat(88.72283f)), beyond, y);
}

// x = m 2^n with m in [1/sqrt(2), sqrt(2)); log m = 2 atanh(s) with s = (m - 1) / (m + 1), by its
// series.
Value Emitter::log(Value x) {
  Value tiny = compare(arith::CmpFPredicate::OLT, x, splat(1.17549435e-38f));
  Value scaled = select(tiny, fmul(x, splat(8388608.f)), x);
  Value bits = b_.create<arith::BitcastOp>(loc(), int_vector_type(), scaled);
  Value from_low = b_.create<arith::SubIOp>(loc(), bits, int_splat(0x3f3504f3));  // 1/sqrt(2)
  Value exponent = b_.create<arith::ShRSIOp>(loc(), from_low, int_splat(23));
  Value m_bits = b_.create<arith::SubIOp>(loc(), bits,
                                          b_.create<arith::ShLIOp>(loc(), exponent, int_splat(23)));
  Value f = fsub(b_.create<arith::BitcastOp>(loc(), vector_type(), m_bits), splat(1.f));
  Value n = b_.create<arith::SIToFPOp>(loc(), vector_type(), exponent);
  n = fsub(n, select(tiny, splat(23.f), splat(0.f)));
  Value s = b_.create<arith::DivFOp>(loc(), f, fadd(f, splat(2.f)));
  Value square = fmul(s, s);
  Value tail = fmul(square, polynomial(square, {2.f / 11, 2.f / 9, 2.f / 7, 2.f / 5, 2.f / 3}));
  // 2 s = f - s f, which keeps the digits of f.
  Value y = fma(n, splat(-2.12194440e-4f), fmul(s, fsub(tail, f)));
  y = fma(n, splat(0.693359375f), fadd(y, f));
  y = select(compare(arith::CmpFPredicate::OEQ, x, splat(INFINITY)), x, y);
  y = select(compare(arith::CmpFPredicate::OEQ, x, splat(0.f)), splat(-INFINITY), y);
  return select(compare(arith::CmpFPredicate::OGE, x, splat(0.f)), y, splat(NAN));
}

// a / (1 + e) with a = 1 or e, and what rounding 1 + e lost put back: the rest a - y - y e.
Value Emitter::sigmoid(Value x) {
  Value e = exp(b_.create<arith::NegFOp>(loc(), b_.create<mlir::math::AbsFOp>(loc(), x)));
  Value positive = compare(arith::CmpFPredicate::OGE, x, splat(0.f));
  Value a = select(positive, splat(1.f), e);
  Value y = b_.create<arith::DivFOp>(loc(), a, fadd(splat(1.f), e));
  Value rest = fma(b_.create<arith::NegFOp>(loc(), y), e, fsub(a, y));
  return fma(rest, select(positive, y, fsub(splat(1.f), y)), y);
}

Value Emitter::softplus(Value x) {
  Value e = exp(b_.create<arith::NegFOp>(loc(), b_.create<mlir::math::AbsFOp>(loc(), x)));
  // log(1 + e) = 2 atanh(s) with s = e / (e + 2), by its series, as in log.
  Value s = b_.create<arith::DivFOp>(loc(), e, fadd(e, splat(2.f)));
  Value square = fmul(s, s);
  Value tail =
      fmul(square,
           polynomial(square, {2.f / 15, 2.f / 13, 2.f / 11, 2.f / 9, 2.f / 7, 2.f / 5, 2.f / 3}));
  Value log1p = fma(s, fsub(tail, e), e);
  return fadd(b_.create<arith::MaximumFOp>(loc(), x, splat(0.f)), log1p);
}

// (1 - e) / (1 + e) with e = exp(-2 |x|); near zero, where that cancels, x + x^3 P(x^2) with P
// fitted to a relative error of 3e-10.
Value Emitter::tanh(Value x) {
  Value size = b_.create<mlir::math::AbsFOp>(loc(), x);
  Value e = exp(fmul(size, splat(-2.f)));
  Value far = b_.create<arith::DivFOp>(loc(), fsub(splat(1.f), e), fadd(splat(1.f), e));
  Value square = fmul(x, x);
  Value p = polynomial(square, {2.0595798e-3f, -8.0856252e-3f, 2.1663403e-2f, -5.3939942e-2f,
                                1.3333152e-1f, -3.3333328e-1f});
  Value near = fma(fmul(size, square), p, size);
  Value y = select(compare(arith::CmpFPredicate::OLT, size, splat(0.65f)), near, far);
  return b_.create<mlir::math::CopySignOp>(loc(), y, x);
}

Values Emitter::loop_by_two(int64_t from, int64_t to, Values values,
                            llvm::function_ref<Values(Value, const Values&)> step) {
  int64_t even = from + (to - from) / 2 * 2;
  if (even > from)
    values = loop(i64(from), i64(even), 2, values, [&](Value k, const Values& so_far) {
      return step(add(k, 1), step(add(k, int64_t(0)), so_far));
    });
  return even < to ? step(i64(even), values) : values;
}

}  // namespace linnet::cpu
