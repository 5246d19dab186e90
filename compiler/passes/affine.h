// Splits a value of the law into what is known and what was read: x = base + sum of coefficient *
// read.
#pragma once

#include <vector>

#include "compiler/dialect/builder.h"

namespace linnet {

// Tiles of token rows. A null base is zero; a null coefficient is one; coefficients have one number
// a token at most.
struct Affine {
  struct Term {
    mlir::Operation* read;
    mlir::Value coefficient;
    bool negative;
  };
  mlir::Value base;
  std::vector<Term> terms;
};

// `lifted` gives the tile of a law's value, or null if the value depends on a read. New ops go to
// `where`. Reports an error at the op that is not affine in the reads, or scales one per channel:
// no chunk form exists for those.
mlir::FailureOr<Affine> split_affine(mlir::Value value, mlir::OpBuilder& where,
                                     llvm::function_ref<mlir::Value(mlir::Value)> lifted);

// The vector of a read times (minus) the term's coefficient.
mlir::Value scale_by(const Affine::Term& term, bool negate, mlir::Value vector, chunk::Builder& b,
                     llvm::StringRef name);

}  // namespace linnet
