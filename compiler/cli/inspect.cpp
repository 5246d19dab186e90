#include <fmt/format.h>

#include <chrono>

#include "compiler/cli/commands.h"
#include "compiler/cli/sass.h"
#include "compiler/cuda/source.h"
#include "linnet/error.h"
#include "runtime/cuda/architectures.h"
#include "runtime/cuda/nvrtc.h"
#include "templates/embedded.h"

namespace linnet::cli {

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Inspect : GraphArguments {
  std::vector<std::string> archs = {"sm_90"};

  void run() {
    if (options.chunk_size < 1) throw UserError("--chunk: expected at least 1");
    finish();
    for (const std::string& arch : archs) cuda::find_architecture(arch);
    auto start = Clock::now();
    auto context = make_context();
    auto module = derive(*context);
    auto graph = graph_of(*module);
    cuda::Source source = cuda::emit(TileProgram(graph, cuda::schedule_for(graph, schedule)),
                                     {cuda::direction_of(options)});
    fmt::print("derived and written in {:.0f} ms, {} bytes of workspace a chunk and head\n",
               milliseconds_since(start), source.workspace_bytes_per_slot);
    fmt::print("{:<8} {:<36} {:>8} {:>10} {:>8} {:>8} {:>10}\n", "arch", "kernel", "threads",
               "registers", "spilled", "shared", "occupancy");
    std::string mixes;
    for (const std::string& arch : archs) {
      start = Clock::now();
      auto made = cuda::Nvrtc::get().compile_cubin(source.text, source.name + ".cu", arch,
                                                   embedded_templates(), {"--ptxas-options=-v"});
      double time = milliseconds_since(start);
      for (const auto& kernel : source.kernels) {
        cuda::KernelResources r = cuda::resources_of(made.log, kernel.name);
        fmt::print("{:<8} {:<36} {:>8} {:>10} {:>8} {:>8} {:>10}\n", arch, kernel.name,
                   kernel.threads, r.registers, r.spilled, kernel.shared_bytes,
                   occupancy(arch, kernel, r));
      }
      fmt::print("{:<8} compiled to machine code in {:.0f} ms\n", arch, time);
      if (has_disassembler()) mixes += mix_lines(arch, source, made.image);
    }
    if (!has_disassembler())
      return fmt::print(
          "no instruction mix: nvdisasm is not here (pip install "
          "nvidia-cuda-nvdisasm)\n");
    fmt::print("\ninstructions as written, not as often as they run\n{:<8} {:<36} {:>8}", "arch",
               "kernel", "all");
    for (const std::string& name : instruction_classes()) fmt::print(" {:>8}", name);
    fmt::print("\n{}", mixes);
  }

  // Threads that can be at work on an SM, of those it has room for.
  static std::string occupancy(const std::string& arch, const CudaKernel& kernel,
                               const cuda::KernelResources& resources) {
    const cuda::Architecture& a = cuda::find_architecture(arch);
    int blocks = cuda::blocks_at_once(a, kernel.threads, resources.registers, kernel.shared_bytes);
    if (blocks == 0) return "too large";
    return fmt::format("{:.0f} %", 100.0 * blocks * kernel.threads / a.threads_per_sm);
  }

  static std::string mix_lines(const std::string& arch, const cuda::Source& source,
                               const std::string& cubin) {
    auto mixes = instruction_mix(sass_of(cubin));
    std::string lines;
    for (const auto& kernel : source.kernels) {
      InstructionMix& mix = mixes[kernel.name];
      lines += fmt::format("{:<8} {:<36} {:>8}", arch, kernel.name, mix.total);
      for (const std::string& name : instruction_classes())
        lines += fmt::format(" {:>8}", mix.classes[name]);
      lines += "\n";
    }
    return lines;
  }
};

}  // namespace

void add_inspect(CLI::App& app) {
  auto inspect = std::make_shared<Inspect>();
  inspect->options.chunk_size = 16;
  inspect->precision = "bf16";
  CLI::App* command = app.add_subcommand(
      "inspect",
      "what the kernels of an op need on a GPU that need not be here: registers, bytes spilled and "
      "shared memory\n(ptxas's words), the share of an SM's threads that can be at work at once, "
      "compile "
      "time,\nand the instructions of the machine code by class, where nvdisasm is "
      "(pip install nvidia-cuda-nvdisasm)\n"
      "  linnet inspect kda --arch sm_80,sm_90 --direction backward");
  inspect->add_to(*command);
  command->add_option("--direction", inspect->direction, "forward, backward or decode")
      ->capture_default_str();
  command->add_option("--arch", inspect->archs, "GPU architectures, e.g. sm_80,sm_90")
      ->delimiter(',')
      ->capture_default_str();
  command->callback([inspect] { inspect->run(); });
}

}  // namespace linnet::cli
