#include "compiler/cpu/prefetch.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;

namespace {

constexpr int64_t kLine = 64;      // bytes
constexpr int64_t kLarge = 16384;  // bytes of a tile

int64_t bytes_of(mlir::Type number) { return number.getIntOrFloatBitWidth() / 8; }

bool is_state_product(mlir::Operation* any) {
  auto op = llvm::dyn_cast<MatmulOp>(any);
  if (!op) return false;
  auto is_state = [](Value value) {
    return has_axis(value.getType(), Axis::key) && has_axis(value.getType(), Axis::value);
  };
  return is_state(op.getLhs()) || is_state(op.getRhs()) || is_state(op);
}

}  // namespace

void Prefetches::start(const Loop& loop, int64_t chunk, StepsOf steps_of) {
  rows_.clear();
  near_ = false;
  chunk_ = chunk;
  steps_of_ = std::move(steps_of);
  takers_ = done_ = walkers_ = walked_ = 0;
  has_state_ = llvm::any_of(loop.body, is_state_product);
  in_steps_ = llvm::any_of(loop.body, [&](mlir::Operation* op) { return steps_over_tokens(op); });
  for (mlir::Operation* op : loop.body) {
    if (!takes(op) || steps_over_tokens(op)) continue;
    ++takers_;
    walkers_ += has_steps(op);
  }
}

bool Prefetches::has_steps(mlir::Operation* op) const {
  auto product = llvm::dyn_cast<MatmulOp>(op);
  return product && steps_of_(product) > 0;
}

void Prefetches::add(Value first_row, Value step, int64_t columns, mlir::Type type, bool write) {
  rows_.push_back({first_row, step, columns, type, write});
  near_ |= widens_ && !write && bytes_of(type) < 4;
}

int64_t Prefetches::lines(const Rows& rows) {
  return llvm::divideCeil(rows.columns * bytes_of(rows.type), kLine);
}

bool Prefetches::takes(mlir::Operation* op) const {
  return has_state_ ? is_state_product(op) : llvm::isa<DecayDotOp>(op);
}

bool Prefetches::steps_over_tokens(mlir::Operation* op) const {
  auto product = llvm::dyn_cast<MatmulOp>(op);
  if (!product || !product.getTransposeLhs() || !is_state_product(op)) return false;
  int64_t steps = steps_of_(product);
  return tile_of(product.getLhs()).getDimSize(0) == chunk_ && steps > 0 && chunk_ % steps == 0;
}

// The last product of a turn is the update, whose turns are short and many: it takes half.
TurnHook Prefetches::share_of(mlir::Operation* op) {
  if (!takes(op) || rows_.empty()) return {};
  if (steps_over_tokens(op))
    return [this, update = llvm::cast<MatmulOp>(op)](Value turn, int64_t turns) {
      return ask_in_steps(update, turn, turns);
    };
  if (takers_ == 0) return {};
  int64_t first = done_, share = chunk_ - done_;
  if (takers_ > 1) share /= in_steps_ ? takers_ : takers_ + 1;
  --takers_;
  done_ += share;
  int64_t walker = has_steps(op) ? walked_++ : -1;
  return [=, this](Value turn, int64_t turns) {
    ask(first, share, turn, turns);
    return walker < 0 ? StepHook() : ask_for_large(llvm::cast<MatmulOp>(op), walker, turn, turns);
  };
}

bool Prefetches::is_large(const Rows& rows) const {
  return walkers_ > 0 && !in_steps_ && !rows.write &&
         rows.columns * bytes_of(rows.type) * chunk_ > kLarge;
}

StepHook Prefetches::ask_for_large(MatmulOp product, int64_t walker, Value turn, int64_t turns) {
  std::vector<Rows> mine;
  int64_t number = 0;
  for (const Rows& rows : rows_)
    if (is_large(rows) && number++ % walkers_ == walker) mine.push_back(rows);
  if (mine.empty()) return {};
  int64_t steps = steps_of_(product);
  return {product, [=, this](Value step) {
            Value index = e_.add(e_.mul(turn, steps), step);
            for (const Rows& rows : mine) {
              int64_t of_row = lines(rows), all = of_row * chunk_, together = turns * steps,
                      of_step = llvm::divideCeil(all, together);
              for (int64_t n = 0; n < of_step; ++n) {
                Value line = of_step > 1 ? e_.add(e_.mul(index, of_step), n)
                                         : e_.divide(e_.mul(index, all), together);
                Value row = e_.divide(line, of_row), column = e_.sub(line, e_.mul(row, of_row));
                Value at =
                    e_.add(e_.mul(row, rows.step), e_.mul(column, kLine / bytes_of(rows.type)));
                e_.prefetch(e_.at(rows.first, at, rows.type), false, Ahead::much);
              }
            }
          }};
}

void Prefetches::ask_for_all() { ask(0, chunk_, e_.i64(0), 1); }

void Prefetches::ask(int64_t first, int64_t share, Value turn, int64_t turns) {
  for (const Rows& rows : rows_) {
    if ((in_steps_ && !rows.write) || is_large(rows)) continue;
    int64_t numbers = kLine / bytes_of(rows.type), all = lines(rows);
    int64_t here = llvm::divideCeil(share * all, turns);
    for (int64_t n = 0; n < here; ++n) {
      Value line = e_.add(e_.mul(turn, here), n), row = e_.divide(line, all);
      Value column = e_.mul(e_.sub(line, e_.mul(row, all)), numbers);
      Value index = e_.add(e_.mul(e_.add(row, first), rows.step), column);
      e_.prefetch(e_.at(rows.first, index, rows.type), rows.write);
    }
  }
}

Prefetches::Column Prefetches::column(Value number) {
  auto& b = e_.builder();
  Column found;
  int64_t before = 0;
  for (const Rows& rows : rows_) {
    if (rows.write) continue;
    int64_t own = lines(rows);
    Column these{rows.first, e_.mul(rows.step, bytes_of(rows.type)), e_.add(number, -before),
                 e_.i64(llvm::isPowerOf2_64(own) ? own - 1 : 0)};
    Value is_before = b.create<mlir::arith::CmpIOp>(e_.loc(), mlir::arith::CmpIPredicate::slt,
                                                    number, e_.i64(before));
    auto choose = [&](Value Column::* part) {
      return e_.select(is_before, found.*part, these.*part);
    };
    found = before == 0 ? these
                        : Column{choose(&Column::first), choose(&Column::step),
                                 choose(&Column::line), choose(&Column::turned)};
    before += own;
  }
  return found;
}

void Prefetches::ask(const Column& column, Value row) {
  auto& b = e_.builder();
  Value turned = b.create<mlir::arith::AndIOp>(e_.loc(), row, column.turned);
  Value line = b.create<mlir::arith::XOrIOp>(e_.loc(), column.line, turned);
  Value at = e_.add(e_.mul(row, column.step), e_.mul(line, kLine));
  e_.prefetch(e_.at(column.first, at, b.getI8Type()), false, near_ ? Ahead::near : Ahead::some);
}

// Evenly over the turns, so that some lines may be asked for twice.
StepHook Prefetches::ask_in_steps(MatmulOp update, Value turn, int64_t turns) {
  int64_t all = 0;
  for (const Rows& rows : rows_) all += rows.write ? 0 : lines(rows);
  // A step asks for all of its tokens, or for one if there are turns enough.
  int64_t of_step = chunk_ / steps_of_(update), parts = all * of_step <= turns ? of_step : 1;
  Value token = e_.sub(turn, e_.mul(e_.divide(turn, parts), parts));
  turn = e_.divide(turn, parts);
  turns /= parts;

  std::vector<Column> columns;
  for (int64_t n = 0; n * turns < all; ++n)
    columns.push_back(column(e_.divide(e_.add(e_.mul(turn, all), n * turns), turns)));
  return {update, [=, this](Value step) {
            Value first = e_.add(e_.mul(step, of_step), token);
            for (int64_t n = 0; n < of_step / parts; ++n)
              for (const Column& column : columns) ask(column, e_.add(first, n));
          }};
}

NextState::NextState(Emitter& emitter, Buffer state, Walking walking)
    : e_(emitter), rows_(state.rows) {
  // It gains nothing where vectors are a line long: fewer instructions stand between the loads.
  if (walking != Walking::rows || e_.lanes() == kLine) return;
  start_ = e_.at(state.pointer, state.row_start(e_, e_.i64(rows_)));
  int64_t lines = (state.stride + kLine - 1) / kLine;
  between_ = lines >= 4 ? 1 : 0;
  multiplied_ = (lines + 1) / 2;
  updated_ = lines - between_ - multiplied_;
}

void NextState::ask_up_to(int64_t end) {
  end = std::min(end, rows_ * between_);
  ask(e_.i64(0), asked_, end);
  asked_ = end;
}

void NextState::ask_for_rows(const Turn& turn, int64_t before, int64_t per_row) {
  if (per_row == 0) return;
  int64_t lines = turn.rows * per_row, first = rows_ * between_ + before;
  ask(e_.mul(turn.row, per_row * kLine), first + lines * turn.part / turn.parts,
      first + lines * (turn.part + 1) / turn.parts);
}

void NextState::ask(Value from, int64_t first, int64_t end) {
  for (int64_t line = first; line < end; ++line)
    e_.prefetch(e_.at(start_, e_.add(from, line * kLine)));
}

}  // namespace linnet::cpu
