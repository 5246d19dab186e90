// differentiate: reverse mode over a forward graph. The scan is replayed to have the state entering
// every chunk; a scan in the other direction then carries the gradient of the state, with the
// adjoints of the body's ops in it. Nothing is placed here with regard to cost: split-stages moves
// out of the scans what does not depend on them.
#include "compiler/dialect/adjoint.h"
#include "compiler/passes/passes.h"
#include "mlir/IR/IRMapping.h"

namespace linnet {

using namespace chunk;
using mlir::failure;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;

namespace {

// Gradients of values, summed up as they come; in order of first contribution.
class Gradients {
 public:
  void add(Builder& b, Value value, Value gradient) {
    std::string name = name_of(value).empty() ? "" : "d" + name_of(value);
    auto [it, fresh] = sums_.insert({value, gradient});
    if (!fresh)
      it->second = b.add(it->second, gradient, name);
    else if (gradient.getDefiningOp() && name_of(gradient).empty())
      set_name(gradient, name);
  }
  Value of(Value value) const { return sums_.lookup(value); }
  auto begin() { return sums_.begin(); }
  auto end() { return sums_.end(); }

 private:
  llvm::MapVector<Value, Value> sums_;
};

class Reverse {
 public:
  explicit Reverse(mlir::OpBuilder& builder) : builder_(builder) {}

  // Adjoints of a block's ops, last to first; gradients of its results are given in `gradients`.
  LogicalResult run(llvm::ArrayRef<mlir::Operation*> ops, Gradients& gradients) {
    for (mlir::Operation* op : llvm::reverse(ops)) {
      if (auto scan = llvm::dyn_cast<ScanOp>(op)) {
        if (failed(run_scan(scan, gradients))) return failure();
        continue;
      }
      Value gradient = op->getNumResults() == 1 ? gradients.of(op->getResult(0)) : Value();
      if (!gradient) continue;
      Builder b(builder_, op->getLoc());
      if (failed(build_adjoint(op, gradient, b,
                               [&](Value operand, Value g) { gradients.add(b, operand, g); })))
        return failure();
    }
    return success();
  }

 private:
  // The same scan, emitting every value of its body; what no adjoint asks for is trimmed later.
  // `map` gets the body's values as they are seen from outside.
  ScanOp replay(ScanOp scan, mlir::IRMapping& map) {
    llvm::SmallVector<Value> inside(scan.block().getArguments());
    for (mlir::Operation& op : scan.block().without_terminator())
      llvm::append_range(inside, op.getResults());
    mlir::IRMapping copy;
    auto block = std::make_unique<mlir::Block>();
    for (Value argument : scan.block().getArguments())
      copy.map(argument, block->addArgument(argument.getType(), argument.getLoc()));
    auto body = at_end(scan.getContext(), block.get());
    for (mlir::Operation& op : scan.block().without_terminator()) body.clone(op, copy);
    llvm::SmallVector<Value> values;
    for (Value next : scan.yield().getValues().take_front(scan.getInit().size()))
      values.push_back(copy.lookupOrDefault(next));
    for (Value value : inside) values.push_back(copy.lookup(value));
    body.create<YieldOp>(scan.getLoc(), values);
    auto replayed = builder_.create<ScanOp>(
        scan.getLoc(), mlir::TypeRange(mlir::ValueRange(values)), scan.getInit(),
        scan.getReverseAttr(), builder_.getStringAttr("replay"));
    replayed.getBody().push_back(block.release());
    for (auto [value, seen] : llvm::zip(inside, replayed.emitted())) map.map(value, seen);
    return replayed;
  }

  LogicalResult run_scan(ScanOp scan, Gradients& gradients) {
    auto gradient_of = [&](Value result) {
      Value gradient = gradients.of(result);
      return gradient ? gradient : Builder(builder_, scan.getLoc()).constant(tile_of(result), 0);
    };
    if (llvm::none_of(scan->getResults(),
                      [&](Value v) { return static_cast<bool>(gradients.of(v)); }))
      return success();
    llvm::SmallVector<Value> inits, emitted;
    for (Value value : scan.finals()) inits.push_back(gradient_of(value));
    for (Value value : scan.emitted()) emitted.push_back(gradient_of(value));
    mlir::IRMapping seen;
    replay(scan, seen);

    // The body: the adjoints of the forward body's ops, whose values the replay has emitted.
    auto block = std::make_unique<mlir::Block>();
    auto body = at_end(scan.getContext(), block.get());
    Builder b(body, scan.getLoc());
    Gradients inner;
    auto yielded = scan.yield().getValues();
    for (Value value : yielded.take_front(inits.size()))
      inner.add(b, value, block->addArgument(value.getType(), named(scan.getLoc(), "dS")));
    for (auto [value, gradient] : llvm::zip(yielded.drop_front(inits.size()), emitted))
      inner.add(b, value, gradient);
    llvm::SmallVector<mlir::Operation*> ops;
    for (mlir::Operation& op : scan.block().without_terminator()) ops.push_back(&op);
    if (failed(Reverse(body).run(ops, inner))) return failure();

    // What it hands on: gradients of the carried values, and of everything the body took from
    // outside.
    llvm::SmallVector<Value> results, outside;
    for (Value argument : scan.block().getArguments()) {
      Value gradient = inner.of(argument);
      results.push_back(gradient ? gradient : b.constant(tile_of(argument), 0));
    }
    for (auto& [value, gradient] : inner) {
      if (value.getParentBlock() == &scan.block()) continue;
      outside.push_back(value);
      results.push_back(gradient);
    }
    block->walk([&](mlir::Operation* op) {
      for (mlir::OpOperand& operand : op->getOpOperands())
        operand.set(seen.lookupOrDefault(operand.get()));
    });
    for (Value& result : results) result = seen.lookupOrDefault(result);
    body.create<YieldOp>(scan.getLoc(), results);
    auto reverse =
        builder_.create<ScanOp>(scan.getLoc(), mlir::TypeRange(mlir::ValueRange(results)), inits,
                                !scan.getReverse(), builder_.getStringAttr("reverse"));
    reverse.getBody().push_back(block.release());
    Builder after(builder_, scan.getLoc());
    for (auto [init, gradient] : llvm::zip(scan.getInit(), reverse.finals()))
      gradients.add(after, init, gradient);
    for (auto [value, gradient] : llvm::zip(outside, reverse.emitted()))
      gradients.add(after, value, gradient);
    return success();
  }

  mlir::OpBuilder& builder_;
};

struct Differentiate : mlir::PassWrapper<Differentiate, mlir::OperationPass<GraphOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Differentiate)
  llvm::StringRef getArgument() const override { return "differentiate"; }

  void runOnOperation() override {
    GraphOp graph = getOperation();
    mlir::Block& block = graph.getBody().front();
    auto builder = mlir::OpBuilder::atBlockEnd(&block);
    Builder b(builder, graph.getLoc());
    Gradients gradients;
    llvm::SmallVector<mlir::Operation*> ops, outputs;
    for (mlir::Operation& op : block) (llvm::isa<OutputOp>(op) ? outputs : ops).push_back(&op);
    for (mlir::Operation* op : outputs) {
      auto output = llvm::cast<OutputOp>(op);
      std::string name = "d" + output.getName().str();
      gradients.add(b, output.getValue(),
                    b.input(name, output.getScope(), tile_of(output.getValue())));
    }
    if (failed(Reverse(builder).run(ops, gradients))) return signalPassFailure();
    for (mlir::Operation* op : ops) {
      auto input = llvm::dyn_cast<InputOp>(op);
      if (!input || input.getScope() == Scope::constant) continue;
      Value gradient = gradients.of(input);
      if (!gradient) gradient = b.constant(tile_of(input), 0);
      b.output("d" + input.getName().str(), gradient, input.getScope(), input.getKeyHeads());
    }
    for (mlir::Operation* op : outputs) op->erase();
    graph.setSymName(graph.getSymName().str() + "_backward");
  }
};

}  // namespace

std::unique_ptr<mlir::Pass> differentiate() { return std::make_unique<Differentiate>(); }

}  // namespace linnet
