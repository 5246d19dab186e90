#include "compiler/interpreter/evaluate.h"

#include <fmt/format.h>

#include "linnet/error.h"
#include "llvm/ADT/TypeSwitch.h"

namespace linnet::interpreter {

using namespace chunk;
namespace arith = mlir::arith;
namespace math = mlir::math;

namespace {

template <class T>
using Tiles = llvm::function_ref<const interpreter::Tile<T>&(mlir::Value)>;

Precision or_f32(std::optional<Precision> precision) { return precision.value_or(Precision::f32); }

template <class T>
T sigmoid(T x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  T e = std::exp(x);
  return e / (1 + e);
}

template <class T>
T softplus(T x) {
  return std::max(x, T(0)) + std::log1p(std::exp(-std::fabs(x)));
}

template <class T, class F>
interpreter::Tile<T> map1(const interpreter::Tile<T>& x, F f) {
  interpreter::Tile<T> result = x;
  for (T& value : result.data) value = f(value);
  return result;
}

template <class T, class F>
interpreter::Tile<T> map2(const interpreter::Tile<T>& x, const interpreter::Tile<T>& y, F f) {
  interpreter::Tile<T> result = x;
  for (size_t i = 0; i < result.data.size(); ++i) result.data[i] = f(x.data[i], y.data[i]);
  return result;
}

template <class T>
interpreter::Tile<T> elementwise(mlir::Operation* op, Tiles<T> get) {
  using Result = interpreter::Tile<T>;
  auto x = [&](unsigned i) -> const Result& { return get(op->getOperand(i)); };
  auto with1 = [&](auto f) { return map1(x(0), f); };
  auto with2 = [&](auto f) { return map2(x(0), x(1), f); };
  return llvm::TypeSwitch<mlir::Operation*, Result>(op)
      .template Case<arith::AddFOp>([&](auto) { return with2([](T a, T b) { return a + b; }); })
      .template Case<arith::SubFOp>([&](auto) { return with2([](T a, T b) { return a - b; }); })
      .template Case<arith::MulFOp>([&](auto) { return with2([](T a, T b) { return a * b; }); })
      .template Case<arith::DivFOp>([&](auto) { return with2([](T a, T b) { return a / b; }); })
      .template Case<arith::MaximumFOp>(
          [&](auto) { return with2([](T a, T b) { return std::isnan(a) || a > b ? a : b; }); })
      .template Case<arith::CmpFOp>([&](arith::CmpFOp cmp) -> Result {
        if (cmp.getPredicate() != arith::CmpFPredicate::OGE)
          throw InternalError("interpreter: only cmpf oge is known");
        return with2([](T a, T b) { return T(a >= b); });
      })
      .template Case<arith::SelectOp>([&](auto) {
        Result result = x(2);
        for (size_t i = 0; i < result.data.size(); ++i)
          if (x(0).data[i] != 0) result.data[i] = x(1).data[i];
        return result;
      })
      .template Case<arith::NegFOp>([&](auto) { return with1([](T a) { return -a; }); })
      .template Case<math::ExpOp>([&](auto) { return with1([](T a) { return std::exp(a); }); })
      .template Case<math::LogOp>([&](auto) { return with1([](T a) { return std::log(a); }); })
      .template Case<math::SqrtOp>([&](auto) { return with1([](T a) { return std::sqrt(a); }); })
      .template Case<math::RsqrtOp>(
          [&](auto) { return with1([](T a) { return 1 / std::sqrt(a); }); })
      .template Case<math::TanhOp>([&](auto) { return with1([](T a) { return std::tanh(a); }); })
      .template Case<SigmoidOp>([&](auto) { return with1([](T a) { return sigmoid(a); }); })
      .template Case<SoftplusOp>([&](auto) { return with1([](T a) { return softplus(a); }); })
      .template Case<RoundOp>([&](RoundOp o) { return rounded(x(0), o.getPrecision()); })
      .Default([](mlir::Operation* o) -> Result {
        throw InternalError(
            fmt::format("interpreter: unknown op {}", o->getName().getStringRef().str()));
      });
}

template <class T>
interpreter::Tile<T> splat(arith::ConstantOp op) {
  auto value = llvm::cast<mlir::SplatElementsAttr>(op.getValue());
  return interpreter::Tile<T>(tile_of(op).getShape(), value.getSplatValue<float>());
}

template <class T>
interpreter::Tile<T> row_of(const interpreter::Tile<T>& x, int64_t index) {
  interpreter::Tile<T> result(llvm::ArrayRef(x.shape).drop_front());
  std::copy(x.row(index), x.row(index) + x.columns(), result.data.begin());
  return result;
}

template <class T>
interpreter::Tile<T> place_row(const interpreter::Tile<T>& x, int64_t index,
                               llvm::ArrayRef<int64_t> shape) {
  interpreter::Tile<T> result(shape);
  std::copy(x.data.begin(), x.data.end(), result.row(index));
  return result;
}

template <class T>
interpreter::Tile<T> valid(interpreter::Tile<T> x, int64_t rows) {
  std::fill(x.row(std::min(rows, x.rows())), x.data.data() + x.data.size(), T(0));
  return x;
}

template <class T>
interpreter::Tile<T> value_of(mlir::Operation* op, Tiles<T> get, int64_t valid_rows) {
  using Result = interpreter::Tile<T>;
  auto shape = tile_of(op->getResult(0)).getShape();
  return llvm::TypeSwitch<mlir::Operation*, Result>(op)
      .template Case<arith::ConstantOp>([](auto o) { return splat<T>(o); })
      .template Case<MatmulOp>([&](MatmulOp o) {
        return matmul(get(o.getLhs()), o.getTransposeLhs(), get(o.getRhs()), o.getTransposeRhs(),
                      or_f32(o.getPrecision()));
      })
      .template Case<CumsumOp>(
          [&](auto o) { return cumsum(get(o.getSource()), o.getExclusive(), o.getReverse()); })
      .template Case<MaskOp>([&](auto o) { return mask(get(o.getSource()), o.getTriangle()); })
      .template Case<DecayMaskOp>([&](auto o) {
        return decay_mask(get(o.getRows()), get(o.getColumns()), o.getTriangle());
      })
      .template Case<DecayDotOp>([&](DecayDotOp o) {
        return decay_dot(get(o.getLhs()), get(o.getRhs()), get(o.getRows()), get(o.getColumns()),
                         o.getTriangle(), o.getBoundAttr(), or_f32(o.getPrecision()));
      })
      .template Case<DecayApplyOp>([&](DecayApplyOp o) {
        return decay_apply(o.getSide(), get(o.getMatrix()), get(o.getVectors()), get(o.getRows()),
                           get(o.getColumns()), o.getTriangle(), o.getBoundAttr(),
                           or_f32(o.getPrecision()));
      })
      .template Case<InverseUnitLowerOp>([&](InverseUnitLowerOp o) {
        return inverse_unit_lower(get(o.getSource()), or_f32(o.getPrecision()));
      })
      .template Case<ReduceOp>(
          [&](auto o) { return reduce(get(o.getSource()), o.getDims(), shape); })
      .template Case<BroadcastOp>(
          [&](auto o) { return broadcast(get(o.getSource()), o.getDims(), shape); })
      .template Case<RowOp>([&](auto o) { return row_of(get(o.getSource()), o.getIndex()); })
      .template Case<PlaceRowOp>(
          [&](auto o) { return place_row(get(o.getSource()), o.getIndex(), shape); })
      .template Case<ValidOp>([&](auto o) { return valid(get(o.getSource()), valid_rows); })
      .Default([&](mlir::Operation* o) { return elementwise<T>(o, get); });
}

}  // namespace

template <class T>
TileRef<T> evaluate(mlir::Operation* op,
                    llvm::function_ref<const interpreter::Tile<T>&(mlir::Value)> get,
                    int64_t valid_rows) {
  return std::make_shared<const interpreter::Tile<T>>(value_of<T>(op, get, valid_rows));
}

template TileRef<float> evaluate<float>(mlir::Operation*, Tiles<float>, int64_t);
template TileRef<double> evaluate<double>(mlir::Operation*, Tiles<double>, int64_t);

}  // namespace linnet::interpreter
