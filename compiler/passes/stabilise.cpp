// stabilise: every exponential gets a form whose factors stay in range and whose anchors are causal
// (MATH.md c). Row factors exp(G), exp(G_last - G) and exp(G_last) are at most one as they stand
// (E0), decay_mask selects before exp (E5); decay_dot and its adjoints get blocks (E2) and pairwise
// (E3) or anchored (E4c) diagonals.
#include <cmath>

#include "compiler/passes/passes.h"
#include "compiler/passes/sums.h"

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

// What a value is the sum of.
void collect_terms(Value value, bool negative, Terms& terms) {
  mlir::Operation* op = value.getDefiningOp();
  if (is_sum(op)) {
    collect_terms(op->getOperand(0), negative, terms);
    collect_terms(op->getOperand(1), negative != llvm::isa<mlir::arith::SubFOp>(op), terms);
  } else if (llvm::isa_and_nonnull<mlir::arith::NegFOp>(op)) {
    collect_terms(op->getOperand(0), !negative, terms);
  } else {
    terms.push_back({value, negative});
  }
}

// The gradient of a gate is the sum, from the end of the chunk to its token, of the gradients of
// running sums: where decays are strong, a small difference of large numbers. Terms that come in
// pairs are summed so that they do not have to cancel.
class GateGradient {
 public:
  explicit GateGradient(CumsumOp cumsum)
      : cumsum_(cumsum), builder_(cumsum), b_(builder_, cumsum.getLoc()) {}

  void stabilise() {
    if (!cumsum_.getReverse() || cumsum_.getExclusive()) return;
    collect_terms(cumsum_.getSource(), false, terms_);
    while (take_last() || take_mask()) continue;
    if (apart_.empty()) return;
    std::string name = name_of(cumsum_), name_inside = name_of(cumsum_.getSource());
    if (!terms_.empty()) {
      Value rest = b_.cumsum(sum_of(terms_, b_, name_inside), false, /*reverse=*/true, name);
      apart_.insert(apart_.begin(), Term{rest, false});
    }
    Value result = sum_of(apart_, b_, name);
    cumsum_.getResult().replaceAllUsesWith(result);
    cumsum_.erase();
  }

 private:
  static Value summed_over(Value value, int64_t dim) {
    auto reduce = value.getDefiningOp<ReduceOp>();
    return reduce && reduce.getDims() == llvm::ArrayRef(dim) ? reduce.getSource() : Value();
  }
  template <class F>
  Term* find(Terms& terms, bool negative, F matches) {
    auto found = llvm::find_if(
        terms, [&](Term& term) { return term.negative == negative && matches(term.value); });
    return found == terms.end() ? nullptr : found;
  }

  // exp(G_last - G): -w at a token, and the sum of all w at the last one. A gate gets the sum of w
  // from the start to the token before.
  bool take_last() {
    for (Term& placed : terms_) {
      auto place = placed.value.getDefiningOp<PlaceRowOp>();
      if (!place || placed.negative ||
          static_cast<int64_t>(place.getIndex()) + 1 != tile_of(place).getDimSize(0))
        continue;
      Terms last;
      collect_terms(place.getSource(), false, last);
      for (Term& all : last) {
        Value w = all.negative ? Value() : summed_over(all.value, 0);
        Term* own = w ? find(terms_, true, [&](Value v) { return v == w; }) : nullptr;
        if (!own) continue;
        last.erase(&all);
        int64_t index = place.getIndex();
        if (last.empty())
          placed.value = Value();
        else
          placed.value =
              b_.place_row(sum_of(last, b_, name_of(place.getSource())), index, tile_of(place));
        own->value = Value();
        llvm::erase_if(terms_, [](const Term& term) { return !term.value; });
        apart_.push_back({b_.cumsum(w, /*exclusive=*/true, false, name_of(cumsum_)), false});
        return true;
      }
    }
    return false;
  }

  // A decay between each two tokens, W: its rows' sums less its columns'. A gate gets the pairs it
  // stands between.
  bool take_mask() {
    for (Term& rows : terms_) {
      Value w = rows.negative ? Value() : summed_over(rows.value, 1);
      if (!w || !w.getDefiningOp<MaskOp>()) continue;  // no token decays against a later one
      Term* columns = find(terms_, true, [&](Value v) { return summed_over(v, 0) == w; });
      if (!columns) continue;
      rows.value = columns->value = Value();
      llvm::erase_if(terms_, [](const Term& term) { return !term.value; });
      Value from = b_.mask(b_.cumsum(w, false, /*reverse=*/true), Triangle::strict_lower);
      apart_.push_back({b_.reduce(from, {1}, name_of(cumsum_)), false});
      return true;
    }
    return false;
  }

  CumsumOp cumsum_;
  mlir::OpBuilder builder_;
  Builder b_;
  Terms terms_, apart_;
};

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
    llvm::SmallVector<CumsumOp> cumsums;
    graph.walk([&](CumsumOp op) { cumsums.push_back(op); });
    for (CumsumOp cumsum : cumsums) GateGradient(cumsum).stabilise();
  }
  Problem problem;
};

}  // namespace

std::unique_ptr<mlir::Pass> stabilise(const Problem& problem) {
  return std::make_unique<Stabilise>(problem);
}

}  // namespace linnet
