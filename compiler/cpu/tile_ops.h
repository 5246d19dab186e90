// Vector code for whole tiles: copies with conversion, running sums, reductions, scores under
// decay, and the inverse.
#pragma once

#include "compiler/cpu/blocks.h"

namespace linnet::cpu {

class TileOps {
 public:
  TileOps(Emitter& emitter, const Target& target, const TileProgram& program, Memory& memory,
          BlockEvaluator& blocks)
      : e_(emitter),
        program_(program),
        memory_(memory),
        blocks_(blocks),
        block_rows_(target.block_rows(program.schedule())) {}

  // Between the caller's memory, `step` numbers from token to token, and a tile; rows from `valid`
  // on are zero.
  void load_rows(mlir::Value from, mlir::Value step, chunk::Precision storage, Buffer to,
                 mlir::Value valid);
  // The same in the caller's format, and back.
  void copy_rows(mlir::Value from, mlir::Value step, chunk::Precision storage, Buffer to,
                 mlir::Value valid);
  void copy_rows_back(Buffer from, mlir::Value to, mlir::Value step, chunk::Precision storage,
                      mlir::Value valid);
  // All rows, f32, to a tile that may lie in the caller's memory.
  void load_rows_to(mlir::Value from, mlir::Value step, Buffer to);
  void load_column(mlir::Value from, mlir::Value step, chunk::Precision storage, Buffer to,
                   mlir::Value valid);
  void load_row(mlir::Value from, chunk::Precision storage, mlir::Value to, int64_t columns);
  void store_rows(Buffer from, mlir::Value to, mlir::Value step, chunk::Precision storage,
                  mlir::Value valid);
  void store_column(Buffer from, mlir::Value to, mlir::Value step, chunk::Precision storage,
                    mlir::Value valid);

  void fill_zero(Buffer to);
  void copy(Buffer from, Buffer to);
  void add_to(Buffer from, Buffer to);
  void transpose(Buffer from, Buffer to);

  // The gate whose running sum a decay_dot or its adjoint goes along, if its rows and columns go
  // along one.
  std::optional<mlir::Value> stepwise_gate(mlir::Operation* op);

  // A fusible value, block by block; triangular operands make every block of rows its own code.
  // `across`: the transpose of a product.
  void emit_blocks(mlir::Value value, Buffer to, bool triangular, const TurnHook& during = {},
                   bool across = false);
  // Whether a product with a transposed tile is made faster as its transpose: what is transposed
  // then are its left side and the result instead of a tile that is much larger than both.
  bool is_better_across(chunk::MatmulOp op) const;
  // Some of its rows.
  void emit_some_rows(mlir::Value value, Buffer to, mlir::Value first_row, int64_t rows);
  // A row of scores under decay, from column `last` on: what vectors of channels from `channel` on
  // give, instead of what is there or on top.
  void walk_along_row(chunk::DecayDotOp op, Buffer columns, Buffer to, mlir::Value row,
                      mlir::Value last, mlir::Value channel, const Values& vectors, bool add);
  mlir::Value row_of_scores(chunk::DecayDotOp op, mlir::Value row, mlir::Value channel);
  // Whether rows and columns of a decay_dot or its adjoint see running sums without their own
  // token's gate.
  std::pair<bool, bool> sees_before(mlir::Operation* op);
  // Any other op.
  void emit(mlir::Operation* op, Buffer to, const TurnHook& during = {});

 private:
  static constexpr int64_t kRowVectors = 8;  // of a row in registers, when rows are taken whole

  void emit_across(mlir::Value value, Buffer to, mlir::Value first_row, int64_t rows,
                   std::optional<int64_t> known_row, const TurnHook& during = {},
                   bool across = false);
  int64_t block_width(Buffer to) const;
  void for_each_vector(Buffer buffer, llvm::function_ref<void(mlir::Value index)> body);

  void cumsum(chunk::CumsumOp op, Buffer to);
  void reduce(chunk::ReduceOp op, Buffer to);
  void inverse(chunk::InverseUnitLowerOp op, Buffer to);
  void decay_dot(chunk::DecayDotOp op, Buffer to, const TurnHook& during);
  void decay_apply(chunk::DecayApplyOp op, Buffer to);
  void decay_apply_stepwise(chunk::DecayApplyOp op, Buffer to);
  // exp(rows_i - columns_j) of one vector of channels.
  mlir::Value decay_between(Buffer rows, Buffer columns, mlir::Value i, mlir::Value j,
                            mlir::Value d);

  Emitter& e_;
  const TileProgram& program_;
  Memory& memory_;
  BlockEvaluator& blocks_;
  int64_t block_rows_;  // of a block of registers
};

}  // namespace linnet::cpu
