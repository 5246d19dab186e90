#include "compiler/cpu/prefetch.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;

namespace {

bool is_state_product(mlir::Operation* any) {
  auto op = llvm::dyn_cast<MatmulOp>(any);
  if (!op) return false;
  auto is_state = [](Value value) {
    return has_axis(value.getType(), Axis::key) && has_axis(value.getType(), Axis::value);
  };
  return is_state(op.getLhs()) || is_state(op.getRhs()) || is_state(op);
}

}  // namespace

void Prefetches::start(const Loop& loop, int64_t chunk) {
  rows_.clear();
  chunk_ = chunk;
  takers_ = done_ = 0;
  has_state_ = llvm::any_of(loop.body, is_state_product);
  for (mlir::Operation* op : loop.body) takers_ += takes(op);
}

void Prefetches::add(Value first_row, Value step, int64_t columns, mlir::Type type, bool write) {
  rows_.push_back({first_row, step, columns, type, write});
}

bool Prefetches::takes(mlir::Operation* op) const {
  return has_state_ ? is_state_product(op) : llvm::isa<DecayDotOp>(op);
}

// The last product of a turn is the update, whose turns are short and many: it takes half.
TurnHook Prefetches::share_of(mlir::Operation* op) {
  if (!takes(op) || rows_.empty() || takers_ == 0) return {};
  int64_t first = done_, share = chunk_ - done_;
  if (takers_ > 1) share /= takers_ + 1;
  --takers_;
  done_ += share;
  return [this, first, share](Value turn, int64_t turns) { ask(first, share, turn, turns); };
}

void Prefetches::ask_for_all() { ask(0, chunk_, e_.i64(0), 1); }

void Prefetches::ask(int64_t first, int64_t share, Value turn, int64_t turns) {
  constexpr int64_t kLine = 64;
  for (const Rows& rows : rows_) {
    int64_t numbers = kLine * 8 / rows.type.getIntOrFloatBitWidth();
    int64_t lines = (rows.columns + numbers - 1) / numbers;
    int64_t here = (share * lines + turns - 1) / turns;
    for (int64_t n = 0; n < here; ++n) {
      Value line = e_.add(e_.mul(turn, here), n), row = e_.divide(line, lines);
      Value column = e_.mul(e_.sub(line, e_.mul(row, lines)), numbers);
      Value index = e_.add(e_.mul(e_.add(row, first), rows.step), column);
      e_.prefetch(e_.at(rows.first, index, rows.type), rows.write);
    }
  }
}

NextState::NextState(Emitter& emitter, BlockEvaluator& blocks, Buffer state, Walking walking)
    : e_(emitter), rows_(state.rows) {
  // It gains nothing where vectors are a line long: fewer instructions stand between the loads.
  if (walking != Walking::rows || e_.lanes() == kLine) return;
  start_ = e_.at(state.pointer, blocks.row_start(state, e_.i64(rows_)));
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
