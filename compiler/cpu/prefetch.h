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

 private:
  struct Rows {
    mlir::Value first, step;
    int64_t columns;
    mlir::Type type;
    bool write;
  };
  bool takes(mlir::Operation* op) const;

  Emitter& e_;
  std::vector<Rows> rows_;
  int64_t chunk_ = 0;
  bool has_state_ = false;         // products with it
  int64_t takers_ = 0, done_ = 0;  // ops left that take a share, rows done in this turn
};

}  // namespace linnet::cpu
