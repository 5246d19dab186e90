// Exponentials of a gate's sums over tokens, made as products of its steps: one exponential a gate,
// nothing above one that is not so itself, and no difference of large sums.
#pragma once

#include "compiler/cpu/scratch.h"

namespace linnet::cpu {

// The running sum of a gate from the first token of a chunk on, if a value is one.
chunk::CumsumOp running_sum(const TileProgram& program, mlir::Value value);

// The exponential of a sum of a gate.
struct GateProduct {
  mlir::Value gate;
  enum class Over {
    so_far,   // up to each token, ...
    before,   // ... without its own
    after,    // from behind each token to the end
    all,      // the chunk: one row
    between,  // a decay_mask: from each token to each one after it
  } over;
  chunk::DecayMaskOp mask = {};
};

class GateProducts {
 public:
  GateProducts(Emitter& emitter, const TileProgram& program, BlockEvaluator& blocks,
               Scratch& scratch)
      : e_(emitter), program_(program), blocks_(blocks), scratch_(scratch) {}

  // Of a chunk of several tokens; all in one stage, so that every kernel of the graph decides
  // alike.
  std::optional<GateProduct> of(mlir::Operation* op) const;

  void start_turn() { wholes_.clear(); }
  // exp of a gate, token by token.
  Buffer make_steps(mlir::Value gate);
  void emit(const GateProduct& product, Buffer to);
  // A product over all that is the last of the products so far, which have been made.
  std::optional<Buffer> made(const GateProduct& product) const;
  // The ops of a loop, where products over all come as late as they can: see above.
  std::vector<mlir::Operation*> in_order(llvm::ArrayRef<mlir::Operation*> body) const;

 private:
  void emit_running(const GateProduct& product, Buffer steps, Buffer to);
  void emit_mask(chunk::DecayMaskOp mask, Buffer steps, Buffer to);

  Emitter& e_;
  const TileProgram& program_;
  BlockEvaluator& blocks_;
  Scratch& scratch_;
  llvm::DenseMap<mlir::Value, Buffer> wholes_;  // by gate, of this turn
};

}  // namespace linnet::cpu
