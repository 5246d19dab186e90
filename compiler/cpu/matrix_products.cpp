#include "compiler/cpu/matrix_products.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;
namespace arith = mlir::arith;

namespace {

constexpr int64_t kTile = MatrixUnit::kTile;
// Where running products of a gate start: they mostly fall, and have further so.
constexpr float kStart = 0x1p32f;

}  // namespace

MatrixProducts::MatrixProducts(Emitter& emitter, const TileProgram& program, Memory& memory,
                               BlockEvaluator& blocks, TileOps& tile_ops, Scratch& scratch,
                               Prefetches& prefetches, NarrowUnit unit)
    : e_(emitter),
      program_(program),
      memory_(memory),
      blocks_(blocks),
      tile_ops_(tile_ops),
      scratch_(scratch),
      prefetches_(prefetches),
      unit_(emitter, unit) {
  if (unit == NarrowUnit::none) return;
  for (const Loop& loop : program.loops()) {
    for (mlir::Operation* op : loop.body) {
      for (Value operand : op->getOperands()) readers_[program.origin(operand)].push_back(op);
      if (auto product = llvm::dyn_cast<MatmulOp>(op)) any_ |= is_mine(product);
    }
    for (Value next : loop.next()) readers_[program.origin(next)].push_back(nullptr);
  }
  for (auto output : program.graph().getBody().getOps<OutputOp>())
    readers_[program.origin(output.getValue())].push_back(nullptr);
}

void MatrixProducts::start() {
  if (use_tiles()) unit_.configure(scratch_.take(kTile));
}
void MatrixProducts::finish() {
  if (use_tiles()) unit_.release();
}

// Operands of bf16, whole tiles high, and of some depth.
bool MatrixProducts::is_mine(MatmulOp op) {
  bool narrow = op.getPrecision() && *op.getPrecision() == Precision::bf16;
  int64_t depth = tile_of(op.getLhs()).getDimSize(op.getTransposeLhs() ? 0 : 1);
  return unit_.is_there() && narrow && program_.schedule().chunk > 1 &&
         tile_of(op).getDimSize(0) % kTile == 0 && 2 * depth >= MatrixUnit::kDepth;
}

int64_t MatrixProducts::steps(MatmulOp op) {
  int64_t depth = tile_of(op.getLhs()).getDimSize(op.getTransposeLhs() ? 0 : 1);
  if (!is_mine(op)) return depth;
  return unit_.has_tiles() ? 0 : depth / 2;
}

MatmulOp MatrixProducts::fused_product(Value value) {
  value = program_.origin(value);
  auto op = memory_.in_memory(value) ? MatmulOp() : value.getDefiningOp<MatmulOp>();
  return op && is_mine(op) ? op : MatmulOp();
}

bool MatrixProducts::has_products(Value value) {
  bool any = false;
  if (!memory_.in_memory(value)) blocks_.for_each_product(value, [&](MatmulOp) { any = true; });
  return any;
}

bool MatrixProducts::is_at(Value value, Buffer target) {
  return memory_.in_memory(value) && memory_.buffer_of(value).pointer == target.pointer;
}

bool MatrixProducts::emit(Value value, Buffer target) {
  mlir::Operation* op = value.getDefiningOp();
  if (!any_) return false;
  if (is_at(value, target)) return true;
  if (memory_.in_memory(value) || !is_fusible(op)) return false;
  if (MatmulOp product = fused_product(value)) {
    multiply(product, target, Value(), false, false);
    return true;
  }
  if (llvm::isa<arith::AddFOp, arith::SubFOp>(op)) {
    bool subtract = llvm::isa<arith::SubFOp>(op);
    for (int side : {1, 0}) {
      MatmulOp product = fused_product(op->getOperand(side));
      if (!product || (side == 0 && subtract)) continue;
      Value other = program_.origin(op->getOperand(1 - side));
      bool by_rows = !is_at(other, target) && !has_products(other);
      Value to_pack = std::exchange(to_pack_, Value());  // by the last product of the sum
      if (!by_rows) memory_.make(other, target);
      to_pack_ = to_pack;
      multiply(product, target, other, by_rows, subtract);
      return true;
    }
  }
  if (llvm::isa<BroadcastOp, DecayMaskOp>(op)) return false;
  for (Value operand : op->getOperands()) {
    operand = program_.origin(operand);
    if (!operand.getDefiningOp() || !has_products(operand)) continue;
    Buffer place = scratch_.place(operand);
    if (emit(operand, place)) memory_.keep(operand, place);
  }
  return false;
}

void MatrixProducts::multiply(MatmulOp op, Buffer target, Value base, bool make_base, bool negate) {
  MatrixUnit::Product product{
      .left = packed(op.getLhs(), true, op.getTransposeLhs(), negate),
      .right = packed(op.getRhs(), false, op.getTransposeRhs(), false),
      .to = target,
      .depth = tile_of(op.getLhs()).getDimSize(op.getTransposeLhs() ? 0 : 1),
      .accumulate = static_cast<bool>(base),
      .during = prefetches_.share_of(op)};
  if (make_base) {
    product.before = [&](Value row, int64_t rows) {
      tile_ops_.emit_some_rows(base, target, row, rows);
    };
    product.base = [&](const Block& block) { return blocks_.evaluate(base, block); };
  }
  if (to_pack_ && is_at(to_pack_, target)) {
    Value carried = std::exchange(to_pack_, Value());
    product.after = [=, this](Value row, int64_t rows) { pack_across(carried, row, rows); };
    product.made = [=, this](const Block& block, const Values& sums) {
      unit_.pack_sums(block, sums, packed(carried, false, false, false));
    };
  }
  if (program_.is_lower_triangular(op.getLhs()))
    product.depth_of = [&](int64_t row, int64_t rows) {
      return op.getTransposeLhs() ? std::pair(row, product.depth)
                                  : std::pair(int64_t(0), std::min(row + rows, product.depth));
    };
  unit_.multiply(product);
}

bool MatrixProducts::makes_sums_of(Value value) {
  auto is_one = [&](Value x) {
    auto product = program_.origin(x).getDefiningOp<MatmulOp>();
    return product && is_mine(product);
  };
  mlir::Operation* op = value.getDefiningOp();
  return is_one(value) ||
         (llvm::isa<arith::AddFOp, arith::SubFOp>(op) && llvm::any_of(op->getOperands(), is_one));
}

bool MatrixProducts::is_only_packed(Value value) {
  if (!any_ || program_.placement(value) != Placement::scratch) return false;
  if (tile_of(value).getRank() != 2 || !is_fusible(value.getDefiningOp())) return false;
  Value outer = std::exchange(memory_.evaluating, value);
  bool products = has_products(value);
  memory_.evaluating = outer;
  return !products && llvm::all_of(readers_[value], [&](mlir::Operation* reader) {
    auto product = llvm::dyn_cast_or_null<MatmulOp>(reader);
    return product && is_mine(product);
  });
}

// Loads a tile that is in memory, computes one that is not.
MatrixUnit::Reader MatrixProducts::reader_of(Value value) {
  bool computed = value.getDefiningOp() && is_only_packed(value);
  return [this, value, computed](Value row, int64_t rows, Value column) {
    Value outer = memory_.evaluating;
    if (computed) memory_.evaluating = value;
    Values result = blocks_.evaluate(value, {row, column, rows, 1, std::nullopt});
    memory_.evaluating = outer;
    return result;
  };
}

// Rows of the left lie together, and columns of the right; the one is the other's transpose.
Buffer MatrixProducts::packed(Value value, bool is_left, bool is_transposed, bool negate) {
  value = program_.origin(value);
  Tile type = tile_of(value);
  int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  bool across = is_left == is_transposed;
  int form = kPacked | (across ? kAcross : 0) | (negate ? kMinus : 0);
  int64_t depth = MatrixUnit::packed_depth(across ? rows : columns);
  Buffer shape = across ? Buffer{{}, depth, columns, scratch_.padded(columns)}
                        : Buffer{{}, rows, depth, depth};
  Buffer result = scratch_.form_of(value, form, shape, [&](Buffer to) {
    if (!across) {
      std::vector<MatrixUnit::Rows> tiles = companions(value);
      tiles.push_back({reader_of(value), columns, to, negate});
      return unit_.pack_along_rows(tiles);
    }
    unit_.pack_across_rows(reader_of(value), e_.i64(0), rows, to, negate);
    unit_.clear_beyond(rows, to);
  });
  if (!is_transposed) return result;
  return scratch_.form_of(value, form | kFlipped,
                          {{}, result.columns, result.rows, scratch_.padded(result.rows)},
                          [&](Buffer to) { tile_ops_.transpose(result, to); });
}

void MatrixProducts::pass_by(Value value) { passed_by_.push_back(value); }

// What an expression reads of the caller's rows.
void MatrixProducts::for_each_input(Value value, llvm::function_ref<void(Value)> call) {
  value = program_.origin(value);
  mlir::Operation* op = value.getDefiningOp();
  if (!op || tile_of(value).getRank() != 2) return;
  if (llvm::isa<InputOp>(op)) return call(value);
  if (!is_fusible(op) || (memory_.in_memory(value) && !is_only_packed(value))) return;
  for (Value operand : op->getOperands()) for_each_input(operand, call);
}

bool MatrixProducts::is_subtracted(MatmulOp op) {
  return llvm::any_of(op->getUsers(), [&](mlir::Operation* user) {
    return llvm::isa<arith::SubFOp>(user) && program_.origin(user->getOperand(1)) == op;
  });
}

// How products take a tile, if all of them take it by rows and with the same sign.
std::optional<int> MatrixProducts::form_by_rows(Value value) {
  std::optional<int> form;
  for (mlir::Operation* reader : readers_[value]) {
    auto product = llvm::cast<MatmulOp>(reader);
    bool is_left = program_.origin(product.getLhs()) == value;
    bool is_right = program_.origin(product.getRhs()) == value;
    bool across = is_left ? product.getTransposeLhs() : !product.getTransposeRhs();
    int wanted = kPacked | (is_left && is_subtracted(product) ? kMinus : 0);
    if (across || is_left == is_right || form.value_or(wanted) != wanted) return std::nullopt;
    form = wanted;
  }
  return form;
}

std::vector<MatrixUnit::Rows> MatrixProducts::companions(Value value) {
  llvm::DenseSet<Value> inputs;
  for_each_input(value, [&](Value input) { inputs.insert(input); });
  std::vector<MatrixUnit::Rows> found;
  llvm::erase_if(passed_by_, [&](Value other) {
    bool alike = false;
    for_each_input(other, [&](Value input) { alike |= inputs.contains(input); });
    Tile type = tile_of(other);
    auto form = form_by_rows(other);
    if (other == value) return true;
    if (!alike || !form || type.getDimSize(0) != tile_of(value).getDimSize(0)) return false;
    int64_t depth = MatrixUnit::packed_depth(type.getDimSize(1));
    Buffer to =
        scratch_.form_of(other, *form, {{}, type.getDimSize(0), depth, depth}, [](Buffer) {});
    found.push_back({reader_of(other), type.getDimSize(1), to, (*form & kMinus) != 0});
    return true;
  });
  return found;
}

bool MatrixProducts::is_kept_packed(Value carried) {
  return any_ && llvm::any_of(readers_[carried], [&](mlir::Operation* reader) {
           auto product = llvm::dyn_cast_or_null<MatmulOp>(reader);
           return product && is_mine(product) && !product.getTransposeRhs() &&
                  program_.origin(product.getRhs()) == carried;
         });
}

void MatrixProducts::pack_across(Value value, Value first, int64_t rows) {
  unit_.pack_across_rows(reader_of(value), first, rows, packed(value, false, false, false), false);
}

void MatrixProducts::begin(const Loop& loop) {
  passed_by_.clear();
  for (Value carried : loop.carried())
    if (is_kept_packed(carried)) packed(carried, false, false, false);
}

void MatrixProducts::begin_update(Value carried) {
  to_pack_ = is_kept_packed(carried) ? carried : Value();
}

void MatrixProducts::end_update(Value carried) {
  if (to_pack_) pack_across(carried, e_.i64(0), tile_of(carried).getDimSize(0));
  to_pack_ = Value();
}

// All in the running product of the gate from the start of a row's block on: a row is multiplied by
// it, the columns of its block by its inverse, and those before the block by what is between.
bool MatrixProducts::emit_scores(DecayDotOp op, Buffer target) {
  bool narrow = op.getPrecision() && *op.getPrecision() == Precision::bf16;
  if (!any_ || !narrow || target.rows % kTile != 0 || !tile_ops_.stepwise_gate(op)) return false;
  int64_t depth = tile_of(op.getLhs()).getDimSize(1);
  Buffer left = packed_rows(op);
  tile_ops_.fill_zero(target);
  for (int64_t row = 0; row < target.rows; row += kTile) {
    unit_.multiply(
        {.left = {e_.at(left.pointer, e_.i64(row * left.stride)), kTile, left.columns, left.stride},
         .right = packed_columns(op, row / kTile),
         .to = {e_.at(target.pointer, e_.i64(row * target.stride)), kTile, row + kTile,
                target.stride},
         .depth = depth,
         .accumulate = false});
    e_.loop(e_.i64(row), e_.i64(row + kTile), 1, [&](Value i) {
      Value place = e_.at(target.pointer, e_.add(e_.mul(i, target.stride), e_.i64(row)));
      Value seen = e_.columns_up_to(e_.i64(row), i, op.getTriangle() == Triangle::strict_lower);
      e_.store(e_.select(seen, e_.load_vector(place), e_.splat(0.f)), place);
    });
    add_lost_columns(op, target, row / kTile);
  }
  return true;
}

// What the products leave out: columns in channels whose running product has become too small. A
// row gets them token by token; none after it decides.
void MatrixProducts::add_lost_columns(DecayDotOp op, Buffer target, int64_t block) {
  auto& builder = e_.builder();
  Buffer b = memory_.buffer_of(op.getRhs()), step = memory_.steps(*tile_ops_.stepwise_gate(op));
  Value owner = columns_of(op, block).first;
  Buffer lost{scratch_.place(owner, kLost, b.rows * b.stride), b.rows, b.columns, b.stride};
  bool before = tile_ops_.sees_before(op).second;
  Value first = e_.i64(block * kTile), end = e_.i64((block + 1) * kTile);
  e_.loop(e_.i64(0), e_.i64(b.stride), e_.lanes(), [&](Value channel) {
    Value there = e_.columns_up_to(channel, e_.i64(b.columns), true);
    auto is_lost = [&](Value product) -> Value {
      return builder.create<arith::AndIOp>(e_.loc(), is_zero(product), there);
    };
    auto any = [&](Value lanes) -> Value {
      return builder.create<mlir::vector::ReductionOp>(e_.loc(), mlir::vector::CombiningKind::OR,
                                                       lanes);
    };
    Value last = e_.load_vector(e_.at(last_products(op, block), channel));
    e_.when(any(is_lost(last)), [&] {
      Values start{e_.splat(kStart), end};
      Values found = e_.loop(first, end, 1, start, [&](Value j, const Values& so_far) {
        Value next = running_product(so_far[0], blocks_.load(step, j, channel));
        Value lanes = is_lost(before ? so_far[0] : next);
        e_.store(e_.select(lanes, blocks_.load(b, j, channel), e_.splat(0.f)),
                 e_.at(lost.pointer, e_.add(e_.mul(j, lost.stride), channel)));
        return Values{next, e_.select(any(lanes), e_.minimum(j, so_far[1]), so_far[1])};
      });
      e_.loop(found[1], end, 1, [&](Value i) {
        Value row = tile_ops_.row_of_scores(op, i, channel);
        tile_ops_.walk_along_row(op, lost, target, i, found[1], channel, {row}, true);
      });
    });
  });
}

// One token further, and zero from where it is too small to be divided by. A row's goes on to the
// least f32: of columns that are left in, 2^-30 is lost at most.
Value MatrixProducts::running_product(Value before, Value step) {
  constexpr float kLeast = 0x1p-96f;
  Value next = e_.fmul(before, step);
  Value enough = e_.builder().create<arith::CmpFOp>(e_.loc(), arith::CmpFPredicate::OGE, next,
                                                    e_.splat(kLeast));
  return e_.select(enough, next, e_.splat(0.f));
}

Value MatrixProducts::is_zero(Value x) {
  return e_.builder().create<arith::CmpFOp>(e_.loc(), arith::CmpFPredicate::OEQ, x, e_.splat(0.f));
}

Value MatrixProducts::row_of(const Buffer& tile, Value row, int64_t vector) {
  return blocks_.load(tile, row, e_.i64(vector * e_.lanes()));
}

// Decayed from the start of their blocks.
Buffer MatrixProducts::packed_rows(DecayDotOp op) {
  Buffer step = memory_.steps(*tile_ops_.stepwise_gate(op));
  bool before = tile_ops_.sees_before(op).first;
  int64_t vectors = step.stride / e_.lanes(), depth = MatrixUnit::packed_depth(step.columns);
  std::vector<MatrixUnit::Rows> others = companions(program_.origin(op.getLhs()));
  Buffer to{scratch_.place(op, kRows, step.rows * depth), step.rows, depth, depth};
  e_.loop(e_.i64(0), e_.i64(step.rows), kTile, [&](Value first) {
    Values start(vectors, e_.splat(kStart));
    e_.loop(first, e_.add(first, kTile), 1, start, [&](Value i, const Values& product) {
      Values row = blocks_.evaluate(op.getLhs(), {i, e_.i64(0), 1, vectors, std::nullopt}), next;
      for (int64_t v = 0; v < vectors; ++v) {
        next.push_back(e_.fmul(product[v], row_of(step, i, v)));
        row[v] = e_.fmul(row[v], before ? product[v] : next[v]);
      }
      std::vector<Values> read;
      for (const MatrixUnit::Rows& other : others) read.push_back(unit_.read_row(other, i));
      unit_.pack_row(row, step.columns, to, i);
      for (const auto& [other, vectors] : llvm::zip(others, read))
        unit_.pack_row(vectors, other.columns, other.to, i);
      return next;
    });
  });
  return to;
}

// What is kept of the columns: under the first op that has the same.
std::pair<Value, int> MatrixProducts::columns_of(DecayDotOp op, int64_t block) {
  std::pair columns(program_.origin(op.getRhs()), program_.origin(op.getColumns()));
  Value owner = owners_.try_emplace(columns, op).first->second;
  return {owner, kColumns * static_cast<int>(block + 1)};
}

Value MatrixProducts::last_products(DecayDotOp op, int64_t block) {
  auto [owner, form] = columns_of(op, block);
  return scratch_.place(owner, form | kLast, memory_.buffer_of(op.getRhs()).stride);
}

// Those of a block and of all before it: decayed to its start, or back from it.
Buffer MatrixProducts::packed_columns(DecayDotOp op, int64_t block) {
  Buffer b = memory_.buffer_of(op.getRhs()), step = memory_.steps(*tile_ops_.stepwise_gate(op));
  bool before = tile_ops_.sees_before(op).second;
  int64_t start = block * kTile, rows = start + kTile;
  int64_t vectors = b.stride / e_.lanes(), depth = MatrixUnit::packed_depth(b.columns);
  auto [owner, form] = columns_of(op, block);
  Buffer along = scratch_.form_of(owner, form | kPacked, {{}, rows, depth, depth}, [&](Buffer to) {
    Values decays(vectors, e_.splat(1 / kStart)), products(vectors, e_.splat(kStart));
    e_.loop(e_.i64(0), e_.i64(start), 1, decays, [&](Value turn, const Values& decay) {
      Value j = e_.sub(e_.i64(start - 1), turn);
      Values column, next;
      for (int64_t v = 0; v < vectors; ++v) {
        next.push_back(e_.fmul(decay[v], row_of(step, j, v)));
        column.push_back(e_.fmul(row_of(b, j, v), before ? next[v] : decay[v]));
      }
      unit_.pack_row(column, b.columns, to, j);
      return next;
    });
    auto turn = [&](Value j, const Values& product) {
      Values column, next;
      for (int64_t v = 0; v < vectors; ++v) {
        next.push_back(running_product(product[v], row_of(step, j, v)));
        Value own = before ? product[v] : next[v];
        Value back = e_.fmul(row_of(b, j, v), unit_.inverse(own));
        column.push_back(e_.select(is_zero(own), e_.splat(0.f), back));
      }
      unit_.pack_row(column, b.columns, to, j);
      return next;
    };
    Values last = e_.loop(e_.i64(start), e_.i64(rows), 1, products, turn);
    for (int64_t v = 0; v < vectors; ++v)
      e_.store(last[v], e_.at(last_products(op, block), e_.i64(v * e_.lanes())));
  });
  return scratch_.form_of(owner, form | kPacked | kFlipped, {{}, depth, rows, rows},
                          [&](Buffer to) { tile_ops_.transpose(along, to); });
}

}  // namespace linnet::cpu
