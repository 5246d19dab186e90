#include "compiler/cpu/row_reads.h"

#include "llvm/ADT/MapVector.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;
namespace arith = mlir::arith;

RowReads::RowReads(const Loop& loop, const TileProgram& program, MatrixProducts& products,
                   TileOps& tile_ops, int64_t lanes) {
  // Whether an op takes an operand by vectors of its rows; and each of them once.
  auto takes_rows = [&](mlir::OpOperand& operand, bool once) {
    mlir::Operation* op = operand.getOwner();
    if (auto product = llvm::dyn_cast<MatmulOp>(op)) return products.is_mine(product);
    unsigned number = operand.getOperandNumber();
    if (llvm::isa<DecayDotOp>(op))
      return once ? number == 0 && tile_ops.stepwise_gate(op) : number < 2;
    if (llvm::isa<DecayApplyOp>(op)) return !once;
    return llvm::isa<CumsumOp>(op) ||
           (is_fusible(op) && !llvm::isa<BroadcastOp, DecayMaskOp, PlaceRowOp>(op));
  };
  auto is_result = [&](Value value) {
    auto same = [&](Value other) { return program.origin(other) == value; };
    return llvm::any_of(loop.next(), same) ||
           llvm::any_of(program.graph().getBody().getOps<OutputOp>(),
                        [&](OutputOp output) { return same(output.getValue()); });
  };
  // Where vectors compute, narrow numbers are widened once, not wherever they are read.
  auto may_be_in_place = [&](InputOp input) {
    if (input.getStorage().value_or(Precision::f32) != Precision::f32 && !products.has_unit())
      return false;
    return input.getScope() == Scope::token && tile_of(input).getDimSize(1) % lanes == 0;
  };
  auto may_be_made_again = [&](mlir::Operation* op) {
    return llvm::isa<arith::MulFOp, arith::MaximumFOp>(op) &&
           program.placement(op->getResult(0)) == Placement::scratch &&
           llvm::all_of(op->getOperands(), [&](Value operand) {
             operand = program.origin(operand);
             return in_place.contains(operand) ||
                    llvm::isa_and_nonnull<BroadcastOp, arith::ConstantOp>(operand.getDefiningOp());
           });
  };

  // In the order of their first readers: inputs before what is made of them.
  llvm::MapVector<Value, llvm::SmallVector<mlir::OpOperand*>> readers;
  for (mlir::Operation* op : loop.body)
    for (mlir::OpOperand& operand : op->getOpOperands())
      readers[program.origin(operand.get())].push_back(&operand);
  for (auto& [value, operands] : readers) {
    mlir::Operation* op = value.getDefiningOp();
    if (!op || tile_of(value).getRank() != 2 || is_result(value)) continue;
    auto input = llvm::dyn_cast<InputOp>(op);
    bool may = input ? may_be_in_place(input) : may_be_made_again(op);
    if (may && llvm::all_of(operands, [&](auto* use) { return takes_rows(*use, !input); }))
      (input ? in_place : made_again).insert(value);
  }
}

}  // namespace linnet::cpu
