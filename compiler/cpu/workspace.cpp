#include "compiler/cpu/workspace.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;

Workspace::Workspace(Emitter& emitter, const TileProgram& program, const Scratch& scratch,
                     bool past_caches, int64_t value_channels)
    : e_(emitter),
      program_(program),
      scratch_(scratch),
      past_caches_(past_caches && !program.schedule().fuse_stages),
      value_channels_(value_channels) {
  for (const Loop& loop : program.loops()) {
    for (Value carried : loop.carried()) place(carried);
    for (mlir::Operation* op : loop.body) place(op->getResult(0));
  }
}

void Workspace::place(Value value) {
  if (program_.placement(value) != Placement::workspace) return;
  Region region = region_of(value);
  int64_t floats = scratch_.floats_of(whole(value));
  places_[value] = {region, std::exchange(sizes_[region], sizes_[region] + floats)};
}

Workspace::Region Workspace::region_of(Value value) const {
  int64_t own = program_.pass_of(*program_.loop_of(value));
  auto is_it = [&](Value other) { return program_.origin(other) == value; };
  for (auto [i, loop] : llvm::enumerate(program_.loops())) {
    bool reads = llvm::any_of(loop.next(), is_it) || llvm::any_of(loop.body, [&](auto* op) {
                   return llvm::any_of(op->getOperands(), is_it);
                 });
    if (reads && program_.pass_of(i) != own) return kKept;
  }
  return kPassed;
}

Tile Workspace::whole(Value value) const {
  Tile type = tile_of(value);
  if (value_channels_ == 0) return type;
  llvm::SmallVector<int64_t> sizes(type.getShape());
  for (auto [axis, size] : llvm::zip(axes_of(type), sizes))
    if (axis == Axis::value) size = value_channels_;
  return type.clone(sizes);
}

int64_t Workspace::carried_floats() const {
  int64_t most = 0;
  for (const Loop& loop : program_.loops()) {
    int64_t floats = 0;
    for (Value carried : loop.carried()) floats += scratch_.floats_of(whole(carried));
    most = std::max(most, floats);
  }
  return most;
}

void Workspace::start(Value kept, Value passed, Value first_channel) {
  bases_ = {kept, passed};
  first_channel_ = first_channel;
}

void Workspace::go_to(Value chunk) {
  for (Region region : {kKept, kPassed})
    chunks_[region] = e_.at(bases_[region], e_.mul(chunk, sizes_[region]));
}

// The value channels at hand of a whole tile.
Buffer Workspace::part_of(Value pointer, Value value) const {
  Tile type = tile_of(value), all = whole(value);
  if (type == all) return scratch_.shaped(pointer, type);
  int64_t stride = scratch_.shaped({}, all).stride;
  bool along_rows = axes_of(type).back() == Axis::value;
  Buffer part =
      scratch_.shaped(e_.at(pointer, e_.mul(first_channel_, along_rows ? 1 : stride)), type);
  if (along_rows && type.getRank() == 2) part.step = e_.i64(stride);
  return part;
}

Buffer Workspace::at(Value value) const {
  Place place = places_.lookup(value);
  Buffer buffer = part_of(e_.at(chunks_[place.region], e_.i64(place.offset)), value);
  buffer.past_caches = goes_past_caches(value);
  return buffer;
}

Buffer Workspace::carried_at(Value memory, const Loop& loop, Value carried) const {
  int64_t offset = 0;
  for (Value other : loop.carried()) {
    if (other == carried) break;
    offset += scratch_.floats_of(whole(other));
  }
  return part_of(e_.at(memory, e_.i64(offset)), carried);
}

// Chunks of a loop in any order are dealt out to threads, and the threads of the next loop read
// them all; so are states, which leave each chunk by blocks of value channels. Where two cores
// share no cache a line that one wrote and the other read costs both: tiles go to memory instead,
// if this loop does not read them again.
bool Workspace::goes_past_caches(Value value) const {
  if (!past_caches_) return false;
  if (!value.getDefiningOp()) return true;
  if (!is_fusible(value.getDefiningOp())) return false;
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
  int64_t tokens = program_.graph().getChunkSize();
  for (Value value : tiles) {
    Region region = places_.lookup(value).region;
    int64_t to_next = loop.order == Order::reverse ? -sizes_[region] : sizes_[region];
    Buffer next = at(value);
    next.pointer = e_.at(next.pointer, e_.i64(to_next));
    if (next.step && next.rows != tokens) continue;
    int64_t columns = next.step ? next.columns : llvm::divideCeil(next.rows * next.stride, tokens);
    prefetches.add(next.pointer, next.step ? next.step : e_.i64(columns), columns,
                   e_.builder().getF32Type(), program_.loop_of(value) == index);
  }
}

}  // namespace linnet::cpu
