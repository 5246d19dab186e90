// Sums as lists of terms.
#pragma once

#include "compiler/dialect/builder.h"

namespace linnet {

struct Term {
  mlir::Value value;
  bool negative;
};
using Terms = llvm::SmallVector<Term>;

inline bool is_sum(mlir::Operation* op) {
  return llvm::isa_and_nonnull<mlir::arith::AddFOp, mlir::arith::SubFOp>(op);
}

// The terms in their order, every step under the same name.
inline mlir::Value sum_of(const Terms& terms, chunk::Builder& b, const std::string& name) {
  mlir::Value sum;
  for (const Term& term : terms) {
    if (!sum)
      sum = term.negative ? b.neg(term.value, name) : term.value;
    else
      sum = term.negative ? b.sub(sum, term.value, name) : b.add(sum, term.value, name);
  }
  return sum;
}

}  // namespace linnet
