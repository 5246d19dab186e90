// One token and the state it finds: products of single rows with the state, what follows from them
// channel by channel, and the next state. Every sum goes from the first key to the last, however
// the state is walked over: the bits are the same.
#pragma once

#include "compiler/cpu/prefetch.h"
#include "compiler/cpu/scratch.h"

namespace linnet::cpu {

class TokenStep {
 public:
  // The step of a loop over single tokens; nothing if its turns have another form.
  static std::optional<TokenStep> of(const Loop& loop, const TileProgram& program,
                                     BlockEvaluator& blocks);

  // Whether emit() makes it. What it needs besides is made before.
  bool makes(mlir::Operation* op) const;
  bool can_walk_values() const { return can_walk_values_; }
  void emit(Emitter& emitter, Memory& memory, BlockEvaluator& blocks, Scratch& scratch,
            NextState& ahead, Walking walking) const;

 private:
  mlir::Value state_, next_;
  llvm::SmallVector<chunk::MatmulOp> products_;
  llvm::SmallVector<mlir::Operation*> after_;  // in memory, without the next state
  bool can_walk_values_ = true;
};

}  // namespace linnet::cpu
