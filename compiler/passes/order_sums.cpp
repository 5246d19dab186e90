// order-sums: the terms of a sum in the order in which their factors are there. Differentiation
// collects them in the opposite order of the ops they come from; a kernel that makes the factors of
// a gate's gradient one after the other would have to keep most of them until the first is there.
#include "compiler/passes/passes.h"
#include "compiler/passes/sums.h"

namespace linnet {

using namespace chunk;
using mlir::Value;

namespace {

// Kernels make what sums over a state's channels in one pass over the states, behind the rest.
constexpr size_t kLate = size_t{1} << 32;

bool reads_state(mlir::Operation& op) {
  return llvm::isa<MatmulOp>(op) && llvm::any_of(op.getOperandTypes(), [](mlir::Type type) {
           return has_axis(type, Axis::key) && has_axis(type, Axis::value);
         });
}

class Sums {
 public:
  explicit Sums(mlir::Block& block) : block_(block) {
    size_t position = 0;
    for (mlir::Operation& op : block) {
      size_t ready = ++position;
      if (llvm::isa<BroadcastOp, CumsumOp, PlaceRowOp>(op) ||
          mlir::OpTrait::hasElementwiseMappableTraits(&op)) {
        ready = 0;
        for (Value operand : op.getOperands()) ready = std::max(ready, when(operand));
      } else if (reads_state(op)) {
        ready += kLate;
      }
      ready_[&op] = ready;
    }
  }

  void order() {
    for (mlir::Operation& op : llvm::make_early_inc_range(block_))
      if (is_sum(&op) && !is_part(op.getResult(0))) order(&op);
  }

 private:
  size_t when(Value value) const { return ready_.lookup(value.getDefiningOp()); }

  // A sum that is only a step on the way to another.
  bool is_part(Value value) const {
    mlir::Operation* op = value.getDefiningOp();
    return is_sum(op) && op->getBlock() == &block_ && value.hasOneUse() &&
           is_sum(*value.getUsers().begin());
  }

  void collect(Value value, bool negative) {
    mlir::Operation* op = value.getDefiningOp();
    steps_.push_back(op);
    for (unsigned i : {0u, 1u}) {
      Value term = op->getOperand(i);
      bool minus = negative != (i == 1 && llvm::isa<mlir::arith::SubFOp>(op));
      is_part(term) ? collect(term, minus) : void(terms_.push_back({term, minus}));
    }
  }

  void order(mlir::Operation* sum) {
    terms_.clear(), steps_.clear();
    collect(sum->getResult(0), false);
    // Products are added up where the rest of their sum is: they stay.
    if (llvm::any_of(terms_, [](const Term& t) { return t.value.getDefiningOp<MatmulOp>(); }))
      return;
    auto earlier = [&](const Term& a, const Term& b) { return when(a.value) < when(b.value); };
    if (llvm::is_sorted(terms_, earlier)) return;
    llvm::stable_sort(terms_, earlier);
    auto first = llvm::find_if(terms_, [](const Term& t) { return !t.negative; });
    if (first == terms_.end()) return;
    std::rotate(terms_.begin(), first, first + 1);

    mlir::OpBuilder builder(sum);
    Builder b(builder, sum->getLoc());
    Value result = sum->getResult(0);
    result.replaceAllUsesWith(sum_of(terms_, b, name_of(result)));
    for (mlir::Operation* step : steps_) step->erase();
  }

  mlir::Block& block_;
  llvm::DenseMap<mlir::Operation*, size_t> ready_;
  Terms terms_;
  llvm::SmallVector<mlir::Operation*> steps_;
};

struct OrderSums : mlir::PassWrapper<OrderSums, mlir::OperationPass<GraphOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(OrderSums)
  llvm::StringRef getArgument() const override { return "order-sums"; }
  void runOnOperation() override {
    getOperation().walk([](MapOp map) { Sums(map.getBody().front()).order(); });
  }
};

}  // namespace

std::unique_ptr<mlir::Pass> order_sums() { return std::make_unique<OrderSums>(); }

}  // namespace linnet
