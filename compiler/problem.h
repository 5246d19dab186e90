// Problems in the terms of the dialect.
#pragma once

#include "compiler/dialect/chunk.h"
#include "linnet/problem.h"

namespace linnet {

inline chunk::Precision precision_of(DType type) {
  return type == DType::bf16  ? chunk::Precision::bf16
         : type == DType::f16 ? chunk::Precision::f16
                              : chunk::Precision::f32;
}
// Of the operands of products.
inline chunk::Precision precision_of(const Problem& problem) {
  return problem.tf32 ? chunk::Precision::tf32 : precision_of(problem.dtype);
}
// The other way, for tests and commands that name a precision.
inline void choose_precision(Problem& problem, chunk::Precision precision) {
  problem.tf32 = precision == chunk::Precision::tf32;
  problem.dtype = precision == chunk::Precision::bf16  ? DType::bf16
                  : precision == chunk::Precision::f16 ? DType::f16
                                                       : DType::f32;
}

}  // namespace linnet
