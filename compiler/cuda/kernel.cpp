#include "compiler/cuda/kernel.h"

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

// Loops so long that eight warps share their tiles; f32 products hold two parts of each number.
constexpr size_t kManyOps = 45, kManySplitOps = 30;

// Tiles of a loop in whose registers two blocks share a multiprocessor.
constexpr size_t kFewTiles = 39;

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
  is_long_ = !is_scan_ && loop_.body.size() > (splits ? kManySplitOps : kManyOps);
  if (warps_ == 0) warps_ = std::max(key_dim_, value_dim_) > kWide || is_long_ ? 8 : 4;
  if (is_scan_) {
    value_block_ = std::min(program.schedule().value_block, padded(value_dim_));
    if (tight) value_block_ = padded(value_block_ / 2);
    warps_ = value_block_ / 16;
  }
  names_.insert(std::begin(kReserved), std::end(kReserved));
  body_order_ = updates_last();
  if (segments_.part == Part::maps) set_segments();
  if (!is_tight_) bring_together();
  if (!is_scan_) free_registers_early();
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
// where products do not split numbers. One block alone waits more than it works. They must fit into
// the shared memory of a multiprocessor: 164 KB at least, but 100 KB on the GPUs of workstations.
std::string KernelEmitter::blocks_at_a_time() const {
  bool wide = std::max(key_dim_, value_dim_) > kWide;
  bool two_bytes = llvm::all_of(loop_.body, [](mlir::Operation* op) {
    auto matmul = llvm::dyn_cast<MatmulOp>(op);
    return !matmul || bytes_of(element_of(or_f32(matmul.getPrecision()))) == 2;
  });
  size_t tiles =
      llvm::count_if(homes_, [](const auto& home) { return !home.second.registers.empty(); });
  int64_t shared = 2 * (memory_.most_used() + 1024);
  if (is_scan_ || warps_ != 8 || wide || !two_bytes || tiles > kFewTiles || shared > 164 * 1024)
    return "1";
  const char* small = "__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200";
  return shared > 100 * 1024 ? fmt::format("{} ? 1 : 2", small) : "2";
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

}  // namespace linnet::cuda
