// Verifiers, type inference and the text form of the chunk ops. Messages say what was expected and
// what came.
#include "compiler/dialect/chunk.h"

#define GET_OP_CLASSES
#include "compiler/dialect/chunk_ops.cpp.inc"

namespace linnet::chunk {

using mlir::failure;
using mlir::LogicalResult;
using mlir::success;
using Types = llvm::SmallVectorImpl<mlir::Type>;
using MaybeLocation = std::optional<mlir::Location>;

namespace {

Tile tile(mlir::Value value) { return llvm::cast<Tile>(value.getType()); }

LogicalResult wrong(MaybeLocation location, llvm::StringRef op, const llvm::Twine& expected,
                    const llvm::Twine& came) {
  return mlir::emitOptionalError(location, "chunk.", op, ": expected ", expected, ", got ", came);
}

bool is_vector_over(Tile type, Axis axis) { return type.getRank() == 1 && has_axis(type, axis); }

bool is_square_in_tokens(Tile type) {
  auto axes = axes_of(type);
  return axes.size() == 2 && axes[0] == Axis::token && axes[1] == Axis::token &&
         type.getDimSize(0) == type.getDimSize(1);
}

LogicalResult verify_square(mlir::Operation* op, Tile type) {
  if (is_square_in_tokens(type)) return success();
  return op->emitOpError("works on a square token x token tile, got ") << describe(type);
}

LogicalResult verify_token_rows(mlir::Operation* op, Tile type) {
  auto axes = axes_of(type);
  if (!axes.empty() && axes.front() == Axis::token) return success();
  return op->emitOpError("expected token rows first, got ") << describe(type);
}

LogicalResult verify_only(mlir::Operation* container,
                          llvm::function_ref<bool(mlir::Operation*)> allowed,
                          llvm::StringRef what) {
  for (mlir::Operation& op : container->getRegion(0).front())
    if (!allowed(&op)) return op.emitOpError("does not belong in ") << what;
  return success();
}

bool is_law_step(mlir::Operation* op) {
  return llvm::isa<StateOp, DecayOp, ReadOp, WriteOp, NextOp>(op);
}

}  // namespace

//===-- containers
//--------------------------------------------------------------------------------===//

LogicalResult LawOp::verifyRegions() {
  auto allowed = [](mlir::Operation* op) {
    return is_law_step(op) || is_elementwise(op) ||
           llvm::isa<InputOp, OutputOp, BroadcastOp, ReduceOp>(op);
  };
  if (failed(verify_only(*this, allowed, "the law of one token"))) return failure();
  if (!llvm::hasSingleElement(getBody().getOps<StateOp>()))
    return emitOpError("has exactly one chunk.state, the state before the token");
  if (!llvm::hasSingleElement(getBody().getOps<NextOp>()))
    return emitOpError("has exactly one chunk.next, the state after the token");
  return success();
}

LogicalResult GraphOp::verifyRegions() {
  if (getChunkSize() < 1)
    return emitOpError("expected a chunk of at least one token, got ") << getChunkSize();
  auto allowed = [](mlir::Operation* op) {
    return !is_law_step(op) && (is_elementwise(op) || llvm::isa<ChunkDialect>(op->getDialect()));
  };
  if (failed(verify_only(*this, allowed, "a chunk graph"))) return failure();
  auto result = mlir::success();
  walk([&](mlir::Operation* op) {
    for (mlir::Value value : op->getResults())
      for (auto [axis, size] : llvm::zip(axes_of(value.getType()), tile(value).getShape()))
        if (axis == Axis::token && size != static_cast<int64_t>(getChunkSize())) {
          op->emitOpError("has ") << size << " token rows in a graph of chunk " << getChunkSize();
          result = failure();
        }
  });
  return result;
}

//===-- the law
//-----------------------------------------------------------------------------------===//

LogicalResult DecayOp::verify() {
  Tile state = tile(getState()), gate = tile(getGate());
  if (gate.getRank() == 0) return success();
  if (!is_vector_over(gate, Axis::key) || gate.getDimSize(0) != state.getDimSize(0))
    return emitOpError("expected a gate over key channels (")
           << state.getDimSize(0) << ") or a scalar, got " << describe(gate);
  return success();
}

LogicalResult ReadOp::inferReturnTypes(mlir::MLIRContext*, MaybeLocation location, Adaptor adaptor,
                                       Types& types) {
  Tile state = tile(adaptor.getState()), vector = tile(adaptor.getVector());
  if (!is_vector_over(vector, Axis::key) || vector.getDimSize(0) != state.getDimSize(0))
    return wrong(location, "read",
                 "a vector over key channels (" + llvm::Twine(state.getDimSize(0)) + ")",
                 describe(vector));
  types.push_back(drop_dims(state, {0}));
  return success();
}

LogicalResult WriteOp::verify() {
  Tile state = tile(getState()), key = tile(getKey()), value = tile(getValue());
  if (!is_vector_over(key, Axis::key) || key.getDimSize(0) != state.getDimSize(0))
    return emitOpError("expected a direction over key channels (")
           << state.getDimSize(0) << "), got " << describe(key);
  if (!is_vector_over(value, Axis::value) || value.getDimSize(0) != state.getDimSize(1))
    return emitOpError("expected a written value over value channels (")
           << state.getDimSize(1) << "), got " << describe(value);
  return success();
}

//===-- products
//----------------------------------------------------------------------------------===//

LogicalResult MatmulOp::inferReturnTypes(mlir::MLIRContext* context, MaybeLocation location,
                                         Adaptor adaptor, Types& types) {
  Tile lhs = tile(adaptor.getLhs()), rhs = tile(adaptor.getRhs());
  if (axes_of(lhs).size() != 2 || axes_of(rhs).size() != 2)
    return wrong(location, "matmul", "two tiles of rank 2",
                 describe(lhs) + " and " + describe(rhs));
  unsigned row = adaptor.getTransposeLhs() ? 1 : 0, column = adaptor.getTransposeRhs() ? 0 : 1;
  unsigned left = 1 - row, right = 1 - column;
  if (axes_of(lhs)[left] != axes_of(rhs)[right] || lhs.getDimSize(left) != rhs.getDimSize(right))
    return wrong(location, "matmul", "equal axes to sum over",
                 stringifyAxis(axes_of(lhs)[left]) + " of " + describe(lhs) + " against " +
                     stringifyAxis(axes_of(rhs)[right]) + " of " + describe(rhs));
  types.push_back(tile_type(context, {axes_of(lhs)[row], axes_of(rhs)[column]},
                            {lhs.getDimSize(row), rhs.getDimSize(column)}));
  return success();
}

LogicalResult DecayMaskOp::inferReturnTypes(mlir::MLIRContext* context, MaybeLocation location,
                                            Adaptor adaptor, Types& types) {
  Tile rows = tile(adaptor.getRows()), columns = tile(adaptor.getColumns());
  if (!is_vector_over(rows, Axis::token) || rows != columns)
    return wrong(location, "decay_mask", "two gates with one number a token",
                 describe(rows) + " and " + describe(columns));
  types.push_back(
      tile_type(context, {Axis::token, Axis::token}, {rows.getDimSize(0), rows.getDimSize(0)}));
  return success();
}

static LogicalResult check_gated(MaybeLocation location, llvm::StringRef op,
                                 llvm::ArrayRef<Tile> tiles) {
  auto axes = axes_of(tiles.front());
  if (axes.size() != 2 || axes[0] != Axis::token)
    return wrong(location, op, "vectors as token rows", describe(tiles.front()));
  for (Tile other : tiles.drop_front())
    if (other != tiles.front())
      return wrong(location, op, "gates and vectors of one shape",
                   describe(tiles.front()) + " and " + describe(other));
  return success();
}

LogicalResult DecayDotOp::inferReturnTypes(mlir::MLIRContext* context, MaybeLocation location,
                                           Adaptor adaptor, Types& types) {
  Tile lhs = tile(adaptor.getLhs());
  if (failed(check_gated(
          location, "decay_dot",
          {lhs, tile(adaptor.getRhs()), tile(adaptor.getRows()), tile(adaptor.getColumns())})))
    return failure();
  types.push_back(
      tile_type(context, {Axis::token, Axis::token}, {lhs.getDimSize(0), lhs.getDimSize(0)}));
  return success();
}

LogicalResult DecayApplyOp::inferReturnTypes(mlir::MLIRContext*, MaybeLocation location,
                                             Adaptor adaptor, Types& types) {
  Tile matrix = tile(adaptor.getMatrix()), vectors = tile(adaptor.getVectors());
  if (failed(check_gated(location, "decay_apply",
                         {vectors, tile(adaptor.getRows()), tile(adaptor.getColumns())})))
    return failure();
  if (!is_square_in_tokens(matrix) || matrix.getDimSize(0) != vectors.getDimSize(0))
    return wrong(location, "decay_apply", "a square token x token tile", describe(matrix));
  types.push_back(vectors);
  return success();
}

LogicalResult InverseUnitLowerOp::verify() { return verify_square(*this, tile(getSource())); }
LogicalResult MaskOp::verify() { return verify_square(*this, tile(getSource())); }
LogicalResult CumsumOp::verify() { return verify_token_rows(*this, tile(getSource())); }
LogicalResult ValidOp::verify() { return verify_token_rows(*this, tile(getSource())); }

//===-- shapes
//------------------------------------------------------------------------------------===//

static LogicalResult check_dims(MaybeLocation location, llvm::StringRef op, Tile type,
                                llvm::ArrayRef<int64_t> dims) {
  for (int64_t i = 0; i < static_cast<int64_t>(dims.size()); ++i)
    if (dims[i] < 0 || dims[i] >= type.getRank() || (i > 0 && dims[i] <= dims[i - 1]))
      return wrong(location, op, "rising dimensions of " + describe(type),
                   "dimension " + llvm::Twine(dims[i]));
  return success();
}

LogicalResult ReduceOp::inferReturnTypes(mlir::MLIRContext*, MaybeLocation location,
                                         Adaptor adaptor, Types& types) {
  Tile source = tile(adaptor.getSource());
  if (failed(check_dims(location, "reduce", source, adaptor.getDims()))) return failure();
  types.push_back(drop_dims(source, adaptor.getDims()));
  return success();
}

LogicalResult BroadcastOp::verify() {
  Tile result = tile(getResult());
  if (failed(check_dims(getLoc(), "broadcast", result, getDims()))) return failure();
  if (drop_dims(result, getDims()) != getSource().getType())
    return emitOpError("expected a source of ")
           << describe(drop_dims(result, getDims())) << ", got " << describe(getSource().getType());
  return success();
}

static LogicalResult check_row(MaybeLocation location, llvm::StringRef op, Tile type,
                               int64_t index) {
  if (type.getRank() == 0 || axes_of(type)[0] != Axis::token || index < 0 ||
      index >= type.getDimSize(0))
    return wrong(location, op, "a row of a tile with token rows",
                 "row " + llvm::Twine(index) + " of " + describe(type));
  return success();
}

LogicalResult RowOp::inferReturnTypes(mlir::MLIRContext*, MaybeLocation location, Adaptor adaptor,
                                      Types& types) {
  Tile source = tile(adaptor.getSource());
  if (failed(check_row(location, "row", source, adaptor.getIndex()))) return failure();
  types.push_back(drop_dims(source, {0}));
  return success();
}

LogicalResult PlaceRowOp::verify() {
  Tile result = tile(getResult());
  if (failed(check_row(getLoc(), "place_row", result, getIndex()))) return failure();
  if (drop_dims(result, {0}) != getSource().getType())
    return emitOpError("expected a row of ")
           << describe(drop_dims(result, {0})) << ", got " << describe(getSource().getType());
  return success();
}

//===-- stages
//------------------------------------------------------------------------------------===//

YieldOp ScanOp::yield() { return llvm::cast<YieldOp>(block().getTerminator()); }
YieldOp MapOp::yield() { return llvm::cast<YieldOp>(block().getTerminator()); }

static LogicalResult check_yield(mlir::Operation* op) {
  auto yield = llvm::dyn_cast<YieldOp>(op->getRegion(0).front().back());
  if (!yield) return op->emitOpError("ends with chunk.yield");
  if (yield.getValues().getTypes() != op->getResultTypes())
    return yield.emitOpError("expected ")
           << op->getNumResults() << " values of the stage's result types, got "
           << yield.getValues().size();
  return success();
}

LogicalResult MapOp::verifyRegions() { return check_yield(*this); }

LogicalResult ScanOp::verifyRegions() {
  if (block().getArgumentTypes() != mlir::TypeRange(getInit()))
    return emitOpError("expected one body argument for each initial value");
  return check_yield(*this);
}

// chunk.scan ["stage"] [reverse] (%S = %S0 : !KxV) -> (!KxV, !CxV) { ... }
void ScanOp::print(mlir::OpAsmPrinter& p) {
  if (auto stage = getStageAttr()) p << ' ' << stage;
  if (getReverse()) p << " reverse";
  p << " (";
  llvm::interleaveComma(llvm::zip(block().getArguments(), getInit()), p, [&](auto pair) {
    p << std::get<0>(pair) << " = " << std::get<1>(pair) << " : " << std::get<1>(pair).getType();
  });
  p << ") -> (" << getResultTypes() << ") ";
  p.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {"stage", "reverse"});
  p.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

mlir::ParseResult ScanOp::parse(mlir::OpAsmParser& p, mlir::OperationState& state) {
  std::string stage;
  if (succeeded(p.parseOptionalString(&stage)))
    state.addAttribute("stage", p.getBuilder().getStringAttr(stage));
  if (succeeded(p.parseOptionalKeyword("reverse")))
    state.addAttribute("reverse", p.getBuilder().getUnitAttr());
  llvm::SmallVector<mlir::OpAsmParser::Argument> arguments;
  llvm::SmallVector<mlir::OpAsmParser::UnresolvedOperand> inits;
  auto carry = [&]() -> mlir::ParseResult {
    return mlir::failure(p.parseArgument(arguments.emplace_back()) || p.parseEqual() ||
                         p.parseOperand(inits.emplace_back()) ||
                         p.parseColonType(arguments.back().type));
  };
  if (p.parseCommaSeparatedList(mlir::OpAsmParser::Delimiter::Paren, carry) || p.parseArrow() ||
      p.parseLParen())
    return mlir::failure();
  if (failed(p.parseOptionalRParen()) && (p.parseTypeList(state.types) || p.parseRParen()))
    return mlir::failure();
  for (auto [argument, init] : llvm::zip(arguments, inits))
    if (p.resolveOperand(init, argument.type, state.operands)) return mlir::failure();
  return mlir::failure(p.parseOptionalAttrDictWithKeyword(state.attributes) ||
                       p.parseRegion(*state.addRegion(), arguments));
}

}  // namespace linnet::chunk
