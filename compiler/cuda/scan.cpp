// A scan: turns over the chunks of a sequence, with the states in registers, and the copies of the
// next turn under way.
#include "compiler/cuda/kernel.h"
#include "linnet/error.h"

namespace linnet::cuda {

using namespace chunk;
using mlir::Value;

namespace {

// Shared memory two stages of a scan may take; with more, few blocks share a multiprocessor.
constexpr int64_t kMostStagedBytes = 72 * 1024;

}  // namespace

// A state is updated in place: whatever else reads it comes first.
std::vector<mlir::Operation*> KernelEmitter::updates_last() const {
  llvm::DenseSet<Value> kept;
  for (Value next : loop_.next()) kept.insert(origin(next));
  auto only_updates = [&](mlir::Operation* op, const llvm::DenseSet<mlir::Operation*>& updates) {
    Value value = op->getResult(0);
    if (!in_registers_flipped(value) || axes_of(value.getType())[0] != Axis::key) return false;
    if (program_.placement(value) == Placement::workspace) return false;
    bool used = kept.contains(value);
    for (mlir::Operation* user : value.getUsers()) {
      if (llvm::isa<YieldOp>(user)) continue;
      if (!updates.contains(user)) return false;
      used = true;
    }
    return used;
  };
  llvm::DenseSet<mlir::Operation*> updates;
  for (mlir::Operation* op : llvm::reverse(loop_.body))
    if (is_scan_ && only_updates(op, updates)) updates.insert(op);
  std::vector<mlir::Operation*> order, last;
  for (mlir::Operation* op : loop_.body) (updates.contains(op) ? last : order).push_back(op);
  order.insert(order.end(), last.begin(), last.end());
  return order;
}

// The copies of a turn as a function of its number. Written before anything else has a place:
// stages begin where shared memory does.
void KernelEmitter::write_fetch() {
  Writer outer;
  std::swap(outer, body_);
  base_ = "stage";
  load_inputs();
  std::swap(outer, body_);
  base_ = "shared";
  stage_bytes_ = memory_.most_used();
  stages_ = 2 * stage_bytes_ <= kMostStagedBytes ? program_.schedule().pipeline_stages : 1;
  if (stages_ > 1) {
    memory_ = {};
    memory_.allocate(stages_ * stage_bytes_);
  } else {  // a turn's inputs make room for others when they were read
    for (auto& [value, home] : homes_)
      for (Shared& shared : home.shared) shared.kept = false;
  }
  body_.block(
      "const auto fetch = [&](i64 turn)",
      [&] {
        auto is_fetched = [&](Value v) { return !v.getDefiningOp<InputOp>() && rank(v) > 0; };
        write_start_of_turn(llvm::any_of(values_read(), is_fetched));
        body_.append(outer);
        body_.line("commit_copies();");
      },
      ";");
}

void KernelEmitter::write_start_of_turn(bool needs_record) {
  bool reverse = loop_.order == Order::reverse;
  body_.line("const Chunk chunk = sequence.chunk({});",
             reverse ? "sequence.chunks() - 1 - turn" : "turn");
  if (stages_ > 1)
    body_.line("unsigned char* const stage = shared + turn % {} * {};", stages_, stage_bytes_);
  else
    body_.line("unsigned char* const stage = shared;");
  if (needs_record)
    body_.line("unsigned char* const record = workspace + chunk.slot * {};",
               workspace_.bytes_per_slot());
}

void KernelEmitter::write_scan() {
  write_find();
  if (caller_.direction == Direction::decode) body_.line("if (sequence.slot < 0) return;");
  write_fetch();
  std::vector<std::string> fetched;
  std::swap(fetched, declarations_);
  load_shared_arguments();
  for (auto [argument, init] : llvm::zip(loop_.carried(), loop_.init())) {
    auto input = origin(init).getDefiningOp<InputOp>();
    if (!input) throw InternalError("cuda: a scan starts from something that is not an input");
    write_start(argument, input);
  }
  if (keeps_states()) body_.line("const auto own_states = sequence.own(states);");
  // One turn more than there are chunks: the first does nothing but fetch.
  bool ahead = stages_ > 1;
  std::string first = is_whole() ? "0" : "sequence.begin";
  std::string end = is_whole() ? "sequence.chunks()" : "sequence.end";
  std::string start = !ahead ? first : is_whole() ? "-1" : first + " - 1";
  body_.block(fmt::format("for (i64 turn = {}; turn < {}; ++turn)", start, end), [&] {
    body_.line("__syncthreads();");
    if (ahead) {
      body_.line("if (turn + 1 < {}) fetch(turn + 1);", end);
      body_.line("else commit_copies();");
      body_.line("if (turn < {}) continue;", first);
      body_.line("wait_for_copies<1>();");
    } else {
      body_.line("fetch(turn);");
      body_.line("wait_for_copies();");
    }
    body_.line("__syncthreads();");
    memory_.waited();
    write_start_of_turn(stores_in_workspace_ || llvm::any_of(values_read(), [&](Value v) {
                          return !v.getDefiningOp<InputOp>() && rank(v) == 0;
                        }));
    for (const std::string& line : fetched) body_.line("{}", line);
    if (keeps_states()) write_states(homes_[loop_.carried()[0]].registers);
    load_scalars();
    write_turn();
    for (auto [argument, next] : llvm::zip(loop_.carried(), loop_.next()))
      if (origin(next) != argument)
        statement(fmt::format("{} = {};", homes_[argument].registers, tile(next)));
  });
  write_end();
}

}  // namespace linnet::cuda
