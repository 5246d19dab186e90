// One token and the state it finds: products of single rows with the state, what follows from them
// channel by channel, and the next state. All of it goes over the state by blocks of columns, and
// while one block is updated the next is multiplied: memory is read all the time, not only while
// products are made.
#pragma once

#include "compiler/cpu/scratch.h"

namespace linnet::cpu {

class TokenStep {
 public:
  // The step of a loop over single tokens; nothing if its turns have another form.
  static std::optional<TokenStep> of(const Loop& loop, const TileProgram& program,
                                     BlockEvaluator& blocks);

  // Whether emit() makes it. What it needs besides is made before.
  bool makes(mlir::Operation* op) const;
  void emit(Emitter& emitter, Memory& memory, BlockEvaluator& blocks, Scratch& scratch) const;

 private:
  mlir::Value state_, next_;
  llvm::SmallVector<chunk::MatmulOp> products_;
  llvm::SmallVector<mlir::Operation*> after_;  // in memory, without the next state
};

}  // namespace linnet::cpu
