// Rows that the next turn starts with: of the caller's memory, where heads lie between the tokens
// of one so that the processor does not guess them, and of what other loops left. Asked for all at
// once they would wait for each other, and for the tables of pages, and the loads behind them would
// too. So they are asked for while the state is updated, a line or so in each step of that product;
// where it has no such steps, and for rows to be written, a few lines at a time while products with
// the state are made (or scores under decay, in a loop without such products).
#pragma once

#include "compiler/cpu/blocks.h"

namespace linnet::cpu {

class Prefetches {
 public:
  // Narrow numbers that vectors widen as a turn starts are asked for into the first cache: there
  // are half as many lines, and each is waited for by several loads in a row.
  Prefetches(Emitter& emitter, bool widens) : e_(emitter), widens_(widens) {}

  // The steps of a product in which hooks are called; 0 if they are not.
  using StepsOf = std::function<int64_t(chunk::MatmulOp)>;
  // A new turn of `loop`, whose chunks have so many tokens.
  void start(const Loop& loop, int64_t chunk, StepsOf steps_of);
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
  static int64_t lines(const Rows& rows);  // of one row
  // Tiles as large as states, in a loop without steps that take a token each: a line or so in each
  // step of a product with a state. In bursts they would come too late.
  bool is_large(const Rows& rows) const;
  StepHook ask_for_large(chunk::MatmulOp product, int64_t walker, mlir::Value turn, int64_t turns);
  // A line of each row. They lie in the same few sets of the first cache if rows are 4 KB apart, as
  // with eight heads of 128 channels, and there is no place for more lines on their way than a set
  // has ways: so each row's is another one, `line` with the row's number turned into it.
  struct Column {
    mlir::Value first, step, line, turned;
  };
  Column column(mlir::Value number);  // of all rows to be read
  void ask(const Column& column, mlir::Value row);
  bool takes(mlir::Operation* op) const;
  bool has_steps(mlir::Operation* op) const;
  // Whether an op has a step for each token, or for some together.
  bool steps_over_tokens(mlir::Operation* op) const;
  // A turn's part of `share` rows from `first` on.
  void ask(int64_t first, int64_t share, mlir::Value turn, int64_t turns);
  // A turn's lines of all rows to be read, token after token.
  StepHook ask_in_steps(chunk::MatmulOp update, mlir::Value turn, int64_t turns);

  Emitter& e_;
  bool widens_, near_ = false;
  std::vector<Rows> rows_;
  StepsOf steps_of_;
  int64_t chunk_ = 0;
  bool has_state_ = false;         // products with it
  bool in_steps_ = false;          // rows to be read are asked for
  int64_t takers_ = 0, done_ = 0;  // ops left that take a share, rows done in this turn
  int64_t walkers_ = 0;            // those of them that have steps
  int64_t walked_ = 0;
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
  NextState(Emitter& emitter, Buffer state, Walking walking);

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
