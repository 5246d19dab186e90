#include "compiler/cpu/spared_tiles.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;
namespace arith = mlir::arith;

SparedTiles::SparedTiles(const Loop& loop, const TileProgram& program, MatrixProducts& products,
                         TileOps& tile_ops, const GateProducts& gates, int64_t lanes) {
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
  auto outputs_of = [&](Value value) {
    return llvm::count_if(program.graph().getBody().getOps<OutputOp>(), [&](OutputOp output) {
      return program.origin(output.getValue()) == value;
    });
  };
  auto is_carried_on = [&](Value value) {
    return llvm::any_of(loop.next(), [&](Value next) { return program.origin(next) == value; });
  };
  auto is_result = [&](Value value) { return is_carried_on(value) || outputs_of(value) > 0; };
  // Where vectors compute, narrow numbers are widened once: where they are read, if that is once.
  auto may_be_in_place = [&](InputOp input, size_t readings) {
    bool narrow = input.getStorage().value_or(Precision::f32) != Precision::f32;
    if (narrow && !products.has_unit() && readings > 1) return false;
    return input.getScope() == Scope::token && tile_of(input).getDimSize(1) % lanes == 0;
  };
  auto may_be_made_again = [&](mlir::Operation* op) {
    return llvm::isa<arith::MulFOp, arith::MaximumFOp>(op) &&
           program.placement(op->getResult(0)) == Placement::scratch &&
           llvm::all_of(op->getOperands(), [&](Value operand) {
             operand = program.origin(operand);
             return read_in_place.contains(operand) ||
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
    bool may = input ? may_be_in_place(input, operands.size()) : may_be_made_again(op);
    if (may && llvm::all_of(operands, [&](auto* use) { return takes_rows(*use, !input); }))
      (input ? read_in_place : made_again).insert(value);
  }

  // Readers that go by steps, and what nobody else reads.
  std::function<bool(Value)> is_never_read = [&](Value value) {
    Placement placement = program.placement(value);
    if (is_result(value) || (placement != Placement::scratch && placement != Placement::fused))
      return false;
    return llvm::all_of(readers.lookup(value), [&](mlir::OpOperand* use) {
      mlir::Operation* op = use->getOwner();
      if (llvm::isa<DecayDotOp, DecayApplyOp>(op))
        return use->getOperandNumber() >= 2 && tile_ops.stepwise_gate(op).has_value();
      if (gates.of(op)) return true;
      return llvm::isa<arith::SubFOp, BroadcastOp, RowOp>(op) && is_never_read(op->getResult(0));
    });
  };
  for (mlir::Operation* op : loop.body)
    if (llvm::isa<CumsumOp>(op) && is_never_read(op->getResult(0)))
      never_read.insert(op->getResult(0));

  for (auto output : program.graph().getBody().getOps<OutputOp>()) {
    Value value = program.origin(output.getValue());
    mlir::Operation* op = value.getDefiningOp();
    bool here = llvm::is_contained(loop.body, op) && output.getScope() == Scope::token;
    if (!here || tile_of(value).getRank() != 2 || tile_of(value).getDimSize(1) % lanes != 0)
      continue;
    bool alone = outputs_of(value) == 1 && !is_carried_on(value) && !readers.contains(value);
    auto product = llvm::dyn_cast<MatmulOp>(op);
    if (alone && is_fusible(op) && program.placement(value) == Placement::scratch &&
        !products.makes_sums_of(value) && !(product && tile_ops.is_better_across(product)))
      written_in_place[value] = output;
  }
}

}  // namespace linnet::cpu
