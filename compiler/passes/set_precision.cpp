// set-precision: the graph says where values are rounded. Operands of products in the problem's
// format with sums in f32; gates, running sums, the carried state and substitution always f32
// (MATH.md f).
#include "compiler/passes/passes.h"

namespace linnet {

using namespace chunk;
using mlir::Value;

namespace {

struct SetPrecision : mlir::PassWrapper<SetPrecision, mlir::OperationPass<GraphOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SetPrecision)
  explicit SetPrecision(const Problem& problem)
      : precision(precision_of(problem)),
        gate(precision_of(problem.gate_dtype)),
        strength(problem.beta_dtype ? precision_of(*problem.beta_dtype) : precision),
        state(precision_of(problem.state_dtype)) {}
  llvm::StringRef getArgument() const override { return "set-precision"; }

  // Tiles with value channels are stored narrow between stages: states, written values and their
  // gradients. Other tiles are either operands of products only, rounded there anyway, or gates.
  void round_stored(YieldOp yield, unsigned first) {
    mlir::OpBuilder builder(yield);
    for (unsigned i = first; i < yield.getValues().size(); ++i) {
      Value value = yield.getValues()[i];
      if (!has_axis(value.getType(), Axis::value) || is_output(yield->getParentOp()->getResult(i)))
        continue;
      yield->setOperand(i, builder.create<RoundOp>(value.getLoc(), value, precision));
    }
  }

  // The two sides of a gate's gradient nearly cancel where decay is strong: ten bits, not seven.
  // Where rows and columns have gates of their own, the pair that does not decay is not on the
  // diagonal and was not taken out: all bits.
  Precision gate_precision(DecayApplyOp apply) {
    bool exact = precision == Precision::tf32 || apply.getRows() != apply.getColumns();
    return exact ? Precision::f32 : Precision::tf32;
  }

  static bool is_output(Value value) {
    return llvm::all_of(value.getUsers(),
                        [](mlir::Operation* user) { return llvm::isa<OutputOp>(user); });
  }

  void runOnOperation() override {
    GraphOp graph = getOperation();
    set_storage(graph);
    if (precision == Precision::f32) return;
    auto format = PrecisionAttr::get(&getContext(), precision);
    graph.walk([&](mlir::Operation* op) {
      if (auto matmul = llvm::dyn_cast<MatmulOp>(op)) matmul.setPrecisionAttr(format);
      if (auto dot = llvm::dyn_cast<DecayDotOp>(op)) dot.setPrecisionAttr(format);
      if (auto apply = llvm::dyn_cast<DecayApplyOp>(op)) apply.setPrecision(gate_precision(apply));
      if (auto inverse = llvm::dyn_cast<InverseUnitLowerOp>(op))
        inverse.setPrecision(Precision::tf32);
      if (auto map = llvm::dyn_cast<MapOp>(op)) round_stored(map.yield(), 0);
      if (auto scan = llvm::dyn_cast<ScanOp>(op)) round_stored(scan.yield(), scan.getInit().size());
    });
  }

  // How arguments lie in the caller's memory.
  void set_storage(GraphOp graph) {
    llvm::DenseMap<llvm::StringRef, Precision> own;  // formats that differ from the data's
    for (auto input : graph.getBody().getOps<InputOp>()) {
      if (input.getRole() == Role::gate) own[input.getName()] = gate;
      if (input.getRole() == Role::strength) own[input.getName()] = strength;
    }
    auto set = [&](auto op, llvm::StringRef name) {
      auto found = own.find(name);
      Precision storage = op.getScope() == Scope::sequence ? state
                          : op.getScope() != Scope::token  ? Precision::f32
                          : found != own.end()             ? found->second
                                                           : precision;
      if (storage != Precision::f32) op.setStorageAttr(PrecisionAttr::get(&getContext(), storage));
    };
    for (auto input : graph.getBody().getOps<InputOp>()) set(input, input.getName());
    for (auto output : graph.getBody().getOps<OutputOp>())
      set(output, output.getName().drop_front());
  }

  Precision precision, gate, strength, state;
};

}  // namespace

std::unique_ptr<mlir::Pass> set_precision(const Problem& problem) {
  return std::make_unique<SetPrecision>(problem);
}

}  // namespace linnet
