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

// Whether it can be evaluated with value channels along the rows, if it has the state's shape.
bool can_turn(mlir::Operation* op, bool in_memory) {
  Tile type = tile_of(op->getResult(0));
  if (!has_axis(type, Axis::key) || !has_axis(type, Axis::value)) return true;
  if (in_memory) return false;
  if (auto product = llvm::dyn_cast<MatmulOp>(op))
    return product.getTransposeLhs() && !product.getTransposeRhs();
  return llvm::isa<BroadcastOp>(op) || op->hasTrait<mlir::OpTrait::Elementwise>();
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
    bool in_memory = result != step.next_ && program.placement(result) != Placement::fused;
    step.can_walk_values_ &= can_turn(op, in_memory);
    auto product = llvm::dyn_cast<MatmulOp>(op);
    if (product && program.origin(product.getRhs()) == step.state_) {
      if (!is_row_of_values(result) || product.getTransposeLhs() || product.getTransposeRhs() ||
          is_late(product.getLhs()) || program.placement(result) == Placement::workspace)
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

namespace {

// Goes over the state of one token: multiplies blocks of it, makes what follows from the sums, and
// updates.
class Walk {
 public:
  Walk(Emitter& emitter, Memory& memory, BlockEvaluator& blocks, Buffer state, NextState& ahead)
      : e_(emitter), memory_(memory), blocks_(blocks), state_(state), ahead_(ahead) {}

  struct Product {
    Buffer left, sums;
  };
  llvm::SmallVector<Product> products;
  llvm::ArrayRef<mlir::Operation*> after;
  Value next;

  void by_rows();
  void by_columns();
  void by_values();

 private:
  static constexpr int64_t kLine = 16;  // floats of a line of the caches

  // A block of columns: from `first` on, so many vectors.
  struct Columns {
    Value first;
    int64_t vectors;
  };

  Value column(const Columns& columns, int64_t v) { return e_.add(columns.first, v * e_.lanes()); }
  Value state_vector(Value row, Value column) {
    return e_.load_vector(e_.at(state_.pointer, e_.add(state_.row_start(e_, row), column)));
  }
  Value left(const Product& product, Value row) {
    return e_.splat(e_.load(e_.at(product.left.pointer, row)));
  }
  void put(const Values& values, Buffer to, Value row, const Columns& columns) {
    for (int64_t v = 0; v < columns.vectors; ++v)
      e_.store(values[v], e_.at(to.pointer, e_.add(to.row_start(e_, row), column(columns, v))));
  }
  Values evaluate(Value value, Value row, const Columns& columns, bool across = false) {
    memory_.evaluating = value;
    Values values =
        blocks_.evaluate(value, {row, columns.first, 1, columns.vectors, std::nullopt, across});
    memory_.evaluating = Value();
    return values;
  }

  Values multiply(Value row, const Columns& columns, Values so_far);
  void add_rows(Value first, int64_t count);
  Values sums_of_values(Value first, int64_t groups);
  void keep_sums(const Columns& columns, const Values& sums);
  void follow(const Columns& columns);
  void ask_for(Value row, int64_t half);
  void update(Value row, const Columns& columns, bool across = false) {
    put(evaluate(next, row, columns, across), state_, row, columns);
  }
  Columns whole_row() { return {e_.i64(0), state_.stride / e_.lanes()}; }
  void hold(bool across);

  Emitter& e_;
  Memory& memory_;
  BlockEvaluator& blocks_;
  Buffer state_;
  NextState& ahead_;
};

// Adds a row's products with a block to sums in registers.
Values Walk::multiply(Value row, const Columns& columns, Values so_far) {
  Values right;
  for (int64_t v = 0; v < columns.vectors; ++v)
    right.push_back(state_vector(row, column(columns, v)));
  for (size_t p = 0; p < products.size(); ++p) {
    Value x = left(products[p], row);
    for (int64_t v = 0; v < columns.vectors; ++v) {
      Value& sum = so_far[p * columns.vectors + v];
      sum = e_.fma(x, right[v], sum);
    }
  }
  return so_far;
}

// Adds whole rows, one after the other, to sums in memory.
void Walk::add_rows(Value first, int64_t count) {
  llvm::SmallVector<Values> lefts;
  for (const Product& product : products) {
    lefts.emplace_back();
    for (int64_t i = 0; i < count; ++i) lefts.back().push_back(left(product, e_.add(first, i)));
  }
  Columns columns = whole_row();
  for (int64_t v = 0; v < columns.vectors; ++v) {
    ahead_.ask_multiplied({first, count, v, columns.vectors});
    Values right;
    for (int64_t i = 0; i < count; ++i)
      right.push_back(state_vector(e_.add(first, i), column(columns, v)));
    for (size_t p = 0; p < products.size(); ++p) {
      Value at = e_.at(products[p].sums.pointer, column(columns, v)), sum = e_.load_vector(at);
      for (int64_t i = 0; i < count; ++i) sum = e_.fma(lefts[p][i], right[i], sum);
      e_.store(sum, at);
    }
  }
}

void Walk::keep_sums(const Columns& columns, const Values& sums) {
  for (size_t p = 0; p < products.size(); ++p) {
    auto own = sums.begin() + p * columns.vectors;
    put({own, own + columns.vectors}, products[p].sums, e_.i64(0), columns);
  }
}

// What follows from the sums of a block.
void Walk::follow(const Columns& columns) {
  for (mlir::Operation* op : after) {
    Value result = op->getResult(0);
    put(evaluate(result, e_.i64(0), columns), memory_.buffer_of(result), e_.i64(0), columns);
  }
}

void Walk::by_rows() {
  ahead_.ask_before_walk();
  Columns all = whole_row();
  Value none = e_.i64(0), rows = e_.i64(state_.rows);
  Values zeros(products.size() * all.vectors, e_.splat(0.f));
  // Vectors of 16 floats come with 32 registers, and half of them may hold sums.
  if (e_.lanes() == 16 && zeros.size() <= 16) {
    keep_sums(all, e_.loop(none, rows, 1, zeros, [&](Value row, const Values& so_far) {
      return multiply(row, all, so_far);
    }));
  } else {
    // Of fewer, half hold what some rows are multiplied with.
    keep_sums(all, zeros);
    int64_t count = std::max<int64_t>(1, 8 / products.size()), whole = state_.rows / count * count;
    e_.loop(none, e_.i64(whole), count, [&](Value row) { add_rows(row, count); });
    if (whole < state_.rows) add_rows(e_.i64(whole), state_.rows - whole);
  }
  follow(all);
  hold(false);
  int64_t wide = e_.lanes() == 16 || all.vectors % 4 ? all.vectors : 4;
  e_.loop(none, rows, 1, [&](Value row) {
    for (int64_t v = 0; v < all.vectors; v += wide) {
      ahead_.ask_updated({row, 1, v / wide, all.vectors / wide});
      update(row, {e_.i64(v * e_.lanes()), wide});
    }
  });
  blocks_.let_go();
}

// What all rows are updated with stays in registers, if there are enough.
void Walk::hold(bool across) {
  int64_t vectors = state_.stride / e_.lanes();
  if (e_.lanes() != 16 || vectors > 8) return;
  MatmulOp product;
  memory_.evaluating = next;
  blocks_.for_each_product(next, [&](MatmulOp op) { product = op; });
  memory_.evaluating = Value();
  if (!product || product.getTransposeRhs()) return;
  blocks_.hold(across ? product.getLhs() : product.getRhs(), vectors);
}

void Walk::by_columns() {
  // Two lines of every row at a time: less is too little for one visit of a row, more does not stay
  // in the first cache until it is updated.
  constexpr int64_t kTwoLines = 32;
  int64_t vectors = state_.stride / e_.lanes(), wide = kTwoLines / e_.lanes();
  while (vectors % wide) wide /= 2;
  int64_t step = wide * e_.lanes();
  Value rows = e_.i64(state_.rows), none = e_.i64(0);
  auto finish = [&](const Columns& columns, const Values& sums) {
    keep_sums(columns, sums);
    follow(columns);
  };
  Values zeros(products.size() * wide, e_.splat(0.f));
  Columns first{none, wide}, last{e_.i64(state_.stride - step), wide};
  finish(first, e_.loop(none, rows, 1, zeros, [&](Value row, const Values& so_far) {
    return multiply(row, first, so_far);
  }));
  e_.loop(e_.i64(step), e_.i64(state_.stride), step, [&](Value from) {
    Columns own{from, wide}, before{e_.sub(from, e_.i64(step)), wide};
    finish(own, e_.loop(none, rows, 1, zeros, [&](Value row, const Values& so_far) {
      update(row, before);
      return multiply(row, own, so_far);
    }));
  });
  e_.loop(none, rows, 1, [&](Value row) { update(row, last); });
}

// Half a row of those that are next. Blocks are read across the rows, which no processor guesses.
void Walk::ask_for(Value row, int64_t half) {
  int64_t lines = (state_.stride + kLine - 1) / kLine;
  for (int64_t n = lines * half / 2; n < lines * (half + 1) / 2; ++n)
    e_.prefetch(e_.at(state_.pointer, e_.add(state_.row_start(e_, row), n * kLine)));
}

// The sums of groups of value channels, of each group a lane a channel; products after products.
// They go from key to key as they do in the other walks, so blocks are turned in registers.
Values Walk::sums_of_values(Value first, int64_t groups) {
  Values zeros(products.size() * groups, e_.splat(0.f));
  Value none = e_.i64(0), keys = e_.i64(state_.stride);
  int64_t turns = state_.stride / e_.lanes(), rows = groups * e_.lanes();
  int64_t asked = (rows + turns - 1) / turns;
  return e_.loop(none, keys, e_.lanes(), zeros, [&](Value key, Values sums) {
    Value turn = e_.divide(key, e_.lanes()), ahead = e_.add(first, rows);
    for (int64_t i = 0; i < asked; ++i) ask_for(e_.add(ahead, e_.add(e_.mul(turn, asked), i)), 0);
    for (int64_t g = 0; g < groups; ++g) {
      Values block;
      for (int64_t i = 0; i < e_.lanes(); ++i)
        block.push_back(state_vector(e_.add(first, g * e_.lanes() + i), key));
      e_.transpose(block);
      for (int64_t i = 0; i < e_.lanes(); ++i)
        for (size_t p = 0; p < products.size(); ++p) {
          Value& sum = sums[p * groups + g];
          sum = e_.fma(left(products[p], e_.add(key, i)), block[i], sum);
        }
    }
    return sums;
  });
}

void Walk::by_values() {
  int64_t vectors = state_.stride / e_.lanes(), wide = e_.lanes() == 16 ? 8 : 4;
  if (vectors <= wide) wide = vectors;  // what is held is a whole row
  while (vectors % wide) wide /= 2;
  // The sums of one group wait for each other.
  int64_t groups = state_.rows % (2 * e_.lanes()) == 0 ? 2 : 1, step = groups * e_.lanes();
  hold(true);
  e_.loop(e_.i64(0), e_.i64(state_.rows), step, [&](Value first) {
    Columns channels{first, groups};
    keep_sums(channels, sums_of_values(first, groups));
    follow(channels);
    e_.loop(first, e_.add(first, step), 1, [&](Value row) {
      ask_for(e_.add(row, step), 1);
      for (int64_t v = 0; v < vectors; v += wide) update(row, {e_.i64(v * e_.lanes()), wide}, true);
    });
  });
  blocks_.let_go();
}

}  // namespace

void TokenStep::emit(Emitter& e, Memory& memory, BlockEvaluator& blocks, Scratch& scratch,
                     NextState& ahead, Walking walking) const {
  Walk walk(e, memory, blocks, memory.buffer_of(state_), ahead);
  walk.after = after_;
  walk.next = next_;
  for (MatmulOp product : products_) {
    Buffer sums = scratch.place(product);
    walk.products.push_back({memory.buffer_of(product.getLhs()), sums});
    memory.keep(product, sums);
  }
  for (mlir::Operation* op : after_) {
    Value result = op->getResult(0);
    memory.keep(result, scratch.place(result));
  }
  switch (walking) {
    case Walking::rows:
      return walk.by_rows();
    case Walking::columns:
      return walk.by_columns();
    case Walking::values:
      return walk.by_values();
  }
}

}  // namespace linnet::cpu
