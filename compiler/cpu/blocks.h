// Evaluates expressions on blocks of registers: some rows by some vectors of a tile at a time,
// products included.
#pragma once

#include "compiler/cpu/emitter.h"
#include "compiler/tile/program.h"

namespace linnet::cpu {

// A tile in memory: element (i, j) at pointer[i * stride + j], rows padded to whole vectors.
// Vectors are one row.
struct Buffer {
  mlir::Value pointer;
  int64_t rows = 1, columns = 1, stride = 1;
  // In the caller's memory, or of a wider tile: what the rows are apart instead of `stride`, and
  // the format.
  mlir::Value step = {};
  chunk::Precision storage = chunk::Precision::f32;
  bool past_caches = false;  // written for other cores, line by line

  // Where row i starts, in elements.
  mlir::Value row_start(Emitter& e, mlir::Value i) const {
    return step ? e.mul(i, step) : e.mul(i, stride);
  }
};

// Called in every step of a product, with its number.
struct StepHook {
  chunk::MatmulOp product;
  std::function<void(mlir::Value step)> call;
};
// Called in every turn of a long loop, with the number of the turn and of all turns.
using TurnHook = std::function<StepHook(mlir::Value turn, int64_t turns)>;

// Where the values of a program are, while one loop is emitted.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual Buffer buffer_of(mlir::Value value) = 0;  // of a value that is in memory
  virtual bool in_memory(mlir::Value value) = 0;
  virtual Buffer transposed(mlir::Value value) = 0;  // a transposed copy, made before
  // exp of a gate, token by token: what one step decays by; made before.
  virtual Buffer steps(mlir::Value gate) = 0;
  virtual mlir::Value valid_rows() = 0;
  // Puts a fused value into memory; and says that one is there, ahead of what reads it.
  virtual void make(mlir::Value value, Buffer target) = 0;
  virtual void keep(mlir::Value value, Buffer buffer) = 0;

  mlir::Value evaluating;  // what is being made: not in memory yet
};

// One block: rows first_row + 0 .. rows - 1, vectors from column `first_column`.
struct Block {
  mlir::Value first_row, first_column;
  int64_t rows, vectors;
  std::optional<int64_t> known_row;  // first_row, where it is known when the code is written
  bool across = false;               // a block of the transposed value
  StepHook at_step = {};
};

class BlockEvaluator {
 public:
  BlockEvaluator(Emitter& emitter, const TileProgram& program, Memory& memory)
      : e_(emitter), program_(program), memory_(memory) {}

  // The block's vectors, row after row.
  Values evaluate(mlir::Value value, const Block& block);

  // A vector of row i, from a column on.
  mlir::Value load(const Buffer& buffer, mlir::Value i, mlir::Value column) {
    return e_.load_as_f32(buffer.pointer, e_.add(buffer.row_start(e_, i), column), buffer.storage,
                          true);
  }

  // The fused products under a value, the value itself included.
  void for_each_product(mlir::Value value, llvm::function_ref<void(chunk::MatmulOp)> call);

  // A product with the transpose of a single row, which need not be made.
  static bool is_product_of_rows(chunk::MatmulOp op) {
    return op.getTransposeRhs() && !op.getTransposeLhs() &&
           chunk::tile_of(op.getRhs()).getDimSize(0) == 1;
  }

  // A tile of one row stays in registers: products from the right with it read no memory.
  void hold(mlir::Value tile, int64_t vectors) {
    Values row = evaluate(tile, {e_.i64(0), e_.i64(0), 1, vectors, std::nullopt});
    held_[program_.origin(tile)] = row;
  }
  void let_go() { held_.clear(); }

 private:
  Values load(mlir::Value value, const Block& block);
  Values load_broadcast(chunk::BroadcastOp op, const Block& block);
  Values load_view(mlir::Value pointer, int64_t row_step, int64_t column_step, const Block& block);
  Values compute(mlir::Operation* op, const Block& block);
  Values sum(mlir::Operation* op, bool subtract, const Block& block);
  Values accumulate(chunk::MatmulOp op, bool negate, Values sums, const Block& block);
  Values add_dots(chunk::MatmulOp op, bool negate, Values sums, const Block& block);
  Values decay_mask(chunk::DecayMaskOp op, const Block& block);
  Values elementwise(mlir::Operation* op, const Block& block);
  mlir::Value row(const Block& block, int64_t i) { return e_.add(block.first_row, i); }
  mlir::Value column(const Block& block, int64_t v) {
    return e_.add(block.first_column, v * e_.lanes());
  }
  chunk::MatmulOp fused_product(mlir::Value value);

  Emitter& e_;
  const TileProgram& program_;
  Memory& memory_;
  llvm::DenseMap<mlir::Value, Values> held_;
};

}  // namespace linnet::cpu
