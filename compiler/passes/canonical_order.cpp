// canonical-order: inputs as declared, then depth first from the outputs. C++ does not say in which
// order operands are evaluated, so the order ops were built in is no order to print or hash by.
#include "compiler/passes/passes.h"

namespace linnet {

using namespace chunk;

namespace {

class Order {
 public:
  explicit Order(mlir::Block& block) : block_(block) {}

  void apply() {
    llvm::SmallVector<mlir::Operation*> roots;
    for (mlir::Operation& op : block_)
      if (llvm::isa<InputOp>(op)) visit(&op);
    for (mlir::Operation& op : block_)
      if (llvm::isa<OutputOp, YieldOp>(op)) roots.push_back(&op);
    for (mlir::Operation* root : roots) visit(root);
    for (mlir::Operation* op : order_) op->moveBefore(&block_, block_.end());
  }

 private:
  void visit(mlir::Operation* op) {
    if (op->getBlock() != &block_ || !seen_.insert(op).second) return;
    // A stage comes after everything its body uses.
    op->walk([&](mlir::Operation* inner) {
      for (mlir::Value operand : inner->getOperands())
        if (mlir::Operation* source = operand.getDefiningOp()) visit(source);
    });
    order_.push_back(op);
  }

  mlir::Block& block_;
  llvm::DenseSet<mlir::Operation*> seen_;
  std::vector<mlir::Operation*> order_;
};

struct CanonicalOrder : mlir::PassWrapper<CanonicalOrder, mlir::OperationPass<GraphOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CanonicalOrder)
  llvm::StringRef getArgument() const override { return "canonical-order"; }
  void runOnOperation() override {
    // Bodies first: the order of a block follows from the order of what it contains.
    getOperation().walk([](mlir::Block* block) { Order(*block).apply(); });
  }
};

}  // namespace

std::unique_ptr<mlir::Pass> canonical_order() { return std::make_unique<CanonicalOrder>(); }

}  // namespace linnet
