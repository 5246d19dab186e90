// split-stages: which work waits for the state and which does not. Ops leave a scan when they do
// not depend on what it carries, and follow it when the next carried value does not depend on them;
// what is left outside becomes one map before, between or after the scans. A value that crosses
// stages is stored, or made again where that moves fewer bytes.
#include "compiler/dialect/builder.h"
#include "compiler/passes/passes.h"
#include "mlir/IR/IRMapping.h"

namespace linnet {

using namespace chunk;
using mlir::Value;

namespace {

bool is_inside(Value value, mlir::Block& block) { return value.getParentBlock() == &block; }

// Z (b - E S) -> Z b - (Z E) S: one product less in the serial chain, at the price of Z E outside.
void distribute_inverse(ScanOp scan) {
  for (mlir::Operation& op : llvm::make_early_inc_range(scan.block())) {
    auto solve = llvm::dyn_cast<MatmulOp>(op);
    if (!solve || !solve.getLhs().getDefiningOp<InverseUnitLowerOp>()) continue;
    auto difference = solve.getRhs().getDefiningOp<mlir::arith::SubFOp>();
    auto read = difference ? difference.getRhs().getDefiningOp<MatmulOp>() : MatmulOp();
    if (!read || read.getTransposeLhs() || is_inside(read.getLhs(), scan.block()) ||
        is_inside(difference.getLhs(), scan.block()))
      continue;
    mlir::OpBuilder builder(solve);
    Builder b(builder, solve.getLoc());
    Value u = b.matmul(solve.getLhs(), difference.getLhs(), "U"),
          w = b.matmul(solve.getLhs(), read.getLhs(), "W");
    solve.getResult().replaceAllUsesWith(b.sub(u, b.matmul(w, read.getRhs()), "X"));
    solve.erase();
  }
}

// Moves behind the scan what the next carried values do not need; what that uses of the body is
// emitted.
ScanOp sink(ScanOp scan) {
  mlir::Block& block = scan.block();
  unsigned carried = scan.getInit().size();
  llvm::DenseSet<mlir::Operation*> needed;
  for (Value next : scan.yield().getValues().take_front(carried))
    walk_sources(next, [&](mlir::Operation* op) {
      return op->getBlock() == &block && needed.insert(op).second;
    });
  llvm::SmallVector<mlir::Operation*> sunk;
  for (mlir::Operation& op : block.without_terminator())
    if (!needed.contains(&op)) sunk.push_back(&op);
  if (sunk.empty()) return scan;

  llvm::SetVector<Value> emitted;
  auto emit_if_kept = [&](Value value) {
    if (is_inside(value, block) && !llvm::is_contained(sunk, value.getDefiningOp()))
      emitted.insert(value);
  };
  for (mlir::Operation* op : sunk) llvm::for_each(op->getOperands(), emit_if_kept);
  YieldOp yield = scan.yield();
  llvm::SmallVector<Value> old_emits(yield.getValues().drop_front(carried));
  llvm::for_each(old_emits, emit_if_kept);

  llvm::SmallVector<Value> values(yield.getValues().take_front(carried));
  llvm::append_range(values, emitted);
  mlir::OpBuilder builder(scan);
  auto lean = builder.create<ScanOp>(scan.getLoc(), mlir::TypeRange(mlir::ValueRange(values)),
                                     scan.getInit(), scan.getReverseAttr(), scan.getStageAttr());
  mlir::IRMapping outside;
  for (auto [value, result] : llvm::zip(emitted, lean.emitted())) outside.map(value, result);
  for (mlir::Operation* op : sunk) builder.clone(*op, outside);
  for (auto [result, final] : llvm::zip(scan.finals(), lean.finals()))
    result.replaceAllUsesWith(final);
  for (auto [result, value] : llvm::zip(scan.emitted(), old_emits))
    result.replaceAllUsesWith(outside.lookupOrDefault(value));
  yield.getValuesMutable().assign(values);
  for (mlir::Operation* op : llvm::reverse(sunk)) op->erase();
  lean.getBody().takeBody(scan.getBody());
  scan.erase();
  return lean;
}

// A stage to be: the ops of one map, or a scan.
struct Stage {
  ScanOp scan;  // null for a map
  llvm::SmallVector<mlir::Operation*> ops;
  mlir::Block* block() { return scan ? &scan.block() : ops.front()->getBlock(); }
};

class Stages {
 public:
  explicit Stages(GraphOp graph) : block_(graph.getBody().front()) {}

  void form() {
    assign();
    for (size_t i = 1; i < stages_.size(); ++i) remake_cheap(i);
    for (size_t i = 0; i < stages_.size(); ++i)
      if (!stages_[i].scan && !stages_[i].ops.empty()) wrap(i);
  }

 private:
  // Maps stand at even places of stages_, scans at odd ones. An op that some scan waits for goes as
  // early as it can, the others as late as they can.
  void assign() {
    llvm::SmallVector<mlir::Operation*> ops;
    for (mlir::Operation& op : block_)
      if (!llvm::isa<InputOp, OutputOp>(op)) ops.push_back(&op);
    stages_.emplace_back();
    for (mlir::Operation* op : ops)
      if (auto scan = llvm::dyn_cast<ScanOp>(op)) {
        place_[op] = stages_.size();
        stages_.push_back({scan, {op}});
        stages_.emplace_back();
      }
    llvm::DenseSet<mlir::Operation*> feeds_scan;
    for (Stage& stage : stages_)
      if (stage.scan)
        for_each_use(stage, [&](mlir::OpOperand& use) {
          walk_sources(use.get(),
                       [&](mlir::Operation* op) { return feeds_scan.insert(op).second; });
        });
    for (mlir::Operation* op : ops) {
      if (llvm::isa<ScanOp>(op)) continue;
      size_t earliest = 0;
      for (Value operand : op->getOperands())
        if (auto it = place_.find(operand.getDefiningOp()); it != place_.end())
          earliest = std::max(earliest, it->second + it->second % 2);
      size_t place = feeds_scan.contains(op) ? earliest : stages_.size() - 1;
      place_[op] = place;
      stages_[place].ops.push_back(op);
    }
  }

  // Calls for every operand of the stage's ops, those inside a scan included.
  static void for_each_use(Stage& stage, llvm::function_ref<void(mlir::OpOperand&)> call) {
    for (mlir::Operation* op : stage.ops)
      op->walk([&](mlir::Operation* inner) {
        for (mlir::OpOperand& operand : inner->getOpOperands()) call(operand);
      });
  }

  // Ops a stage may repeat instead of loading their result. A scan is serial: only sums and
  // products of what it loads.
  static bool is_cheap(mlir::Operation* op, bool for_scan) {
    if (llvm::isa<BroadcastOp, mlir::arith::ConstantOp, mlir::arith::AddFOp, mlir::arith::SubFOp,
                  mlir::arith::MulFOp, mlir::arith::NegFOp>(op))
      return true;
    return !for_scan && !is_contraction(op) && !llvm::isa<ScanOp>(op);
  }

  static int64_t size_of(Value value) { return tile_of(value).getNumElements(); }

  // Values of earlier stages the stage uses, and the inputs it loads.
  llvm::SetVector<Value> crossing(size_t index, llvm::SetVector<Value>& loaded) {
    llvm::SetVector<Value> values;
    for_each_use(stages_[index], [&](mlir::OpOperand& use) {
      mlir::Operation* op = use.get().getDefiningOp();
      if (!op || op->getBlock() != &block_) return;
      if (llvm::isa<InputOp>(op))
        loaded.insert(use.get());
      else if (auto it = place_.find(op); it != place_.end() && it->second < index)
        values.insert(use.get());
    });
    return values;
  }

  void remake_cheap(size_t index) {
    Stage& stage = stages_[index];
    bool for_scan = static_cast<bool>(stage.scan);
    // A broadcast is never stored, its source is.
    llvm::SetVector<Value> loaded;
    llvm::SetVector<mlir::Operation*> remade;
    for (Value value : crossing(index, loaded))
      if (llvm::isa<BroadcastOp, mlir::arith::ConstantOp>(value.getDefiningOp()))
        remade.insert(value.getDefiningOp());
    clone_into(stage, index, remade);

    remade.clear();
    for (Value value : crossing(index, loaded)) {
      if (llvm::isa<ScanOp>(value.getDefiningOp())) continue;
      llvm::SetVector<mlir::Operation*> chain;
      llvm::SetVector<Value> sources;
      if (!cheap_chain(value, for_scan, chain, sources)) continue;
      int64_t extra = 0;
      for (Value source : sources)
        if (!loaded.contains(source)) extra += size_of(source);
      if (extra > 2 * size_of(value) || (for_scan && extra == 2 * size_of(value))) continue;
      loaded.insert(sources.begin(), sources.end());
      remade.insert(chain.begin(), chain.end());
    }
    clone_into(stage, index, remade);
  }

  // The cheap ops that make `value` out of inputs and results of products and scans.
  bool cheap_chain(Value value, bool for_scan, llvm::SetVector<mlir::Operation*>& chain,
                   llvm::SetVector<Value>& sources) {
    mlir::Operation* op = value.getDefiningOp();
    if (llvm::isa<InputOp, ScanOp>(op) || is_contraction(op)) {
      sources.insert(value);
      return !chain.empty();
    }
    if (!is_cheap(op, for_scan)) return false;
    chain.insert(op);
    return llvm::all_of(op->getOperands(),
                        [&](Value v) { return cheap_chain(v, for_scan, chain, sources); });
  }

  // Repeats the ops inside the stage and lets the stage use the copies.
  void clone_into(Stage& stage, size_t index, const llvm::SetVector<mlir::Operation*>& remade) {
    if (remade.empty()) return;
    llvm::SmallVector<mlir::Operation*> ordered;
    for (mlir::Operation& op : block_)
      if (remade.contains(&op)) ordered.push_back(&op);
    mlir::OpBuilder builder(block_.getParentOp()->getContext());
    if (stage.scan)
      builder.setInsertionPointToStart(&stage.scan.block());
    else
      builder.setInsertionPoint(stage.ops.front());
    mlir::IRMapping copies;
    llvm::SmallVector<mlir::Operation*> clones;
    for (mlir::Operation* op : ordered) {
      clones.push_back(builder.clone(*op, copies));
      if (!stage.scan) place_[clones.back()] = index;
    }
    for_each_use(stage, [&](mlir::OpOperand& use) {
      // The initial values of a scan belong to the sequence, not to a chunk.
      if (use.getOwner() != stage.scan.getOperation()) use.set(copies.lookupOrDefault(use.get()));
    });
    if (!stage.scan) stage.ops.insert(stage.ops.begin(), clones.begin(), clones.end());
  }

  // Puts a map's ops into a region; what is used outside becomes its results.
  void wrap(size_t index) {
    Stage& stage = stages_[index];
    bool first = index == 0, last = index + 1 == stages_.size();
    llvm::StringRef name = last ? "finish" : first ? "prepare" : "between";
    llvm::SmallVector<mlir::Operation*> live;
    for (mlir::Operation* op : llvm::reverse(stage.ops)) {
      if (op->use_empty())
        op->erase();
      else
        live.push_back(op);
    }
    std::reverse(live.begin(), live.end());
    if (live.empty()) return;
    llvm::DenseSet<mlir::Operation*> members(live.begin(), live.end());
    llvm::SmallVector<Value> results;
    for (mlir::Operation* op : live)
      if (llvm::any_of(op->getUsers(),
                       [&](mlir::Operation* user) { return !members.contains(user); }))
        results.push_back(op->getResult(0));
    mlir::OpBuilder builder(block_.getParentOp()->getContext());
    if (last)
      builder.setInsertionPoint(first_output());
    else
      builder.setInsertionPoint(stages_[index + 1].scan);
    auto map = builder.create<MapOp>(block_.getParentOp()->getLoc(),
                                     mlir::TypeRange(mlir::ValueRange(results)), name);
    mlir::Block& body = map.getBody().emplaceBlock();
    for (mlir::Operation* op : live) op->moveBefore(&body, body.end());
    for (auto [value, result] : llvm::zip(results, map.getResults()))
      value.replaceUsesWithIf(
          result, [&](mlir::OpOperand& use) { return !members.contains(use.getOwner()); });
    mlir::OpBuilder::atBlockEnd(&body).create<YieldOp>(map.getLoc(), results);
  }

  mlir::Operation* first_output() {
    return *llvm::map_range(block_.getOps<OutputOp>(), [](OutputOp op) {
              return op.getOperation();
            }).begin();
  }

  mlir::Block& block_;
  std::vector<Stage> stages_;
  llvm::DenseMap<mlir::Operation*, size_t> place_;
};

struct SplitStages : mlir::PassWrapper<SplitStages, mlir::OperationPass<GraphOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SplitStages)
  explicit SplitStages(StageOptions options) : options(options) {}
  llvm::StringRef getArgument() const override { return "split-stages"; }

  void runOnOperation() override {
    GraphOp graph = getOperation();
    auto scans = llvm::to_vector(graph.getBody().getOps<ScanOp>());
    for (ScanOp scan : scans) {
      if (!scan.getStage()) scan.setStage("scan");
      if (options.distribute_inverse) distribute_inverse(scan);
      hoist_invariant(scan);
      // A forward scan keeps its outputs unless asked; replay and reverse scans carry only what
      // they must.
      if (options.separate_output || scan.getStage() != "scan") sink(scan);
    }
    // Outputs last: every map stands before them.
    mlir::Block& block = graph.getBody().front();
    for (OutputOp output : llvm::to_vector(block.getOps<OutputOp>()))
      output->moveBefore(&block, block.end());
    Stages(graph).form();
  }
  StageOptions options;
};

}  // namespace

void hoist_invariant(ScanOp scan) {
  for (mlir::Operation& op : llvm::make_early_inc_range(scan.block().without_terminator())) {
    bool depends = llvm::any_of(op.getOperands(),
                                [&](Value operand) { return is_inside(operand, scan.block()); });
    // A sum over the chunk's tokens of the state's own shape is added where the state is, never
    // stored by itself.
    bool state_shaped =
        llvm::isa<MatmulOp>(op) && !has_axis(op.getResult(0).getType(), Axis::token);
    if (!depends && !state_shaped) op.moveBefore(scan);
  }
}

std::unique_ptr<mlir::Pass> split_stages(StageOptions options) {
  return std::make_unique<SplitStages>(options);
}

}  // namespace linnet
