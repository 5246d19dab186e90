// Evaluates one op of a graph or law on tiles.
#pragma once

#include "compiler/interpreter/tile.h"

namespace linnet::interpreter {

template <class T>
using TileRef = std::shared_ptr<const Tile<T>>;

// The result of an op with one result and no region. `valid_rows`: tokens of the chunk that exist.
template <class T>
TileRef<T> evaluate(mlir::Operation* op, llvm::function_ref<const Tile<T>&(mlir::Value)> get,
                    int64_t valid_rows);

}  // namespace linnet::interpreter
