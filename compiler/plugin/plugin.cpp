// The compiler as the runtime sees it: a problem in, a kernel out.
#include <fmt/format.h>

#include "compiler/arguments.h"
#include "compiler/cpu/jit.h"
#include "compiler/cuda/source.h"
#include "compiler/interpreter/interpreter.h"
#include "compiler/pipeline.h"
#include "compiler/show.h"
#include "ops/registry.h"
#include "templates/embedded.h"

namespace linnet {

namespace {

class Plugin : public Compiler {
 public:
  CpuKernel compile(const CpuRequest& request) override {
    auto context = make_context();
    const Problem& problem = request.problem;
    const Schedule& schedule = request.schedule;
    auto module = derive_for(*context, problem, request.direction, schedule);
    TileProgram whole(graph_of(*module), schedule);
    mlir::OwningOpRef<mlir::ModuleOp> narrow;
    std::optional<TileProgram> block;
    if (has_value_blocks(whole, problem)) {
      narrow = with_value_channels(*module, schedule.value_block);
      block.emplace(graph_of(*narrow), schedule);
    }
    cpu::Target target = target_of(request);
    if (target.narrow_unit == cpu::NarrowUnit::tiles && !request.matrix_unit)
      target.narrow_unit = cpu::NarrowUnit::dots;
    // Stages in one loop are all made for a block; of stages apart, those that carry something.
    bool all = block && schedule.fuse_stages, some = block && !schedule.fuse_stages;
    CpuKernel kernel =
        cpu::compile({all ? *block : whole, some ? &*block : nullptr}, target,
                     {problem.state_v_first, request.grouped, some ? problem.value_dim : 0});
    kernel.value_block = block ? schedule.value_block : problem.value_dim;
    return kernel;
  }

  std::string outline(const CpuRequest& request) override {
    auto context = make_context();
    auto module = derive_for(*context, request.problem, request.direction, request.schedule);
    const Schedule& s = request.schedule;
    std::string text = TileProgram(graph_of(*module), s).print();
    if (has_value_blocks(TileProgram(graph_of(*module), s), request.problem))
      text += fmt::format("blocks of {} value channels\n", s.value_block);
    // One token goes over rows as they lie in memory.
    if (s.chunk > 1)
      text += fmt::format("{} x {} vectors in registers\n", target_of(request).block_rows(s),
                          s.register_vectors);
    return text;
  }

  std::string show(const ShowRequest& request) override {
    auto context = make_context();
    return linnet::show(*law_of(*context, request.problem), request.stage, request.problem,
                        {.chunk_size = request.chunk, .direction = request.direction});
  }

  Numbers interpret(const InterpretRequest& request, const Numbers& inputs) override {
    auto context = make_context();
    auto module =
        derive_for(*context, request.problem, request.direction, Schedule{.chunk = request.chunk});
    return linnet::interpret(graph_of(*module),
                             {request.heads, request.value_heads, request.lengths}, inputs,
                             Arithmetic::f64);
  }

  CudaProgram emit(const CudaRequest& request) override {
    auto context = make_context();
    auto module = derive_for(*context, request.problem, request.direction, request.schedule);
    auto graph = graph_of(*module);
    const Schedule schedule = cuda::schedule_for(graph, request.schedule);
    cuda::Source source = cuda::emit(TileProgram(graph, schedule),
                                     {request.direction, request.problem.state_v_first});
    CudaProgram program{.name = source.name,
                        .source = source.text,
                        .headers = embedded_templates(),
                        .chunk = source.chunk,
                        .workspace_bytes = source.workspace_bytes_per_slot,
                        .segment = schedule.segment,
                        .segment_bytes = source.segment_bytes};
    program.arguments = arguments_of(graph);
    program.kernels = source.kernels;
    return program;
  }

 private:
  // Whether the schedule asks for blocks of value channels that divide them, and the loops that
  // would be made for a block can be.
  static bool has_value_blocks(const TileProgram& program, const Problem& problem) {
    const Schedule& s = program.schedule();
    bool divides = s.value_block > 0 && s.value_block < problem.value_dim &&
                   problem.value_dim % s.value_block == 0;
    return divides && llvm::all_of(program.loops(), [&](const Loop& loop) {
             return (!s.fuse_stages && !loop.scan) || program.has_value_blocks(loop);
           });
  }

  static cpu::Target target_of(const CpuRequest& request) {
    return request.target_cpu.empty() ? cpu::Target::host()
                                      : cpu::Target::named(request.target_cpu);
  }

  static mlir::OwningOpRef<mlir::ModuleOp> derive_for(mlir::MLIRContext& context,
                                                      const Problem& problem, Direction direction,
                                                      const Schedule& schedule) {
    bool backward = direction == Direction::backward;
    auto module = law_of(context, problem);
    run_pipeline(*module, problem,
                 {.chunk_size = schedule.chunk,
                  .direction = backward ? Direction::backward : Direction::forward,
                  .stages = schedule.stages});
    return module;
  }

  static mlir::OwningOpRef<mlir::ModuleOp> law_of(mlir::MLIRContext& context,
                                                  const Problem& problem) {
    check_sizes(problem);
    if (!problem.law.empty())
      return parse_law(context, problem.law, problem.key_dim, problem.value_dim);
    return build_law(context, problem.op, ops::find(problem.op).define, problem.key_dim,
                     problem.value_dim);
  }
};

}  // namespace

}  // namespace linnet

linnet::Compiler* linnet_compiler() {
  static linnet::Plugin plugin;
  return &plugin;
}
