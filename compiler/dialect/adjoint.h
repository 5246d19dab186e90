// What reverse mode needs of every op: how the gradient of its result becomes gradients of its
// operands.
#pragma once

#include "compiler/dialect/builder.h"

namespace linnet::chunk {

using AddGradient = llvm::function_ref<void(mlir::Value operand, mlir::Value gradient)>;

// Builds the adjoint of an op that is not a scan. Fails, with an error at the op, if it has none.
mlir::LogicalResult build_adjoint(mlir::Operation* op, mlir::Value gradient, Builder& b,
                                  AddGradient add);

}  // namespace linnet::chunk
