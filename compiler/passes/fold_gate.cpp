// fold-gate: what models put in front of the recurrence becomes part of the graph, before it is
// differentiated, so that the gradients of raw gates, logits, A_log and dt_bias follow by
// themselves. MATH.md b.
#include "compiler/dialect/builder.h"
#include "compiler/passes/passes.h"

namespace linnet {

using namespace chunk;
using mlir::Value;

namespace {

// exp of it is zero in f32: a lower gate changes nothing but the rounding of its neighbours' sums.
constexpr float kLowestGate = -128;
constexpr float kNormEpsilon = 1e-6f;

Value activate_gate(Builder& b, Value raw, const Problem& problem) {
  if (problem.gate == Gate::pre || !has_axis(raw.getType(), Axis::token))
    return problem.lower_bound < 0 ? raw : b.maximum(raw, b.scalar(kLowestGate), "gate");
  Tile row = drop_dims(tile_of(raw), {0});
  Value bias = b.input("dt_bias", Scope::head, row);
  Value y = b.add(raw, b.broadcast(bias, {0}, tile_of(raw)), "y");
  bool has_A_log = problem.gate == Gate::softplus || problem.has_A_log;
  Value rate = has_A_log
                   ? b.exp(b.input("A_log", Scope::head, tile_type(b.context(), {}, {})), "rate")
                   : Value();
  Value gate;
  if (problem.gate == Gate::softplus) {
    gate = b.neg(b.mul(rate, b.softplus(y)));
    gate = b.maximum(gate, b.scalar(kLowestGate));
  } else {
    gate = b.mul(b.scalar(problem.lower_bound), b.sigmoid(rate ? b.mul(rate, y) : y));
  }
  return b.valid(gate, "gate");
}

Value activate_strength(Builder& b, Value logit, Beta mode) {
  Value beta = b.sigmoid(logit);
  return b.valid(mode == Beta::twice_sigmoid ? b.mul(b.scalar(2), beta) : beta, "strength");
}

Value normalise(Builder& b, Value x) {
  Value norm = b.rsqrt(b.add(b.reduce(b.mul(x, x), {1}), b.scalar(kNormEpsilon)), "inverse_norm");
  return b.mul(x, norm, name_of(x) + "_unit");
}

struct FoldGate : mlir::PassWrapper<FoldGate, mlir::OperationPass<GraphOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FoldGate)
  explicit FoldGate(const Problem& problem) : problem(problem) {}
  llvm::StringRef getArgument() const override { return "fold-gate"; }

  Value folded(Builder& b, InputOp input) {
    switch (*input.getRole()) {
      case Role::gate:
        return activate_gate(b, input, problem);
      case Role::strength:
        return problem.beta == Beta::plain ? input.getResult()
                                           : activate_strength(b, input, problem.beta);
      case Role::normalised:
        return problem.l2norm ? normalise(b, input) : input.getResult();
    }
    llvm_unreachable("every role is listed");
  }

  void runOnOperation() override {
    for (auto input : llvm::make_early_inc_range(getOperation().getBody().getOps<InputOp>())) {
      if (!input.getRole()) continue;
      mlir::OpBuilder builder(input->getContext());
      builder.setInsertionPointAfter(input);
      llvm::SmallVector<mlir::OpOperand*> uses;
      for (mlir::OpOperand& use : input.getResult().getUses()) uses.push_back(&use);
      Builder b(builder, input.getLoc());
      Value value = folded(b, input);
      for (mlir::OpOperand* use : uses) use->set(value);
    }
  }
  Problem problem;
};

}  // namespace

std::unique_ptr<mlir::Pass> fold_gate(const Problem& problem) {
  return std::make_unique<FoldGate>(problem);
}

}  // namespace linnet
