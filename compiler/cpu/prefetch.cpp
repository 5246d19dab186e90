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
  return [this, first, share](Value turn, int64_t turns) {
    constexpr int64_t kLine = 64, kSecondCache = 2, kData = 1;
    for (const Rows& rows : rows_) {
      int64_t numbers = kLine * 8 / rows.type.getIntOrFloatBitWidth();
      int64_t lines = (rows.columns + numbers - 1) / numbers;
      int64_t here = (share * lines + turns - 1) / turns;
      for (int64_t n = 0; n < here; ++n) {
        Value line = e_.add(e_.mul(turn, here), n), row = e_.divide(line, lines);
        Value column = e_.mul(e_.sub(line, e_.mul(row, lines)), numbers);
        Value index = e_.add(e_.mul(e_.add(row, first), rows.step), column);
        e_.builder().create<mlir::LLVM::Prefetch>(e_.loc(), e_.at(rows.first, index, rows.type),
                                                  rows.write, kSecondCache, kData);
      }
    }
  };
}

}  // namespace linnet::cpu
