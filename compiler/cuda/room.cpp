// How long values stay in shared memory, and which make room for others.
#include "compiler/cuda/kernel.h"

namespace linnet::cuda {

using namespace chunk;
using mlir::Value;

// The last statement of the loop that reads a value; what is put together where it is read counts
// for what it reads.
size_t KernelEmitter::last_use(Value value) {
  if (auto found = last_uses_.find(value); found != last_uses_.end()) return found->second;
  size_t last = 0;
  for (size_t i = 0; i < body_order_.size(); ++i)
    for (Value operand : body_order_[i]->getOperands())
      if (origin(operand) == value)
        last =
            std::max(last, is_inlined(body_order_[i]) ? last_use(body_order_[i]->getResult(0)) : i);
  for (Value next : loop_.next())
    if (origin(next) == value) last = loop_.body.size();
  // An output that is no op of this loop is stored at its end.
  for (auto output : program_.graph().getBody().getOps<OutputOp>())
    if (is_last_loop() && origin(output.getValue()) == value && !program_.loop_of(value))
      last = loop_.body.size();
  return last_uses_[value] = last;
}

// The next op behind a position that reads a value, by itself or through what is put together where
// it is read.
size_t KernelEmitter::next_use(Value value, size_t after) {
  size_t next = body_order_.size();
  for (size_t i = 0; i < body_order_.size(); ++i)
    for (Value operand : body_order_[i]->getOperands()) {
      if (origin(operand) != value) continue;
      size_t at = is_inlined(body_order_[i]) ? next_use(body_order_[i]->getResult(0), after) : i;
      if (at > after) next = std::min(next, at);
    }
  return next;
}

// The ops of this loop whose results an op reads, by itself or through what is put together in it.
void KernelEmitter::collect_sources(mlir::Operation* op,
                                    llvm::DenseSet<mlir::Operation*>& sources) const {
  for (Value operand : op->getOperands()) {
    mlir::Operation* source = origin(operand).getDefiningOp();
    if (!source || !llvm::is_contained(loop_.body, source)) continue;
    is_inlined(source) ? collect_sources(source, sources) : void(sources.insert(source));
  }
}

// A sum or another cheap op comes where it is the last to read some tile, if it can: in the order
// of the graph the terms of a long sum would all wait in registers for its last ones. Twice, as
// which op is the last to read a tile changes by that.
void KernelEmitter::free_registers_early() {
  for (int i = 0; i < 2; ++i) move_last_readers();
}

void KernelEmitter::move_last_readers() {
  using Ops = llvm::DenseSet<mlir::Operation*>;
  llvm::DenseMap<mlir::Operation*, Ops> sources;
  llvm::DenseMap<mlir::Operation*, mlir::Operation*> last_reader;
  for (mlir::Operation* op : body_order_) {
    if (is_inlined(op)) continue;
    collect_sources(op, sources[op]);
    for (mlir::Operation* source : sources[op]) last_reader[source] = op;
  }
  std::vector<mlir::Operation*> order;
  for (mlir::Operation* op : body_order_) {
    size_t place = order.size();
    if (!is_contraction(op) && !is_inlined(op) && group_of(op).size() == 1 &&
        !is_written_with_another(op)) {
      const Ops& own = sources[op];
      auto behind = [&](auto matches) {
        return order.rend() - std::find_if(order.rbegin(), order.rend(), matches);
      };
      size_t least = behind([&](mlir::Operation* o) { return own.contains(o); });
      for (mlir::Operation* source : own) {
        if (!is_tile(source->getResult(0)) || last_reader[source] != op) continue;
        size_t freed = behind([&](mlir::Operation* o) { return sources[o].contains(source); });
        place = std::min(place, std::max(least, freed));
      }
      while (place < order.size() && is_written_with_another(order[place])) ++place;
    }
    order.insert(order.begin() + place, op);
  }
  body_order_ = order;
}

bool KernelEmitter::is_loaded(Value value) const {
  if (rank(value) != 2 || is_streamed(value)) return false;
  if (auto input = value.getDefiningOp<InputOp>()) return input.getScope() == Scope::token;
  auto loop = program_.loop_of(value);
  return loop && *loop != loop_index_;
}

// Where there is little room or registers are short, what a few ops make of loaded tiles, numbers
// and vectors is not worth its registers: gates from what was given for them, do times the scale.
bool KernelEmitter::is_made_again(mlir::Operation* op) const {
  Value result = op->getResult(0);
  if ((!is_tight_ && !is_long_) || !is_tile(result)) return false;
  if (program_.placement(result) == Placement::workspace) return false;  // others read it
  if (!llvm::isa<mlir::arith::AddFOp, mlir::arith::MulFOp, mlir::arith::NegFOp,
                 mlir::arith::MaximumFOp, SigmoidOp, SoftplusOp, ValidOp>(op))
    return false;
  for (mlir::Operation* user : result.getUsers())
    if (llvm::isa<YieldOp, OutputOp>(user)) return false;
  return llvm::all_of(op->getOperands(), [&](Value operand) {
    mlir::Operation* source = origin(operand).getDefiningOp();
    return is_loaded(origin(operand)) || is_uniform(operand) ||
           (source && (llvm::isa<BroadcastOp>(source) || is_made_again(source)));
  });
}

bool KernelEmitter::can_be_had_again(Value value) {
  mlir::Operation* op = value.getDefiningOp();
  return !named_.contains(value) && rank(value) == 2 &&
         (is_loaded(value) || !homes_[value].registers.empty() || (op && is_made_again(op)));
}

namespace {
constexpr int64_t kSmall = 2048;  // bytes
}

bool KernelEmitter::make_room() {
  Home* latest = nullptr;
  size_t until = 0;
  for (auto& [value, home] : homes_) {
    if (home.shared.empty() || !can_be_had_again(value)) continue;
    size_t next = next_use(value, position_);
    // Of two that are read by the same op, the one in the lower place: in no order of pointers.
    bool later = !latest || next > until ||
                 (next == until && home.shared[0].place.begin < latest->shared[0].place.begin);
    if (later) latest = &home, until = next;
  }
  if (!latest) return false;
  for (const Shared& shared : latest->shared) memory_.release(shared.place);
  latest->shared.clear();
  return true;
}

Range KernelEmitter::allocate(int64_t bytes) {
  // Small tiles and vectors keep out of the way of large ones.
  int64_t from = is_tight_ && bytes > kSmall ? 4 * kSmall : 0;
  while (is_tight_ && memory_.place_for(bytes, from).end > kMostSharedBytes && make_room())
    continue;
  return memory_.allocate(bytes, from);
}

// Whether a factor of scores may be scaled where it lies: it is not needed as it is any more, or
// can be had again.
bool KernelEmitter::can_be_scaled_in_place(DecayDotOp op) {
  Value lhs = origin(op.getLhs());
  BoundAttr bound = op.getBoundAttr();
  bool one_block = bound && bound.getForm() == Form::anchored && bound.getBlock() >= chunk_;
  bool apart =
      lhs != origin(op.getRhs()) && lhs != origin(op.getRows()) && lhs != origin(op.getColumns());
  bool plain = element_of(or_f32(op.getPrecision())) == "float" && !homes_[lhs].shared.empty() &&
               homes_[lhs].shared[0].element == "float" && !homes_[lhs].shared[0].flipped;
  return is_tight_ && one_block && apart && plain &&
         (is_loaded(lhs) || !homes_[lhs].registers.empty() || last_use(lhs) <= position_);
}

// Loads a tile that had to make room, or for which there was none at first.
void KernelEmitter::fetch_again(Value value) {
  if (!is_tight_) return;
  named_.insert(value);
  Home& home = homes_[value];
  if (!home.shared.empty() || !home.registers.empty() || !is_loaded(value)) return;
  std::vector<Range> outer;
  std::swap(outer, reads_);
  auto input = value.getDefiningOp<InputOp>();
  input ? load_token_input(input) : load_stored(value);
  body_.line("commit_copies();");
  body_.line("wait_for_copies();");
  body_.line("__syncthreads();");
  memory_.waited();
  std::swap(outer, reads_);
}

// Frees the shared memory of everything that was read for the last time.
void KernelEmitter::finish_values(size_t position) {
  for (auto& [value, home] : homes_) {
    if (home.shared.empty() || last_use(value) > position) continue;
    auto input = value.getDefiningOp<InputOp>();
    if (input && input.getScope() != Scope::token) continue;  // kept for every turn
    for (const Shared& shared : home.shared)
      if (!shared.kept) memory_.release(shared.place);
    std::erase_if(home.shared, [](const Shared& shared) { return !shared.kept; });
  }
}

}  // namespace linnet::cuda
