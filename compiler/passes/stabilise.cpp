// stabilise: every exponential gets a form whose factors stay in range and whose anchors are causal
// (MATH.md c). Row factors exp(G), exp(G_last - G) and exp(G_last) are at most one as they stand
// (E0), decay_mask selects before exp (E5); decay_dot and its adjoints get blocks (E2) and pairwise
// (E3) or anchored (E4c) diagonals.
#include <cmath>

#include "compiler/dialect/builder.h"
#include "compiler/passes/passes.h"

namespace linnet {

using namespace chunk;
using mlir::Value;

namespace {

constexpr int64_t kBlock = 16;
// An anchored factor stays within exp(+-this): the product of two, summed over channels, is finite
// in f32 and bf16.
constexpr float kAnchorSpan = 40;

// The widest blocks whose anchored factors stay in range; sixteen rows at least, or none.
int64_t anchored_block(float lower, int64_t tokens) {
  int64_t block = tokens;
  while (block > kBlock && (block - 1) / 2.0f * -lower > kAnchorSpan) block /= 2;
  return (block - 1) / 2.0f * -lower > kAnchorSpan ? 0 : block;
}

BoundAttr bound_for(const Problem& problem, int64_t tokens, mlir::Builder& builder) {
  // f16 ends at exp(11): only pairwise differences are safe in it.
  bool anchored = problem.lower_bound < 0 && problem.dtype != DType::f16;
  int64_t block = anchored ? anchored_block(problem.lower_bound, tokens) : 0;
  float lower = block ? problem.lower_bound : 0;
  return BoundAttr::get(builder.getContext(), block ? Form::anchored : Form::pairwise,
                        block ? block : std::min(tokens, kBlock), builder.getF32FloatAttr(lower));
}

// The cumsum a gate is taken from, through rows, broadcasts and additions of the same token's
// decays.
CumsumOp running_gate(Value value) {
  mlir::Operation* op = value.getDefiningOp();
  if (auto cumsum = llvm::dyn_cast_or_null<CumsumOp>(op)) return cumsum;
  if (llvm::isa_and_nonnull<RowOp, BroadcastOp, mlir::arith::AddFOp>(op))
    return running_gate(op->getOperand(0));
  return {};
}

// exp(G at some point), or exp(G_last - G at some point): at most zero inside, gates being at most
// zero.
bool is_bounded(Value exponent) {
  if (auto difference = exponent.getDefiningOp<mlir::arith::SubFOp>()) {
    CumsumOp last = running_gate(difference.getLhs()), gate = running_gate(difference.getRhs());
    return last && gate && last.getSource() == gate.getSource() && !last.getExclusive();
  }
  return static_cast<bool>(running_gate(exponent));
}

// Whether the exponent is put together from running gates, and not merely from products that
// contain them.
bool holds_running_gate(Value value) {
  bool found = false;
  walk_sources(value, [&](mlir::Operation* op) {
    found |= llvm::isa<CumsumOp>(op);
    return !found && !is_contraction(op) && !llvm::isa<mlir::math::ExpOp, ScanOp, DecayMaskOp>(op);
  });
  return found;
}

struct Stabilise : mlir::PassWrapper<Stabilise, mlir::OperationPass<GraphOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Stabilise)
  explicit Stabilise(const Problem& problem) : problem(problem) {}
  llvm::StringRef getArgument() const override { return "stabilise"; }

  void runOnOperation() override {
    GraphOp graph = getOperation();
    mlir::Builder builder(graph);
    BoundAttr bound = bound_for(problem, graph.getChunkSize(), builder);
    graph.walk([&](mlir::Operation* op) {
      if (auto dot = llvm::dyn_cast<DecayDotOp>(op)) dot.setBoundAttr(bound);
      if (auto apply = llvm::dyn_cast<DecayApplyOp>(op)) apply.setBoundAttr(bound);
      if (auto exp = llvm::dyn_cast<mlir::math::ExpOp>(op))
        if (holds_running_gate(exp.getOperand()) && !is_bounded(exp.getOperand())) {
          exp.emitError(
              "stabilise: expected the exponential of a decay that only grows along the chunk");
          signalPassFailure();
        }
    });
  }
  Problem problem;
};

}  // namespace

std::unique_ptr<mlir::Pass> stabilise(const Problem& problem) {
  return std::make_unique<Stabilise>(problem);
}

}  // namespace linnet
