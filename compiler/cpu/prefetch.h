// Rows of the caller's memory that the next turn starts with. Heads lie between the tokens of one,
// so the processor does not guess them. They are asked for while products with the state are made
// (or scores under decay, in a loop without such products), a few lines at a time: all at once they
// would wait for each other, and for the tables of pages.
#pragma once

#include "compiler/cpu/blocks.h"

namespace linnet::cpu {

class Prefetches {
 public:
  explicit Prefetches(Emitter& emitter) : e_(emitter) {}

  // A new turn of `loop`, whose chunks have so many tokens.
  void start(const Loop& loop, int64_t chunk);
  // The next turn reads (or writes) rows from here on.
  void add(mlir::Value first_row, mlir::Value step, int64_t columns, mlir::Type type, bool write);
  // The share of them that is asked for in the turns of this op's loop.
  TurnHook share_of(mlir::Operation* op);
  // All of them, here.
  void ask_for_all();

 private:
  struct Rows {
    mlir::Value first, step;
    int64_t columns;
    mlir::Type type;
    bool write;
  };
  bool takes(mlir::Operation* op) const;
  // A turn's part of `share` rows from `first` on.
  void ask(int64_t first, int64_t share, mlir::Value turn, int64_t turns);

  Emitter& e_;
  std::vector<Rows> rows_;
  int64_t chunk_ = 0;
  bool has_state_ = false;         // products with it
  int64_t takers_ = 0, done_ = 0;  // ops left that take a share, rows done in this turn
};

// How the step of one token goes over the state.
enum class Walking {
  // Whole rows, once for all products and once for the update: for processors that fetch ahead of
  // what is read in order.
  rows,
  // Blocks of columns; one is updated while the next is multiplied, so that memory is read all the
  // time.
  columns,
  // For a state whose rows are value channels: some are multiplied and then updated, so that memory
  // is read once.
  values,
};

// The state of the next head, which mostly follows this one's. Of single tokens nothing else takes
// long, so lines of it are asked for all the time, a few at once: more would hold up the loads
// behind them. Some are asked for between the ops before this state is walked over, half of all as
// it is multiplied, the others as it is updated.
class NextState {
 public:
  NextState(Emitter& emitter, BlockEvaluator& blocks, Buffer state, Walking walking);

  void ask_between_ops() { ask_up_to(asked_ + kAtOnce); }
  void ask_before_walk() { ask_up_to(rows_ * between_); }  // what is left of those
  // As rows are multiplied or updated: the part of theirs that goes with a part of their columns.
  struct Turn {
    mlir::Value row;
    int64_t rows, part, parts;
  };
  void ask_multiplied(const Turn& turn) { ask_for_rows(turn, 0, multiplied_); }
  void ask_updated(const Turn& turn) { ask_for_rows(turn, rows_ * multiplied_, updated_); }

 private:
  static constexpr int64_t kLine = 16;    // floats
  static constexpr int64_t kAtOnce = 16;  // lines
  void ask_up_to(int64_t end);
  void ask_for_rows(const Turn& turn, int64_t before, int64_t per_row);
  void ask(mlir::Value from, int64_t first, int64_t end);

  Emitter& e_;
  mlir::Value start_;
  int64_t rows_;
  int64_t between_ = 0, multiplied_ = 0, updated_ = 0;  // lines a row
  int64_t asked_ = 0;                                   // between ops
};

}  // namespace linnet::cpu
