// What a loop takes by vectors of rows, and so need not be copied.
#pragma once

#include "compiler/cpu/matrix_products.h"

namespace linnet::cpu {

struct RowReads {
  RowReads() = default;
  RowReads(const Loop& loop, const TileProgram& program, MatrixProducts& products,
           TileOps& tile_ops, int64_t lanes);

  llvm::DenseSet<mlir::Value> in_place;    // inputs that are read in the caller's memory
  llvm::DenseSet<mlir::Value> made_again;  // what one op makes of them, wherever it is read
};

}  // namespace linnet::cpu
