// The `chunk` dialect in C++: its ops, the types of tiles, and the names values carry.
#pragma once

#include <string>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "compiler/dialect/chunk_enums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/dialect/chunk_attrs.h.inc"
#include "compiler/dialect/chunk_dialect.h.inc"
namespace linnet::chunk {
class YieldOp;
}
#define GET_OP_CLASSES
#include "compiler/dialect/chunk_ops.h.inc"

namespace linnet::chunk {

using Tile = mlir::RankedTensorType;

// The type of a tile: its axes and their sizes, elements f32.
Tile tile_type(mlir::MLIRContext* context, llvm::ArrayRef<Axis> axes,
               llvm::ArrayRef<int64_t> sizes);
llvm::ArrayRef<Axis> axes_of(mlir::Type type);
inline Tile tile_of(mlir::Value value) { return llvm::cast<Tile>(value.getType()); }
bool has_axis(mlir::Type type, Axis axis);

// The tile without / with the named dimensions.
Tile drop_dims(Tile type, llvm::ArrayRef<int64_t> dims);
Tile with_token_axis(Tile type, int64_t tokens);

// How a type reads in a message: "token x key (64 x 128)".
std::string describe(mlir::Type type);

// The name a value was given in the law or by a derivation; empty if none. Names live in locations,
// are printed as SSA names and are read back by parse_module.
std::string name_of(mlir::Value value);
mlir::Location named(mlir::Location location, llvm::StringRef name);
mlir::Location unnamed(mlir::Location location);
void set_name(mlir::Value value, llvm::StringRef name);
// The place in a law or file behind a location, "file:line", or empty.
std::string place_of(mlir::Location location);

// True for ops that treat every element on its own (arith, math, sigmoid, softplus, round).
bool is_elementwise(mlir::Operation* op);
// True for the ops whose cost is in products: matmul, decay_dot, decay_apply, inverse_unit_lower.
bool is_contraction(mlir::Operation* op);

// Gives arith and math results their names when printed; called once for a context.
void attach_names(mlir::MLIRContext& context);

}  // namespace linnet::chunk
