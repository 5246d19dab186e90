// Which products of a kernel go to the unit for bf16, and how their operands get there: packed as
// they are computed where nobody else reads them, and the state packed as it is updated.
#pragma once

#include "compiler/cpu/matrix_unit.h"
#include "compiler/cpu/prefetch.h"
#include "compiler/cpu/scratch.h"
#include "compiler/cpu/tile_ops.h"

namespace linnet::cpu {

class MatrixProducts {
 public:
  MatrixProducts(Emitter& emitter, const TileProgram& program, Memory& memory,
                 BlockEvaluator& blocks, TileOps& tile_ops, Scratch& scratch,
                 Prefetches& prefetches, NarrowUnit unit);

  bool is_mine(chunk::MatmulOp op);
  // Of a product's loop, where each calls hooks.
  int64_t steps(chunk::MatmulOp op);
  bool has_unit() const { return unit_.is_there(); }
  bool use_tiles() const { return any_ && unit_.has_tiles(); }
  void start();
  void finish();

  // Makes the products under a fused value; whether the value itself is in `target` with that. A
  // sum with a product is the other side with the product added on top, as BlockEvaluator has it.
  bool emit(mlir::Value value, Buffer target);
  // Whether a value is sums of this unit as they are, which go to f32 in memory.
  bool makes_sums_of(mlir::Value value);
  // Scores under decay as products, where a gate is the same for rows and columns.
  bool emit_scores(chunk::DecayDotOp op, Buffer target);

  // Whether only products of this unit read a tile: it is packed as it is computed, and never
  // in memory itself.
  bool is_only_packed(mlir::Value value);

  // Says of such a tile that all it is made of is there.
  void pass_by(mlir::Value value);

  // The carried tiles that products read packed are so before the loop and after each update.
  void begin(const Loop& loop);
  void begin_update(mlir::Value carried);
  void end_update(mlir::Value carried);

 private:
  chunk::MatmulOp fused_product(mlir::Value value);
  bool has_products(mlir::Value value);
  bool is_at(mlir::Value value, Buffer target);
  bool is_kept_packed(mlir::Value carried);
  // The product, added to `base` if there is one: that lies in `target` already, or else is made
  // there row by row.
  void multiply(chunk::MatmulOp op, Buffer target, mlir::Value base, bool make_base, bool negate);
  // An operand as the matrix unit takes it.
  Buffer packed(mlir::Value value, bool is_left, bool is_transposed, bool negate);
  // What has been passed by and takes rows of the same inputs, to be packed in the same loop.
  std::vector<MatrixUnit::Rows> companions(mlir::Value value);
  std::optional<int> form_by_rows(mlir::Value value);
  bool is_subtracted(chunk::MatmulOp op);
  void for_each_input(mlir::Value value, llvm::function_ref<void(mlir::Value)> call);
  // Operands of scores under decay.
  Buffer packed_rows(chunk::DecayDotOp op);
  Buffer packed_columns(chunk::DecayDotOp op, int64_t block);
  std::pair<mlir::Value, int> columns_of(chunk::DecayDotOp op, int64_t block);
  void add_lost_columns(chunk::DecayDotOp op, Buffer target, int64_t block);
  mlir::Value running_product(mlir::Value before, mlir::Value step);
  mlir::Value last_products(chunk::DecayDotOp op, int64_t block);
  mlir::Value is_zero(mlir::Value x);
  mlir::Value row_of(const Buffer& tile, mlir::Value row, int64_t vector);
  void pack_across(mlir::Value value, mlir::Value first, int64_t rows);
  MatrixUnit::Reader reader_of(mlir::Value value);

  Emitter& e_;
  const TileProgram& program_;
  Memory& memory_;
  BlockEvaluator& blocks_;
  TileOps& tile_ops_;
  Scratch& scratch_;
  Prefetches& prefetches_;
  MatrixUnit unit_;
  bool any_ = false;
  llvm::DenseMap<std::pair<mlir::Value, mlir::Value>, mlir::Value> owners_;
  llvm::SmallVector<mlir::Value> passed_by_;
  mlir::Value to_pack_;  // the carried tile that is being updated
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Operation*, 2>> readers_;  // null: not an op
};

}  // namespace linnet::cpu
