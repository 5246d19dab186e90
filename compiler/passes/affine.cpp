#include "compiler/passes/affine.h"

namespace linnet {

using namespace chunk;
using mlir::failure;
using mlir::FailureOr;
using mlir::Value;

namespace {

class Splitter {
 public:
  Splitter(mlir::OpBuilder& where, llvm::function_ref<Value(Value)> lifted)
      : where_(where), lifted_(lifted) {}

  FailureOr<Affine> split(Value value) {
    if (Value known = lifted_(value)) return Affine{known, {}};
    mlir::Operation* op = value.getDefiningOp();
    if (llvm::isa<ReadOp>(op)) return Affine{Value(), {{op, Value(), false}}};
    if (llvm::isa<mlir::arith::AddFOp>(op)) return sum(op, /*subtract=*/false);
    if (llvm::isa<mlir::arith::SubFOp>(op)) return sum(op, /*subtract=*/true);
    if (llvm::isa<mlir::arith::NegFOp>(op)) return negated(op);
    if (llvm::isa<mlir::arith::MulFOp>(op)) return product(op);
    if (llvm::isa<mlir::arith::DivFOp>(op) && lifted_(op->getOperand(1))) return scaled(op, 0, 1);
    return not_affine(op);
  }

 private:
  FailureOr<Affine> not_affine(mlir::Operation* op) {
    return op->emitError(
               "no chunk form: a written value is expected to be a sum of inputs and of reads "
               "times "
               "one number a token; '")
           << op->getName() << "' of a read is neither";
  }

  FailureOr<Affine> sum(mlir::Operation* op, bool subtract) {
    auto a = split(op->getOperand(0)), b = split(op->getOperand(1));
    if (failed(a) || failed(b)) return failure();
    Builder ops(where_, op->getLoc());
    if (a->base && b->base)
      a->base = subtract ? ops.sub(a->base, b->base) : ops.add(a->base, b->base);
    else if (b->base)
      a->base = subtract ? ops.neg(b->base) : b->base;
    for (Affine::Term& term : b->terms) {
      term.negative ^= subtract;
      a->terms.push_back(term);
    }
    return a;
  }

  FailureOr<Affine> negated(mlir::Operation* op) {
    auto a = split(op->getOperand(0));
    if (failed(a)) return failure();
    if (a->base) a->base = Builder(where_, op->getLoc()).neg(a->base);
    for (Affine::Term& term : a->terms) term.negative = !term.negative;
    return a;
  }

  FailureOr<Affine> product(mlir::Operation* op) {
    if (lifted_(op->getOperand(0))) return scaled(op, 1, 0);
    if (lifted_(op->getOperand(1))) return scaled(op, 0, 1);
    return not_affine(op);
  }

  // operand `inner` depends on reads, operand `factor` does not.
  FailureOr<Affine> scaled(mlir::Operation* op, unsigned inner, unsigned factor) {
    auto a = split(op->getOperand(inner));
    if (failed(a)) return failure();
    auto broadcast = op->getOperand(factor).getDefiningOp<BroadcastOp>();
    if (!broadcast || tile_of(broadcast.getSource()).getRank() != 0)
      return op->emitError("no chunk form: a read is scaled by ")
             << describe(op->getOperand(factor).getType()) << ", expected one number a token";
    Builder ops(where_, op->getLoc());
    bool divide = llvm::isa<mlir::arith::DivFOp>(op);
    Value row = lifted_(broadcast.getSource()), all = lifted_(op->getOperand(factor));
    if (a->base) a->base = divide ? ops.div(a->base, all) : ops.mul(all, a->base);
    for (Affine::Term& term : a->terms) {
      if (divide)
        term.coefficient =
            ops.div(term.coefficient ? term.coefficient : ops.constant(tile_of(row), 1), row);
      else
        term.coefficient = term.coefficient ? ops.mul(term.coefficient, row) : row;
    }
    return a;
  }

  mlir::OpBuilder& where_;
  llvm::function_ref<Value(Value)> lifted_;
};

}  // namespace

FailureOr<Affine> split_affine(Value value, mlir::OpBuilder& where,
                               llvm::function_ref<Value(Value)> lifted) {
  return Splitter(where, lifted).split(value);
}

Value scale_by(const Affine::Term& term, bool negate, Value vector, Builder& b,
               llvm::StringRef name) {
  if (term.coefficient) vector = b.mul(term.coefficient, vector, name);
  return term.negative != negate ? b.neg(vector, name) : vector;
}

}  // namespace linnet
