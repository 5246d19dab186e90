// The builder of chunk graphs: one short call an op, broadcasts put in where shapes differ.
// Derivations use it, and so can a graph written by hand.
#pragma once

#include "compiler/dialect/chunk.h"

namespace linnet::chunk {

class Builder {
 public:
  // Ops are created at the builder's insertion point, with the place of `location` but not its
  // name.
  Builder(mlir::OpBuilder& builder, mlir::Location location)
      : builder_(builder), location_(unnamed(location)) {}

  mlir::MLIRContext* context() { return builder_.getContext(); }
  mlir::OpBuilder& raw() { return builder_; }
  mlir::Location location() { return location_; }

  mlir::Value input(llvm::StringRef name, Scope scope, Tile type, bool key_heads = false);
  void output(llvm::StringRef name, mlir::Value value, Scope scope, bool key_heads = false);
  mlir::Value constant(Tile type, float value);
  mlir::Value scalar(float value) { return constant(tile_type(context(), {}, {}), value); }

  // Elementwise; the smaller operand is broadcast to the larger.
  mlir::Value add(mlir::Value a, mlir::Value b, llvm::StringRef name = {});
  mlir::Value sub(mlir::Value a, mlir::Value b, llvm::StringRef name = {});
  mlir::Value mul(mlir::Value a, mlir::Value b, llvm::StringRef name = {});
  mlir::Value div(mlir::Value a, mlir::Value b, llvm::StringRef name = {});
  mlir::Value maximum(mlir::Value a, mlir::Value b, llvm::StringRef name = {});
  mlir::Value neg(mlir::Value a, llvm::StringRef name = {});
  mlir::Value exp(mlir::Value a, llvm::StringRef name = {});
  mlir::Value rsqrt(mlir::Value a, llvm::StringRef name = {});
  mlir::Value sigmoid(mlir::Value a, llvm::StringRef name = {});
  mlir::Value softplus(mlir::Value a, llvm::StringRef name = {});
  // a where condition >= bound, else zero.
  mlir::Value keep_at_least(mlir::Value a, mlir::Value condition, mlir::Value bound);

  mlir::Value matmul(mlir::Value a, bool transpose_a, mlir::Value b, bool transpose_b,
                     llvm::StringRef name = {});
  mlir::Value matmul(mlir::Value a, mlir::Value b, llvm::StringRef name = {}) {
    return matmul(a, false, b, false, name);
  }
  mlir::Value cumsum(mlir::Value a, bool exclusive = false, bool reverse = false,
                     llvm::StringRef name = {});
  mlir::Value mask(mlir::Value a, Triangle triangle, llvm::StringRef name = {});
  mlir::Value decay_mask(mlir::Value rows, mlir::Value columns, Triangle triangle,
                         llvm::StringRef name = {});
  mlir::Value decay_dot(mlir::Value a, mlir::Value b, mlir::Value rows, mlir::Value columns,
                        Triangle triangle, llvm::StringRef name = {});
  mlir::Value decay_apply(Side side, mlir::Value matrix, mlir::Value vectors, mlir::Value rows,
                          mlir::Value columns, Triangle triangle, llvm::StringRef name = {});
  mlir::Value inverse_unit_lower(mlir::Value a, llvm::StringRef name = {});
  mlir::Value reduce(mlir::Value a, llvm::ArrayRef<int64_t> dims, llvm::StringRef name = {});
  mlir::Value broadcast(mlir::Value a, llvm::ArrayRef<int64_t> dims, Tile type);
  // Broadcasts to a type whose axes contain the value's own, each axis once.
  mlir::Value broadcast_to(mlir::Value a, Tile type);
  mlir::Value row(mlir::Value a, int64_t index, llvm::StringRef name = {});
  mlir::Value place_row(mlir::Value a, int64_t index, Tile type);
  mlir::Value valid(mlir::Value a, llvm::StringRef name = {});

 private:
  template <class Op, class... Args>
  mlir::Value make(llvm::StringRef name, Args&&... args) {
    return builder_.create<Op>(named(location_, name), std::forward<Args>(args)...)->getResult(0);
  }
  template <class Op>
  mlir::Value binary(mlir::Value a, mlir::Value b, llvm::StringRef name);

  mlir::OpBuilder& builder_;
  mlir::Location location_;
};

// A builder at the end of a block that may not be part of any region yet.
inline mlir::OpBuilder at_end(mlir::MLIRContext* context, mlir::Block* block) {
  mlir::OpBuilder builder(context);
  builder.setInsertionPointToEnd(block);
  return builder;
}

// The dimensions of `larger` that `smaller` lacks; nothing if its axes are not found in order.
std::optional<llvm::SmallVector<int64_t>> missing_dims(Tile smaller, Tile larger);

}  // namespace linnet::chunk
