#include "compiler/cpu/workspace.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;

Workspace::Workspace(Emitter& emitter, const TileProgram& program, const Scratch& scratch,
                     bool past_caches)
    : e_(emitter), program_(program), scratch_(scratch), past_caches_(past_caches) {
  auto place = [&](Value value) {
    if (program.placement(value) != Placement::workspace) return;
    offsets_[value] = floats_;
    floats_ += scratch.floats_of(tile_of(value));
  };
  for (const Loop& loop : program.loops()) {
    llvm::for_each(loop.carried(), place);
    for (mlir::Operation* op : loop.body) place(op->getResult(0));
  }
}

Buffer Workspace::at(Value value) const {
  Buffer buffer = scratch_.shaped(e_.at(chunk_, e_.i64(offsets_.lookup(value))), tile_of(value));
  buffer.past_caches = goes_past_caches(value);
  return buffer;
}

// Chunks of a loop in any order are dealt out to threads, and the threads of the next loop read
// them all. Where two cores share no cache a line that one wrote and the other read costs both:
// tiles go to memory instead, if this loop does not read them again.
bool Workspace::goes_past_caches(Value value) const {
  if (!past_caches_ || !value.getDefiningOp() || !is_fusible(value.getDefiningOp())) return false;
  const Loop& loop = program_.loops()[*program_.loop_of(value)];
  return !loop.scan && llvm::none_of(loop.body, [&](mlir::Operation* op) {
    return llvm::any_of(op->getOperands(),
                        [&](Value operand) { return program_.origin(operand) == value; });
  });
}

void Workspace::plan_prefetches(const Loop& loop, size_t index, Prefetches& prefetches) const {
  llvm::SetVector<Value> tiles;
  for (mlir::Operation* op : loop.body) {
    Value result = op->getResult(0);
    if (!loop.scan && has(result) && !goes_past_caches(result)) tiles.insert(result);
    for (Value operand : op->getOperands())
      if (Value value = program_.origin(operand); has(value) && program_.loop_of(value) != index)
        tiles.insert(value);
  }
  Value next = e_.at(chunk_, e_.i64(loop.order == Order::reverse ? -floats_ : floats_));
  int64_t tokens = program_.graph().getChunkSize();
  for (Value value : tiles) {
    int64_t columns = llvm::divideCeil(scratch_.floats_of(tile_of(value)), tokens);
    prefetches.add(e_.at(next, e_.i64(offsets_.lookup(value))), e_.i64(columns), columns,
                   e_.builder().getF32Type(), program_.loop_of(value) == index);
  }
}

}  // namespace linnet::cpu
