#include "compiler/cuda/kernel.h"

#include <numeric>

#include "linnet/error.h"

namespace linnet::cuda {

using namespace chunk;
using mlir::Value;

namespace {

// What the emitted text uses of the templates, and must not name otherwise.
const char* kReserved[] = {"batch",    "chunk",       "column_sums", "constant",   "cta",
                           "cumsum",   "decay_apply", "decay_dot",   "decay_mask", "generate",
                           "group",    "i",           "keep",        "lane",       "load",
                           "map",      "pack",        "place_row",   "product",    "quad",
                           "record",   "round_to",    "row",         "row_sums",   "sequence",
                           "shared",   "shuffle",     "sigmoid",     "softplus",   "store",
                           "take_row", "total",       "transposed",  "warp",       "workspace",
                           "element",  "maximum",     "states",      "own_states", "negative",
                           "quotient", "at_least",    "choose",      "rounded",    "dot",
                           "segment",  "segments",    "own_segment", "anew"};

// Shared memory two stages of a scan may take; with more, few blocks share a multiprocessor.
constexpr int64_t kMostStagedBytes = 72 * 1024;

// Loops so long that eight warps share their tiles; f32 products hold two parts of each number.
constexpr size_t kManyOps = 45, kManySplitOps = 30;

// Tiles of a loop in whose registers two blocks share a multiprocessor.
constexpr size_t kFewTiles = 28;

// The widest copies rows of this many bytes allow.
int64_t copy_bytes(int64_t row_bytes) { return std::gcd<int64_t>(row_bytes, 16); }

}  // namespace

KernelEmitter::KernelEmitter(const TileProgram& program, const Workspace& workspace,
                             const std::vector<Argument>& arguments, const Memory& memory,
                             size_t loop, bool tight, const Segments& segments)
    : program_(program),
      workspace_(workspace),
      arguments_(arguments),
      caller_(memory),
      loop_index_(loop),
      loop_(program.loops()[loop]),
      segments_(segments),
      is_scan_(loop_.order != Order::any),
      is_step_(is_scan_ && program.loops().size() == 1 && program.graph().getChunkSize() == 1),
      is_tight_(tight && !is_scan_),
      chunk_(program.graph().getChunkSize()),
      warps_(program.schedule().warps) {
  for (auto input : chunk::GraphOp(program.graph()).getBody().getOps<InputOp>()) {
    Tile type = tile_of(input);
    for (int64_t i = 0; i < type.getRank(); ++i) {
      if (axes_of(type)[i] == Axis::key) key_dim_ = type.getDimSize(i);
      if (axes_of(type)[i] == Axis::value) value_dim_ = type.getDimSize(i);
    }
  }
  // A tile of 16 x 128 takes 16 registers of each of 4 warps, which leaves room for a dozen of them
  // at a time: enough but for long loops.
  bool splits = llvm::any_of(loop_.body, [](mlir::Operation* op) {
    auto matmul = llvm::dyn_cast<MatmulOp>(op);
    return matmul && or_f32(matmul.getPrecision()) == Precision::f32;
  });
  bool many = loop_.body.size() > (splits ? kManySplitOps : kManyOps);
  if (warps_ == 0) warps_ = std::max(key_dim_, value_dim_) > 128 || many ? 8 : 4;
  if (is_scan_) {
    value_block_ = std::min(program.schedule().value_block, padded(value_dim_));
    if (tight) value_block_ = padded(value_block_ / 2);
    warps_ = value_block_ / 16;
  }
  names_.insert(std::begin(kReserved), std::end(kReserved));
  body_order_ = updates_last();
  if (segments_.part == Part::maps) set_segments();
  is_tight_ ? free_registers_early() : bring_together();
}

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

const Argument& KernelEmitter::argument(llvm::StringRef name) const {
  for (const Argument& a : arguments_)
    if (a.name == name) return a;
  throw InternalError(fmt::format("cuda: no argument {}", name.str()));
}

std::string KernelEmitter::tensor(const Argument& argument) {
  used_arguments_.insert(argument.name);
  return argument.name + (argument.is_summed() ? "_partial" : "_tensor");
}

bool KernelEmitter::keeps_states() const {
  return is_scan_ && segments_.part != Part::maps && caller_.direction == Direction::forward;
}

std::string KernelEmitter::kernel_name() const {
  std::string stage = "scan";
  if (loop_.scan) {
    if (auto name = chunk::ScanOp(loop_.scan).getStage()) stage = name->str();
  } else if (!loop_.body.empty()) {
    stage = llvm::cast<MapOp>(loop_.body.front()->getParentOp()).getStage().str();
  }
  return fmt::format("{}_{}{}", chunk::GraphOp(program_.graph()).getSymName().str(), stage,
                     segments_.part == Part::maps ? "_maps" : "");
}

// Two blocks of 256 threads have 128 registers for each: enough for loops that define few tiles,
// where products do not split numbers. One block alone waits more than it works.
int KernelEmitter::blocks_at_a_time() const {
  bool wide = std::max(key_dim_, value_dim_) > 128;
  bool two_bytes = llvm::all_of(loop_.body, [](mlir::Operation* op) {
    auto matmul = llvm::dyn_cast<MatmulOp>(op);
    return !matmul || bytes_of(element_of(or_f32(matmul.getPrecision()))) == 2;
  });
  size_t tiles =
      llvm::count_if(homes_, [](const auto& home) { return !home.second.registers.empty(); });
  return !is_scan_ && warps_ == 8 && !wide && two_bytes && tiles <= kFewTiles ? 2 : 1;
}

CudaKernel KernelEmitter::emit(Writer& module) {
  auto is_kept = [&](Value v) { return program_.placement(v) == Placement::workspace; };
  if (segments_.part != Part::maps) {
    stores_in_workspace_ = llvm::any_of(loop_.carried(), is_kept);
    for (mlir::Operation* op : loop_.body) stores_in_workspace_ |= is_kept(op->getResult(0));
  }
  uses_workspace_ = stores_in_workspace_ || llvm::any_of(values_read(), [&](Value v) {
                      return !v.getDefiningOp<InputOp>();
                    });

  is_scan_ ? write_scan() : write_map();

  CudaKernel kernel;
  kernel.name = kernel_name();
  kernel.grid = !is_scan_                        ? CudaGrid::chunks
                : segments_.part == Part::maps   ? CudaGrid::maps
                : segments_.part == Part::replay ? CudaGrid::segments
                                                 : CudaGrid::sequences;
  kernel.threads = static_cast<int>(warps_ * 32);
  kernel.shared_bytes = static_cast<int>(memory_.most_used());
  kernel.value_blocks = is_scan_ ? static_cast<int>(value_blocks()) : 1;

  std::string list;
  for (const Argument& a : arguments_) {
    if (!used_arguments_.contains(a.name)) continue;
    kernel.parameters.push_back(a.is_summed() ? a.name + ".partial" : a.name);
    if (a.scope == Scope::constant)
      list += fmt::format("const float {}, ", a.name);
    else
      list += fmt::format("const Tensor<{}{}> {}, ", a.is_output ? "" : "const ",
                          a.is_summed() ? "float" : element_of(a.storage), tensor(a));
    if (a.is_direct()) {
      kernel.parameters.push_back(a.name);
      list += fmt::format("const Tensor<{}> {}_tensor, ", element_of(a.storage), a.name);
    }
  }
  if (keeps_states()) {
    kernel.parameters.push_back("states");
    list += "const States states, ";
  }
  if (uses_workspace_) {
    kernel.parameters.push_back("workspace");
    list += "unsigned char* workspace, ";
  }
  if (!is_whole()) {
    kernel.parameters.insert(kernel.parameters.end(), {"segments", "segment"});
    list += "float* segments, const i64 segment, ";
  }
  kernel.parameters.push_back("batch");
  list += "const Batch batch";

  module.comment(is_scan_ ? fmt::format("A block for every {}, value head and {} value channels{}; "
                                        "value channels lie along the rows of tiles.",
                                        is_whole() ? "sequence" : "segment", value_block_,
                                        segments_.part == Part::maps ? " or others" : "")
                          : "A block for every chunk and value head.");
  module.block(fmt::format("LINNET_KERNEL({}, {}) {}({})", kernel.threads, blocks_at_a_time(),
                           kernel.name, list),
               [&] {
                 module.line("using cta = Cta<{}>;", warps_);
                 for (const auto& [name, type] : aliases_)
                   module.line("using {} = {};", name, type);
                 module.append(body_);
               });
  return kernel;
}

void KernelEmitter::write_map() {
  body_.line("const Chunk chunk = find_chunk<{}>(batch, blockIdx.x);", chunk_);
  body_.block("if (chunk.rows == 0)", [&] {
    zero_head_outputs();
    body_.line("return;");
  });
  load_shared_arguments();
  if (uses_workspace_)
    body_.line("unsigned char* const record = workspace + chunk.slot * {};",
               workspace_.bytes_per_slot());
  load_scalars();
  load_inputs();
  body_.line("commit_copies();");
  body_.line("wait_for_copies();");
  body_.line("__syncthreads();");
  memory_.waited();
  write_turn();
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

// One chunk: the ops run, and what others need goes out.
void KernelEmitter::write_turn() {
  bool only_maps = segments_.part == Part::maps;
  for (Value argument : loop_.carried())
    if (!only_maps && program_.placement(argument) == Placement::workspace)
      store_to_workspace(argument);
  for (size_t i = 0; i < body_order_.size(); ++i) {
    mlir::Operation* op = body_order_[i];
    if (is_inlined(op)) continue;
    position_ = i;
    named_.clear();
    if (!is_written_with_another(op)) write_op(op);
    named_.clear();
    if (!only_maps) store_results(op->getResult(0));
    bool more = i + 1 < body_order_.size() && is_written_with_another(body_order_[i + 1]);
    if (!more) finish_values(i);
  }
  if (only_maps) return;
  for (auto output : chunk::GraphOp(program_.graph()).getBody().getOps<OutputOp>()) {
    Value value = origin(output.getValue());
    if (output.getScope() != Scope::sequence && is_last_loop() && !program_.loop_of(value))
      store_output(output, value);
  }
}

// Everything this loop reads that it does not compute.
std::vector<Value> KernelEmitter::values_read() const {
  llvm::SetVector<Value> values;
  auto note = [&](Value value) {
    value = origin(value);
    if (auto input = value.getDefiningOp<InputOp>()) {
      if (input.getScope() != Scope::sequence) values.insert(value);
      return;
    }
    auto loop = program_.loop_of(value);
    if (loop && *loop != loop_index_) values.insert(value);
  };
  bool only_maps = segments_.part == Part::maps;
  for (mlir::Operation* op : only_maps ? segments_.map->update : loop_.body)
    llvm::for_each(op->getOperands(), note);
  if (is_last_loop() && !only_maps)
    for (auto output : chunk::GraphOp(program_.graph()).getBody().getOps<OutputOp>())
      if (origin(output.getValue()).getDefiningOp<InputOp>()) note(output.getValue());
  return {values.begin(), values.end()};
}

// Numbers and vectors that are the same for every chunk.
void KernelEmitter::load_shared_arguments() {
  std::string head = is_scan_ ? "sequence.head" : "chunk.head";
  for (Value value : values_read()) {
    auto input = value.getDefiningOp<InputOp>();
    if (!input || input.getScope() == Scope::token) continue;
    const Argument& a = argument(input.getName());
    std::string own =
        a.key_heads ? fmt::format("{} / (batch.value_heads / batch.heads)", head) : head;
    if (a.scope == Scope::constant) {  // a parameter
      used_arguments_.insert(a.name);
      names_.insert(a.name);
      homes_[value].scalar = a.name;
    } else if (rank(value) == 0) {
      std::string name = name_for(value);
      body_.line("const float {} = to_f32(*{}.of_head({}));", name, tensor(a), own);
      homes_[value].scalar = name;
    } else {
      Shared to = declare_vector(value);
      statement(fmt::format("load_vector<cta, {0}>({1}, {2}.of_head({3}), 1, {0});", a.row, to.name,
                            tensor(a), own),
                {to.place});
    }
  }
}

void KernelEmitter::load_inputs() {
  for (Value value : values_read()) {
    auto input = value.getDefiningOp<InputOp>();
    if (input && input.getScope() != Scope::token) continue;
    if (!input && (is_streamed(value) || rank(value) == 0)) continue;
    if (is_tight_ && rank(value) == 2 && memory_.most_used() > kMostSharedBytes / 2) continue;
    input ? load_token_input(input) : load_stored(value);
  }
}

// Numbers of the chunk's record, one for every thread.
void KernelEmitter::load_scalars() {
  for (Value value : values_read()) {
    if (value.getDefiningOp<InputOp>() || rank(value) != 0) continue;
    std::string name = name_for(value);
    body_.line("const float {} = *{};", name, record(value));
    homes_[value].scalar = name;
  }
}

std::string KernelEmitter::rows_of(const Argument& a) {
  bool by_key = a.key_heads && !a.is_output;
  return fmt::format("chunk.at({}, {})", tensor(a), by_key ? "chunk.key_head" : "chunk.head");
}

void KernelEmitter::load_token_input(InputOp input) {
  const Argument& a = argument(input.getName());
  Value value = input;
  if (is_step_) return load_row(input, a);
  if (rank(value) == 1) {
    Shared to = declare_vector(value);
    return statement(fmt::format("load_vector<cta, {}>({}, {}, {}.row_step, chunk.rows);", chunk_,
                                 to.name, rows_of(a), tensor(a)),
                     {to.place});
  }
  std::string element = element_of(a.storage);
  Shared to = declare_tile(value, element, false, name_for(value));
  bool sliced = is_scan_ && has_axis(value.getType(), Axis::value);
  statement(
      fmt::format("load_rows<cta, {}>({}, {}{}, {}, chunk.rows, {});",
                  copy_bytes(a.row * bytes_of(element)), to.name, unseen(rows_of(a)),
                  sliced ? " + sequence.first_value" : "", unseen(tensor(a) + ".row_step"),
                  sliced ? fmt::format("{} - sequence.first_value", a.row) : std::to_string(a.row)),
      {to.place});
}

// All of a token: as it lies in memory.
void KernelEmitter::load_row(InputOp input, const Argument& a) {
  std::string element = element_of(a.storage);
  Shared to = declare_vector(input, element);
  bool sliced = has_axis(input.getType(), Axis::value);
  statement(fmt::format(
                "load_row<cta, {}, {}>({}, {}{}, {});", copy_bytes(a.row * bytes_of(element)),
                padded(length(input)), to.name, rows_of(a), sliced ? " + sequence.first_value" : "",
                sliced ? fmt::format("{} - sequence.first_value", a.row) : std::to_string(a.row)),
            {to.place});
}

// Addresses of tiles that are loaded several times do not wait in registers in between.
std::string KernelEmitter::unseen(const std::string& text) const {
  return is_tight_ ? fmt::format("anew({})", text) : text;
}

std::string KernelEmitter::record(Value value) {
  const Stored& stored = workspace_.at(value);
  return fmt::format("in_record<{}>(record, {})", stored.element, stored.offset);
}

void KernelEmitter::load_stored(Value value) {
  const Stored& stored = workspace_.at(value);
  if (rank(value) == 1) {
    Shared to = declare_vector(value);
    statement(fmt::format("load_vector<cta, {0}>({1}, {2}, 1, {0});", tile_of(value).getDimSize(0),
                          to.name, record(value)),
              {to.place});
  } else {
    load_stored_tile(value, stored);
  }
}

// In a scan, of a tile with value channels only this block's.
void KernelEmitter::load_stored_tile(Value value, const Stored& stored) {
  Shared to = declare_tile(value, stored.element, stored.flipped, name_for(value));
  bool sliced = is_scan_ && has_axis(value.getType(), Axis::value);
  if (!sliced)
    return statement(fmt::format("load_block<cta, {}>({}, {}, {});", stored.stride, to.name,
                                 unseen(record(value)), stored.rows),
                     {to.place});
  std::string first = "sequence.first_value";
  if (stored.flipped)
    statement(fmt::format("load_rows<cta, 16>({0}, {1} + {2} * {3}, {3}, {4} - {2}, {3});", to.name,
                          record(value), first, stored.stride, stored.rows),
              {to.place});
  else
    statement(fmt::format("load_rows<cta, 16>({0}, {1} + {2}, {3}, {4}, {3} - {2});", to.name,
                          record(value), first, stored.stride, stored.rows),
              {to.place});
}

void KernelEmitter::store_results(Value value) {
  if (program_.placement(value) == Placement::workspace) store_to_workspace(value);
  for (auto output : chunk::GraphOp(program_.graph()).getBody().getOps<OutputOp>())
    if (output.getScope() != Scope::sequence && origin(output.getValue()) == value)
      store_output(output, value);
}

void KernelEmitter::store_to_workspace(Value value) {
  const Stored& stored = workspace_.at(value);
  if (rank(value) == 0) {
    std::string text = number(value);
    return statement(fmt::format("if (threadIdx.x == 0) *{} = {};", record(value), text));
  }
  if (rank(value) == 1) {
    std::string from = vector(value);
    return statement(fmt::format("store_vector<cta>({}, 1, {}, {});", record(value), from,
                                 tile_of(value).getDimSize(0)));
  }
  if (stored.flipped) {  // as it is in registers
    std::string from = tile(value);
    return statement(
        fmt::format("write_block<{0}>({1} + sequence.first_value * {0}, {2}, {3} - "
                    "sequence.first_value);",
                    stored.stride, record(value), from, stored.rows));
  }
  std::string from = view(value, stored.element);
  statement(fmt::format("store_block<cta, {}>({}, {});", stored.stride, record(value), from));
}

void KernelEmitter::store_output(OutputOp output, Value value) {
  const Argument& a = argument(output.getName());
  if (a.scope == Scope::head) return store_head_output(a, value);
  if (is_step_) {
    if (!in_registers_flipped(value)) throw InternalError("cuda: a token leaves a step");
    std::string from = tile(value);
    return statement(
        fmt::format("store_column({} + sequence.first_value, {}, {} - sequence.first_value);",
                    rows_of(a), from, a.row));
  }
  std::string element = a.is_summed() ? "float" : element_of(a.storage);
  if (rank(value) == 1) {
    std::string from = vector(value);
    return statement(fmt::format("store_vector<cta>({}, {}.row_step, {}, chunk.rows);", rows_of(a),
                                 tensor(a), from));
  }
  bool sliced = is_scan_ && has_axis(value.getType(), Axis::value);
  std::string from = view(value, element);
  if (a.is_direct())
    return statement(
        fmt::format("store_share<cta>({}_tensor, {}, batch, chunk, {});", a.name, tensor(a), from));
  statement(fmt::format(
      "store_rows<cta, {}>({}{}, {}.row_step, {}, chunk.rows, {});",
      copy_bytes(a.row * bytes_of(element)), rows_of(a), sliced ? " + sequence.first_value" : "",
      tensor(a), from,
      sliced ? fmt::format("{} - sequence.first_value", a.row) : std::to_string(a.row)));
}

// One share for every chunk; they are added up by the gathering kernel.
void KernelEmitter::store_head_output(const Argument& a, Value value) {
  if (is_scan_) throw InternalError("cuda: a scan makes a result of a head");
  std::string at = fmt::format("{}.data + chunk.slot * {}", tensor(a), a.row);
  if (rank(value) == 0) {
    std::string text = number(value);
    return statement(fmt::format("if (threadIdx.x == 0) *({}) = {};", at, text));
  }
  std::string from = vector(value);
  statement(fmt::format("store_vector<cta>({}, 1, {}, {});", at, from, a.row));
}

void KernelEmitter::zero_head_outputs() {
  for (auto output : chunk::GraphOp(program_.graph()).getBody().getOps<OutputOp>()) {
    if (output.getScope() != Scope::head) continue;
    auto loop = program_.loop_of(output.getValue());
    if ((loop ? *loop : program_.loops().size() - 1) != loop_index_) continue;
    const Argument& a = argument(output.getName());
    body_.line("zero_slot<cta>({}.data + chunk.slot * {}, {});", tensor(a), a.row, a.row);
  }
}

}  // namespace linnet::cuda
