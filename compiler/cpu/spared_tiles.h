// Tiles a loop need not make or copy: inputs it takes by vectors of rows, outputs it can write
// where they go, running sums of gates where all goes by running products.
#pragma once

#include "compiler/cpu/gate_products.h"
#include "compiler/cpu/matrix_products.h"
#include "llvm/ADT/MapVector.h"

namespace linnet::cpu {

struct SparedTiles {
  SparedTiles() = default;
  SparedTiles(const Loop& loop, const TileProgram& program, MatrixProducts& products,
              TileOps& tile_ops, const GateProducts& gates, int64_t lanes);

  llvm::DenseSet<mlir::Value> read_in_place;  // inputs, in the caller's memory
  llvm::DenseSet<mlir::Value> made_again;     // what one op makes of them, wherever it is read
  llvm::DenseSet<mlir::Value> never_read;
  // Values that only an output takes, block by block, to the caller's memory.
  llvm::MapVector<mlir::Value, chunk::OutputOp> written_in_place;
};

}  // namespace linnet::cpu
