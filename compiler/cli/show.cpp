#include "compiler/show.h"

#include <fmt/format.h>

#include <set>

#include "compiler/cli/commands.h"
#include "compiler/cli/sass.h"
#include "compiler/cuda/source.h"
#include "linnet/error.h"
#include "runtime/cuda/nvrtc.h"
#include "templates/embedded.h"

namespace linnet::cli {

namespace {

struct Show : GraphArguments {
  std::string stage = "graph", target_cpu, arch = "sm_90";

  void run() {
    auto context = make_context();
    static const std::set<std::string> stages = {"law",  "graph", "backward", "stages", "decode",
                                                 "tile", "asm",   "cuda",     "ptx",    "sass"};
    if (!stages.contains(stage))
      throw UserError(
          fmt::format("--stage: expected one of law, graph, backward, stages, decode, tile, asm, "
                      "cuda, ptx, sass; got '{}'",
                      stage));
    if (stage == "ptx" || stage == "sass") {
      finish();
      return show_compiled(graph_of(*derive(*context)));
    }
    if (stage == "backward") direction = "backward";
    if (stage == "decode") options.chunk_size = 1;
    finish();
    fmt::print("{}", show(*law(*context), stage, problem, options, target_cpu, schedule));
  }

  // The kernels compiled for the architecture asked for.
  void show_compiled(chunk::GraphOp graph) {
    cuda::Source source = cuda::emit(TileProgram(graph, cuda::schedule_for(graph, schedule)),
                                     {cuda::direction_of(options)});
    const auto& nvrtc = cuda::Nvrtc::get();
    std::string file = source.name + ".cu";
    if (stage == "ptx")
      return fmt::print("{}", nvrtc.compile(source.text, file, arch, embedded_templates()));
    require_disassembler();
    fmt::print("{}",
               sass_of(nvrtc.compile_cubin(source.text, file, arch, embedded_templates()).image));
  }
};

}  // namespace

void add_show(CLI::App& app) {
  auto show = std::make_shared<Show>();
  CLI::App* command = app.add_subcommand(
      "show",
      "print what is derived from a law, as text Linnet also reads\n"
      "  law       the recurrence of one token, as written in ops/\n"
      "  graph     the chunk algorithm: everything outside the scan is parallel over chunks\n"
      "  backward  the graph of the gradients\n"
      "  stages    map / scan / map, as kernels will run it (--direction backward: of the "
      "gradients)\n"
      "  decode    one token a chunk: the plain recurrence\n"
      "  tile      the loops over chunks and where each tile lives, as the CPU back end takes it\n"
      "  asm       the machine code for this or another processor\n"
      "  cuda      the kernels as CUDA source\n"
      "  ptx       the same compiled by NVRTC (--arch)\n"
      "  sass      its machine code, read by nvdisasm (pip install nvidia-cuda-nvdisasm)");
  show->add_to(*command);
  command
      ->add_option("--stage", show->stage,
                   "law, graph, backward, stages, decode, tile, asm, cuda, ptx or sass")
      ->capture_default_str();
  command->add_option("--target-cpu", show->target_cpu,
                      "for --stage asm: the processor, e.g. x86-64-v3, instead of this one");
  command->add_option("--arch", show->arch, "for --stage ptx and sass: the GPU's architecture")
      ->capture_default_str();
  command
      ->add_option("--direction", show->direction,
                   "forward, backward or decode (one token a chunk)")
      ->capture_default_str();
  command->add_option("--stop-after", show->options.stop_after, "show the program after this pass");
  command->callback([show] { show->run(); });
}

}  // namespace linnet::cli
