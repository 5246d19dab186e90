// A tile program as one CUDA module: a kernel for each loop, and one that adds up shared outputs.
#include "compiler/cuda/kernel.h"
#include "linnet/error.h"

namespace linnet::cuda {

using namespace chunk;

namespace {

std::vector<Argument> arguments_of(GraphOp graph) {
  std::vector<Argument> list;
  auto row = [](Scope scope, Tile type) {
    return scope == Scope::token ? type.getNumElements() / type.getDimSize(0)
                                 : type.getNumElements();
  };
  for (auto input : graph.getBody().getOps<InputOp>())
    list.push_back({input.getName().str(), input.getScope(), input.getKeyHeads(), false,
                    or_f32(input.getStorage()), row(input.getScope(), tile_of(input))});
  for (auto output : graph.getBody().getOps<OutputOp>())
    list.push_back({output.getName().str(), output.getScope(), output.getKeyHeads(), true,
                    or_f32(output.getStorage()),
                    row(output.getScope(), tile_of(output.getValue()))});
  return list;
}

void check(const TileProgram& program, Direction direction) {
  const Schedule& schedule = program.schedule();
  auto expect = [](bool holds, const char* name, const char* what, int64_t came) {
    if (!holds) throw UserError(fmt::format("{}: expected {}, got {}", name, what, came));
  };
  int64_t chunk = GraphOp(program.graph()).getChunkSize();
  expect(chunk <= 16 || (chunk & (chunk - 1)) == 0, "chunk", "at most 16 or a power of two on CUDA",
         chunk);
  expect(schedule.warps >= 0 && schedule.warps <= 16, "warps", "0 to 16", schedule.warps);
  expect(
      schedule.value_block >= 16 && schedule.value_block % 16 == 0 && schedule.value_block <= 256,
      "value_block", "a multiple of 16 up to 256", schedule.value_block);
  expect(schedule.pipeline_stages == 1 || schedule.pipeline_stages == 2, "pipeline_stages",
         "1 or 2", schedule.pipeline_stages);
  if (schedule.segment != 0) {
    expect(direction != Direction::decode, "segment", "0 for decode", schedule.segment);
    expect(chunk > 1, "segment", "0 for chunks of one token", schedule.segment);
    expect(schedule.segment > 0 && schedule.segment % chunk == 0, "segment",
           "a multiple of the chunk", schedule.segment);
  }
  for (auto input : GraphOp(program.graph()).getBody().getOps<InputOp>())
    for (auto [axis, size] : llvm::zip(axes_of(input.getType()), tile_of(input).getShape()))
      if (axis != Axis::token)
        expect(size <= 256, axis == Axis::key ? "key_dim" : "value_dim", "at most 256 on CUDA",
               size);
}

bool multiplies_in(GraphOp graph, Precision precision) {
  bool found = false;
  graph.walk([&](MatmulOp op) { found |= or_f32(op.getPrecision()) == precision; });
  return found;
}

bool has_wide_state(GraphOp graph) {
  return llvm::any_of(graph.getBody().getOps<InputOp>(), [](InputOp input) {
    auto axes = axes_of(input.getType());
    auto key = llvm::find(axes, Axis::key);
    return key != axes.end() && tile_of(input).getDimSize(key - axes.begin()) > kWide;
  });
}

// More products a turn than a law of one step a token has, forward or backward.
bool has_long_scan(const TileProgram& program) {
  constexpr int64_t most = 8;
  return llvm::any_of(program.loops(), [](const Loop& loop) {
    return loop.scan && llvm::count_if(loop.body, llvm::IsaPred<MatmulOp>) > most;
  });
}

bool decays(GraphOp graph) {
  return graph.walk([](mlir::math::ExpOp) { return mlir::WalkResult::interrupt(); })
      .wasInterrupted();
}

// Adds up what value heads or chunks share: a range of blocks for each output, one after another.
CudaKernel write_gather(Writer& module, const std::string& name,
                        const std::vector<Argument>& summed) {
  CudaKernel kernel{name + "_gather", CudaGrid::gather, 256, 0};
  auto wide = [](const Argument& a) { return a.row % kGathered == 0 ? kGathered : 1; };
  std::string list;
  for (const Argument& a : summed) {
    kernel.parameters.insert(kernel.parameters.end(), {a.name + ".partial", a.name});
    list += fmt::format("const Tensor<float> {0}_partial, const Tensor<{1}> {0}_tensor, ", a.name,
                        element_of(a.storage));
  }
  kernel.parameters.insert(kernel.parameters.end(), {"batch", "tokens", "slots"});
  module.comment(
      "A block for every 1024 numbers of the outputs that value heads or chunks share, or 256 of "
      "those with one a head.");
  module.block(
      fmt::format(
          "LINNET_KERNEL(256, 1) {}({}const Batch batch, const i64 tokens, const i64 slots)",
          kernel.name, list),
      [&] {
        module.line("using cta = Cta<8>;");
        module.line("i64 block = blockIdx.x;");
        for (const Argument& a : summed) {
          bool by_head = a.scope == Scope::head;
          module.line("const i64 {}_blocks = {}blocks_for<cta>({} * {});", a.name,
                      a.is_direct() ? "!batch.shares_heads() ? 0 : " : "",
                      by_head ? "i64(batch.value_heads)" : "tokens * batch.heads", a.row / wide(a));
          module.block(fmt::format("if (block < {}_blocks)", a.name), [&] {
            if (by_head)
              module.line(
                  "gather_slots<cta, {2}>({0}_tensor, {0}_partial.data, block, slots, "
                  "batch.value_heads, {1});",
                  a.name, a.row, wide(a));
            else
              module.line(
                  "gather_heads<cta, {2}>({0}_tensor, {0}_partial.data, block, batch, tokens, "
                  "{1});",
                  a.name, a.row, wide(a));
            module.line("return;");
          });
          module.line("block -= {}_blocks;", a.name);
        }
      });
  return kernel;
}

// Writes kernels, a second time with little shared memory if the first needs too much.
template <class Emit>
CudaKernel emit_one(Writer& module, Emit emit) {
  Writer kernel, tight;
  module.blank();
  CudaKernel made = emit(kernel, false);
  bool fits = made.shared_bytes <= kMostSharedBytes;
  if (!fits) made = emit(tight, true);
  module.append(fits ? kernel : tight);
  return made;
}

}  // namespace

Schedule default_schedule(GraphOp graph) {
  int64_t tokens = graph.getChunkSize();
  auto scans = graph.getBody().getOps<ScanOp>();
  bool one_scan = llvm::hasSingleElement(scans), fused = tokens == 1 && one_scan;
  // A product that the scan of a forward pass adds is made there: its operands are fewer bytes than
  // what it sums up, or are read anyway. Backward they are no inputs, and would be stored instead.
  return {.chunk = tokens,
          .fuse_stages = fused,
          .sink_products = one_scan && !fused,
          .value_block = 64};
}

Schedule schedule_for(GraphOp graph, Schedule wished) {
  const Schedule fallback = default_schedule(graph);
  wished.chunk = fallback.chunk;
  wished.fuse_stages = fallback.fuse_stages;
  wished.sink_products = fallback.sink_products;
  if (wished.value_block == 0) wished.value_block = fallback.value_block;
  return wished;
}

Source emit(const TileProgram& program, const Memory& memory) {
  check(program, memory.direction);
  GraphOp graph = program.graph();
  Workspace workspace(program);
  Source source;
  source.name = graph.getSymName().str();
  source.chunk = graph.getChunkSize();
  source.workspace_bytes_per_slot = workspace.bytes_per_slot();
  source.arguments = arguments_of(graph);
  Writer module;
  module.comment(fmt::format("{}, chunks of {} tokens. Written by Linnet {}.", source.name,
                             source.chunk, LINNET_VERSION));
  bool cut = program.schedule().segment > 0;
  for (const char* header :
       {"decay", "gather", "inverse", "mma", "reduce", "segment", "sequence", "tile"})
    if (cut || header != std::string("segment")) module.line("#include \"{}.cuh\"", header);
  module.blank();
  module.line("using namespace linnet;");
  module.line("extern __shared__ __align__(16) unsigned char shared[];");
  // At its best ptxas has more under way than there are registers. (A token at a time products are
  // plain sums.) Gradients without decay have room, and spill at -O1.
  bool splits = source.chunk > 1 && multiplies_in(graph, Precision::f32);
  bool gradients = memory.direction == Direction::backward && decays(graph);
  bool tf32 = source.chunk > 1 && multiplies_in(graph, Precision::tf32);
  if (splits)
    module.comment("ptxas: -O1 (products of f32 in three parts)");
  else if (has_wide_state(graph) && (gradients || tf32))
    module.comment("ptxas: -O1 (more than 128 key channels)");
  else if (tf32 && has_long_scan(program))
    module.comment("ptxas: -O1 (many tf32 products a turn)");
  for (size_t i = 0; i < program.loops().size(); ++i) {
    const Loop& loop = program.loops()[i];
    std::optional<StateMap> map;
    Segments segments;
    auto emitter = [&](bool tight) {
      return KernelEmitter(program, workspace, source.arguments, memory, i, tight, segments);
    };
    if (cut && loop.scan) {
      map = state_map(program, loop);
      segments = {Part::maps, &*map, {}};
      SegmentRecord record;
      source.kernels.push_back(emit_one(module, [&](Writer& kernel, bool tight) {
        KernelEmitter maps = emitter(tight);
        record = maps.record();
        return maps.emit(kernel);
      }));
      segments = {Part::replay, &*map, record};
      // Scans come one after another: they share the place.
      source.segment_bytes = std::max(source.segment_bytes, record.size() * 4);
      module.blank();
      source.kernels.push_back(emitter(false).emit_merge(module));
    }
    source.kernels.push_back(
        emit_one(module, [&](Writer& kernel, bool tight) { return emitter(tight).emit(kernel); }));
  }
  std::vector<Argument> summed;
  for (const Argument& a : source.arguments)
    if (a.is_summed()) summed.push_back(a);
  if (!summed.empty()) {
    module.blank();
    source.kernels.push_back(write_gather(module, source.name, summed));
  }
  source.text = module.text();
  return source;
}

}  // namespace linnet::cuda
