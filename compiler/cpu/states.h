// States between the caller's memory and a kernel: where a loop starts from, where it ends, and
// those in between that the caller asks for.
#pragma once

#include "compiler/cpu/token_rows.h"

namespace linnet::cpu {

class States {
 public:
  States(Emitter& emitter, TileOps& tile_ops, Scratch& scratch, bool v_first)
      : e_(emitter), tile_ops_(tile_ops), scratch_(scratch), v_first_(v_first) {}

  // What a kernel is told of the states between chunks: every so many chunks one is kept, `step`
  // numbers after the last; none if the pointer is 0.
  struct Asked {
    mlir::Value pointer, step, every, row_step;
  } asked;

  // To a tile of scratch memory, and back.
  void load(const Bound& from, Buffer state);
  void store(Buffer state, const Bound& to);
  // The state a chunk starts from, where the caller asked for states and this one is due.
  void keep(Buffer state, mlir::Value chunk);

  // The plain recurrence updates the state where the caller wants it, as it lies there: nothing is
  // copied but what starts elsewhere.
  bool can_lie_in_place(chunk::Tile type, const Bound& from) const;
  Buffer place(chunk::Tile type, const Bound& from, const Bound& to);

 private:
  Buffer flipped(Buffer state);  // as it lies in the caller's memory if value channels come first

  Emitter& e_;
  TileOps& tile_ops_;
  Scratch& scratch_;
  bool v_first_;
  int64_t flipped_offset_ = -1;
};

}  // namespace linnet::cpu
