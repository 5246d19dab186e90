#include "compiler/cpu/token_step.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;

namespace {

constexpr size_t kMostProducts = 4;  // whose sums stay in registers

bool is_row_of_values(Value value) {
  Tile type = tile_of(value);
  return type.getRank() == 2 && type.getDimSize(0) == 1 && axes_of(type)[1] == Axis::value;
}

}  // namespace

std::optional<TokenStep> TokenStep::of(const Loop& loop, const TileProgram& program,
                                       BlockEvaluator& blocks) {
  if (loop.carried().size() != 1) return std::nullopt;
  TokenStep step;
  step.state_ = loop.carried()[0];
  step.next_ = program.origin(loop.next()[0]);
  if (!step.next_.getDefiningOp() || !is_fusible(step.next_.getDefiningOp())) return std::nullopt;

  llvm::DenseSet<Value> known_late;  // what needs a product with the state
  auto is_late = [&](Value operand) { return known_late.contains(program.origin(operand)); };
  for (mlir::Operation* op : loop.body) {
    Value result = op->getResult(0);
    auto product = llvm::dyn_cast<MatmulOp>(op);
    if (product && program.origin(product.getRhs()) == step.state_) {
      if (!is_row_of_values(result) || product.getTransposeLhs() || product.getTransposeRhs() ||
          is_late(product.getLhs()))
        return std::nullopt;
      step.products_.push_back(product);
      known_late.insert(result);
      continue;
    }
    if (!llvm::any_of(op->getOperands(), is_late)) continue;
    known_late.insert(result);
    if (result == step.next_ || program.placement(result) == Placement::fused) continue;
    if (program.placement(result) != Placement::scratch || !is_fusible(op) ||
        !is_row_of_values(result))
      return std::nullopt;
    step.after_.push_back(op);
  }
  if (step.products_.empty() || step.products_.size() > kMostProducts) return std::nullopt;

  bool fits = true;
  for (mlir::Operation* op : step.after_)
    blocks.for_each_product(op->getResult(0), [&](MatmulOp product) {
      fits &= llvm::is_contained(step.products_, product);
    });
  blocks.for_each_product(step.next_, [&](MatmulOp product) {
    fits &= !product.getTransposeRhs() && !is_late(product.getLhs()) &&
            program.origin(product.getLhs()) != step.state_;
  });
  // The state itself is read by its own elements only.
  for (mlir::Operation* op : loop.body)
    for (Value operand : op->getOperands())
      fits &= program.origin(operand) != step.state_ ||
              llvm::is_contained(step.products_, llvm::dyn_cast<MatmulOp>(op)) ||
              op == step.next_.getDefiningOp() ||
              program.placement(op->getResult(0)) == Placement::fused;
  return fits ? std::optional(step) : std::nullopt;
}

bool TokenStep::makes(mlir::Operation* op) const {
  return op->getResult(0) == next_ || llvm::is_contained(after_, op) ||
         llvm::is_contained(products_, llvm::dyn_cast<MatmulOp>(op));
}

void TokenStep::emit(Emitter& e, Memory& memory, BlockEvaluator& blocks, Scratch& scratch) const {
  Buffer state = memory.buffer_of(state_);
  llvm::SmallVector<Buffer> lefts, sums;
  for (MatmulOp product : products_) {
    lefts.push_back(memory.buffer_of(product.getLhs()));
    sums.push_back(scratch.place(product));
    memory.keep(product, sums.back());
  }
  for (mlir::Operation* op : after_) {
    Value result = op->getResult(0);
    memory.keep(result, scratch.place(result));
  }

  // Two lines of every row at a time: less is too little for one visit of a row, more does not stay
  // in the first cache until it is updated.
  constexpr int64_t kTwoLines = 32;
  int64_t vectors = state.stride / e.lanes(), wide = kTwoLines / e.lanes();
  while (vectors % wide) wide /= 2;
  int64_t columns = wide * e.lanes();

  auto put = [&](const Values& values, Buffer to, Value row, Value column) {
    for (int64_t v = 0; v < wide; ++v) {
      Value index = e.add(e.add(blocks.row_start(to, row), column), v * e.lanes());
      e.store(values[v], e.at(to.pointer, index));
    }
  };
  auto multiply = [&](Value row, Value column, Values so_far) {
    Values right;
    for (int64_t v = 0; v < wide; ++v)
      right.push_back(e.load_vector(
          e.at(state.pointer, e.add(e.add(blocks.row_start(state, row), column), v * e.lanes()))));
    for (size_t p = 0; p < products_.size(); ++p) {
      Value x = e.splat(e.load(e.at(lefts[p].pointer, row)));
      for (int64_t v = 0; v < wide; ++v)
        so_far[p * wide + v] = e.fma(x, right[v], so_far[p * wide + v]);
    }
    return so_far;
  };
  auto update = [&](Value row, Value column) {
    memory.evaluating = next_;
    put(blocks.evaluate(next_, {row, column, 1, wide, std::nullopt}), state, row, column);
    memory.evaluating = Value();
  };
  auto follow = [&](Value column, const Values& made) {
    for (size_t p = 0; p < products_.size(); ++p)
      put({made.begin() + p * wide, made.begin() + (p + 1) * wide}, sums[p], e.i64(0), column);
    for (mlir::Operation* op : after_) {
      Value result = op->getResult(0);
      memory.evaluating = result;
      Values values = blocks.evaluate(result, {e.i64(0), column, 1, wide, std::nullopt});
      memory.evaluating = Value();
      put(values, memory.buffer_of(result), e.i64(0), column);
    }
  };

  Values zeros(products_.size() * wide, e.splat(0.f));
  Value rows = e.i64(state.rows), none = e.i64(0);
  follow(none, e.loop(none, rows, 1, zeros, [&](Value row, const Values& so_far) {
    return multiply(row, none, so_far);
  }));
  e.loop(e.i64(columns), e.i64(state.stride), columns, [&](Value column) {
    Value before = e.sub(column, e.i64(columns));
    follow(column, e.loop(none, rows, 1, zeros, [&](Value row, const Values& so_far) {
      update(row, before);
      return multiply(row, column, so_far);
    }));
  });
  e.loop(none, rows, 1, [&](Value row) { update(row, e.i64(state.stride - columns)); });
}

}  // namespace linnet::cpu
