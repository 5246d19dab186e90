// One token and the state it finds: products of single rows with the state, what follows from them
// channel by channel, and the next state. It goes over the state either by whole rows, once for all
// products and once for the update, which processors like that fetch ahead of what is read in
// order; or by blocks of columns, where one block is updated while the next is multiplied, so that
// memory is read all the time. No sum depends on which.
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
  void emit(Emitter& emitter, Memory& memory, BlockEvaluator& blocks, Scratch& scratch,
            bool by_rows) const;

 private:
  mlir::Value state_, next_;
  llvm::SmallVector<chunk::MatmulOp> products_;
  llvm::SmallVector<mlir::Operation*> after_;  // in memory, without the next state
};

}  // namespace linnet::cpu
