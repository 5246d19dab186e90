#include "compiler/dialect/adjoint.h"

#include "llvm/ADT/TypeSwitch.h"

namespace linnet::chunk {

using mlir::LogicalResult;
using mlir::success;
using mlir::Value;
namespace arith = mlir::arith;
namespace math = mlir::math;

namespace {

// X = Z R with Z = (I + A)^-1: with Y = Z^T dX, dR = Y and dA = -stril(Y X^T), so that dZ is never
// formed (MATH.md d).
void adjoint_of_solve(MatmulOp op, InverseUnitLowerOp inverse, Value g, Builder& b,
                      AddGradient add) {
  Value y = b.matmul(op.getLhs(), true, g, false, "Y");
  add(op.getRhs(), y);
  add(inverse.getSource(),
      b.neg(b.mask(b.matmul(y, false, op.getResult(), true), Triangle::strict_lower)));
}

void adjoint_of_matmul(MatmulOp op, Value g, Builder& b, AddGradient add) {
  Value x = op.getLhs(), y = op.getRhs();
  bool tx = op.getTransposeLhs(), ty = op.getTransposeRhs();
  auto inverse = x.getDefiningOp<InverseUnitLowerOp>();
  if (inverse && !tx && !ty) return adjoint_of_solve(op, inverse, g, b, add);
  add(x, tx ? b.matmul(y, ty, g, true) : b.matmul(g, false, y, !ty));
  add(y, ty ? b.matmul(g, true, x, tx) : b.matmul(x, !tx, g, false));
}

// The diagonal of a product under one gate does not decay: it is taken out, exactly, so that its
// two shares in the gate's gradient need not cancel to the rounding of narrow operands.
void adjoint_of_decay_dot(DecayDotOp op, Value g, Builder& b, AddGradient add) {
  Value lhs = op.getLhs(), rhs = op.getRhs();
  auto apply = [&](Side side, Value vectors) {
    return b.decay_apply(
        side, g, vectors, op.getRows(), op.getColumns(),
        op.getRows() == op.getColumns() ? Triangle::strict_lower : op.getTriangle());
  };
  Value dl = apply(Side::rows, rhs), dr = apply(Side::columns, lhs);
  add(op.getRows(), b.mul(lhs, dl));
  add(op.getColumns(), b.neg(b.mul(rhs, dr)));
  if (op.getRows() == op.getColumns() && op.getTriangle() == Triangle::lower) {
    Value on_diagonal = b.sub(b.mask(g, Triangle::lower), b.mask(g, Triangle::strict_lower));
    Value diagonal = b.broadcast(b.reduce(on_diagonal, {1}, "diagonal"), {1}, tile_of(lhs));
    dl = b.add(dl, b.mul(diagonal, rhs));
    dr = b.add(dr, b.mul(diagonal, lhs));
  }
  add(lhs, dl);
  add(rhs, dr);
}

void adjoint_of_decay_apply(DecayApplyOp op, Value g, Builder& b, AddGradient add) {
  Value vectors = op.getVectors();
  bool rows = op.getSide() == Side::rows;
  add(op.getMatrix(), b.decay_dot(rows ? g : vectors, rows ? vectors : g, op.getRows(),
                                  op.getColumns(), op.getTriangle()));
  Value dv = b.decay_apply(rows ? Side::columns : Side::rows, op.getMatrix(), g, op.getRows(),
                           op.getColumns(), op.getTriangle());
  add(vectors, dv);
  Value result = b.mul(op.getResult(), g), source = b.mul(vectors, dv);
  add(op.getRows(), rows ? result : source);
  add(op.getColumns(), b.neg(rows ? source : result));
}

void adjoint_of_decay_mask(DecayMaskOp op, Value g, Builder& b, AddGradient add) {
  Value weighted = b.mul(g, op.getResult());
  // A token does not decay against itself: what it would add and take away is left out, as it may
  // be much larger than the rest.
  if (op.getRows() == op.getColumns()) weighted = b.mask(weighted, Triangle::strict_lower);
  add(op.getRows(), b.reduce(weighted, {1}));
  add(op.getColumns(), b.neg(b.reduce(weighted, {0})));
}

void adjoint_of_maximum(arith::MaximumFOp op, Value g, Builder& b, AddGradient add) {
  Value left = b.keep_at_least(g, op.getLhs(), op.getRhs());
  add(op.getLhs(), left);
  if (!op.getRhs().getDefiningOp<arith::ConstantOp>()) add(op.getRhs(), b.sub(g, left));
}

// y's derivative by x, for ops of one operand.
Value derivative(mlir::Operation* op, Builder& b) {
  Value x = op->getOperand(0), y = op->getResult(0);
  auto times = [&](float factor, Value value) { return b.mul(b.scalar(factor), value); };
  auto one_minus = [&](Value value) { return b.sub(b.scalar(1), value); };
  return llvm::TypeSwitch<mlir::Operation*, Value>(op)
      .Case<math::ExpOp>([&](auto) { return y; })
      .Case<math::LogOp>([&](auto) { return b.div(b.constant(tile_of(x), 1), x); })
      .Case<math::SqrtOp>([&](auto) { return b.div(b.constant(tile_of(x), 0.5f), y); })
      .Case<math::RsqrtOp>([&](auto) { return times(-0.5f, b.mul(y, b.mul(y, y))); })
      .Case<math::TanhOp>([&](auto) { return one_minus(b.mul(y, y)); })
      .Case<SigmoidOp>([&](auto) { return b.mul(y, one_minus(y)); })
      .Case<SoftplusOp>([&](auto) { return b.sigmoid(x); })
      .Default([](auto) { return Value(); });
}

}  // namespace

LogicalResult build_adjoint(mlir::Operation* op, Value g, Builder& b, AddGradient add) {
  using Result = LogicalResult;
  return llvm::TypeSwitch<mlir::Operation*, Result>(op)
      .Case<InputOp, arith::ConstantOp>([](auto) { return success(); })
      .Case<arith::AddFOp>(
          [&](auto o) { return add(o.getLhs(), g), add(o.getRhs(), g), success(); })
      .Case<arith::SubFOp>(
          [&](auto o) { return add(o.getLhs(), g), add(o.getRhs(), b.neg(g)), success(); })
      .Case<arith::NegFOp>([&](auto o) { return add(o.getOperand(), b.neg(g)), success(); })
      .Case<arith::MulFOp>([&](auto o) {
        return add(o.getLhs(), b.mul(g, o.getRhs())), add(o.getRhs(), b.mul(g, o.getLhs())),
               success();
      })
      .Case<arith::DivFOp>([&](auto o) {
        Value left = b.div(g, o.getRhs());
        return add(o.getLhs(), left), add(o.getRhs(), b.neg(b.mul(left, o.getResult()))), success();
      })
      .Case<arith::MaximumFOp>([&](auto o) { return adjoint_of_maximum(o, g, b, add), success(); })
      .Case<BroadcastOp>(
          [&](auto o) { return add(o.getSource(), b.reduce(g, o.getDims())), success(); })
      .Case<ReduceOp>([&](auto o) {
        return add(o.getSource(), b.broadcast(g, o.getDims(), tile_of(o.getSource()))), success();
      })
      .Case<RowOp>([&](auto o) {
        return add(o.getSource(), b.place_row(g, o.getIndex(), tile_of(o.getSource()))), success();
      })
      .Case<PlaceRowOp>(
          [&](auto o) { return add(o.getSource(), b.row(g, o.getIndex())), success(); })
      .Case<ValidOp>([&](auto o) { return add(o.getSource(), b.valid(g)), success(); })
      .Case<CumsumOp>([&](auto o) {
        return add(o.getSource(), b.cumsum(g, o.getExclusive(), !o.getReverse())), success();
      })
      .Case<MaskOp>(
          [&](auto o) { return add(o.getSource(), b.mask(g, o.getTriangle())), success(); })
      .Case<MatmulOp>([&](auto o) { return adjoint_of_matmul(o, g, b, add), success(); })
      .Case<InverseUnitLowerOp>([&](auto o) {
        Value z = o.getResult();
        Value product = b.matmul(b.matmul(z, true, g, false), false, z, true);
        return add(o.getSource(), b.neg(b.mask(product, Triangle::strict_lower))), success();
      })
      .Case<DecayDotOp>([&](auto o) { return adjoint_of_decay_dot(o, g, b, add), success(); })
      .Case<DecayApplyOp>([&](auto o) { return adjoint_of_decay_apply(o, g, b, add), success(); })
      .Case<DecayMaskOp>([&](auto o) { return adjoint_of_decay_mask(o, g, b, add), success(); })
      .Default([&](mlir::Operation* o) -> Result {
        Value slope = o->getNumOperands() == 1 ? derivative(o, b) : Value();
        if (!slope) return o->emitError("differentiate: '") << o->getName() << "' has no adjoint";
        return add(o->getOperand(0), b.mul(g, slope)), success();
      });
}

}  // namespace linnet::chunk
