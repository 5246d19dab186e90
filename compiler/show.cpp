#include "compiler/show.h"

#include <fmt/format.h>

#include "compiler/cpu/jit.h"
#include "compiler/cuda/source.h"
#include "compiler/flops.h"
#include "linnet/error.h"

namespace linnet {

namespace {

// The count as comments, so that the whole output stays a file Linnet reads.
std::string flops_text(mlir::ModuleOp module, chunk::GraphOp graph, Direction direction) {
  int64_t tokens = graph.getChunkSize();
  std::string text = fmt::format("// products, FLOP per token and head: {} derived\n",
                                 count_flops(graph) / tokens);
  auto laws = module.getOps<chunk::LawOp>();
  if (laws.empty() || direction != Direction::forward || tokens == 1) return text;
  if (auto by_hand = flops_by_hand(*laws.begin(), tokens))
    text += fmt::format(
        "// products, FLOP per token and head: {} written by hand (MATH.md g, solve form)\n",
        *by_hand / tokens);
  return text;
}

}  // namespace

std::string show(mlir::ModuleOp law, const std::string& stage, const Problem& problem,
                 PipelineOptions options, const std::string& target_cpu, const Schedule& schedule) {
  static const std::map<std::string, std::string> last_pass = {{"law", ""},
                                                               {"graph", "fold-gate"},
                                                               {"backward", "differentiate"},
                                                               {"stages", ""},
                                                               {"decode", "decode"},
                                                               {"tile", ""},
                                                               {"asm", ""},
                                                               {"cuda", ""}};
  if (!last_pass.contains(stage))
    throw UserError(fmt::format(
        "stage: expected one of law, graph, backward, stages, decode, tile, asm, cuda; got '{}'",
        stage));
  if (stage == "law") return print(law);
  if (stage == "backward") options.direction = Direction::backward;
  if (stage == "decode") options.chunk_size = 1;
  if (options.stop_after.empty()) options.stop_after = last_pass.at(stage);
  mlir::OwningOpRef<mlir::ModuleOp> derived = law.clone();
  run_pipeline(*derived, problem, options);
  chunk::GraphOp graph = graph_of(*derived);
  if (stage == "cuda") {
    TileProgram program(graph, cuda::schedule_for(graph, schedule));
    return cuda::emit(program, {cuda::direction_of(options)}).text;
  }
  if (stage == "tile" || stage == "asm") {
    Schedule how = schedule;
    how.chunk = options.chunk_size;
    TileProgram program(graph, how);
    auto target = target_cpu.empty() ? cpu::Target::host() : cpu::Target::named(target_cpu);
    return stage == "tile" ? program.print() : cpu::assembly_of(program, target);
  }
  return print(*derived) + flops_text(law, graph, options.direction);
}

}  // namespace linnet
