// Rows of tokens between the caller's memory and a turn's tiles: read or written where they lie, or
// copied.
#pragma once

#include "compiler/cpu/scratch.h"
#include "compiler/cpu/tile_ops.h"

namespace linnet::cpu {

// An argument in the caller's memory: `step` numbers from row to row.
struct Bound {
  mlir::Value pointer, step;
  chunk::Precision storage;
  mlir::Value head_step;
};

class TokenRows {
 public:
  TokenRows(Emitter& emitter, TileOps& tile_ops, Scratch& scratch, int64_t chunk)
      : e_(emitter), tile_ops_(tile_ops), scratch_(scratch), chunk_(chunk) {}

  // Those of one chunk; of the last one of a sequence fewer may be there.
  void go_to(mlir::Value first, mlir::Value valid) { first_ = first, valid_ = valid; }
  mlir::Value valid() const { return valid_; }

  // To a tile and back, by copies; inputs maybe where they lie.
  Buffer load(chunk::InputOp input, const Bound& from, bool in_place);
  void store(Buffer from, mlir::Value value, const Bound& to);
  // Where a value may lie without a copy; and what is left to do when all of it is written there.
  Buffer place(mlir::Value value, const Bound& at);
  void finish(mlir::Value value, const Bound& to);

 private:
  mlir::Value start(const Bound& at);
  mlir::Value is_part();
  bool is_whole_row(mlir::Value value, chunk::Precision storage) const;

  Emitter& e_;
  TileOps& tile_ops_;
  Scratch& scratch_;
  int64_t chunk_;
  mlir::Value first_, valid_;
};

}  // namespace linnet::cpu
