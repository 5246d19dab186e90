#include <fmt/format.h>

#include <chrono>
#include <regex>

#include "compiler/cli/commands.h"
#include "compiler/cuda/source.h"
#include "linnet/error.h"
#include "runtime/cuda/nvrtc.h"
#include "templates/embedded.h"

namespace linnet::cli {

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// What ptxas says of a kernel.
struct Resources {
  int registers = -1, spilled = -1;
};

Resources resources_of(const std::string& log, const std::string& kernel) {
  size_t at = log.find("entry function '" + kernel + "'");
  if (at == std::string::npos) return {};
  std::string part = log.substr(at, log.find("entry function '", at + 16) - at);
  auto number = [&](const char* pattern) {
    std::smatch match;
    return std::regex_search(part, match, std::regex(pattern)) ? std::stoi(match[1]) : -1;
  };
  return {number("Used (\\d+) registers"), number("(\\d+) bytes spill stores")};
}

struct Inspect : GraphArguments {
  std::vector<std::string> archs = {"sm_90"};

  void run() {
    if (options.chunk_size < 1) throw UserError("--chunk: expected at least 1");
    finish();
    auto start = Clock::now();
    auto context = make_context();
    auto module = derive(*context);
    auto graph = graph_of(*module);
    cuda::Source source = cuda::emit(TileProgram(graph, cuda::default_schedule(graph)));
    fmt::print("derived and written in {:.0f} ms, {} bytes of workspace a chunk and head\n",
               milliseconds_since(start), source.workspace_bytes_per_slot);
    fmt::print("{:<8} {:<36} {:>8} {:>10} {:>8} {:>8}\n", "arch", "kernel", "threads", "registers",
               "spilled", "shared");
    for (const std::string& arch : archs) {
      start = Clock::now();
      auto made = cuda::Nvrtc::get().compile_cubin(source.text, source.name + ".cu", arch,
                                                   embedded_templates(), {"--ptxas-options=-v"});
      double time = milliseconds_since(start);
      for (const auto& kernel : source.kernels) {
        Resources r = resources_of(made.log, kernel.name);
        fmt::print("{:<8} {:<36} {:>8} {:>10} {:>8} {:>8}\n", arch, kernel.name, kernel.threads,
                   r.registers, r.spilled, kernel.shared_bytes);
      }
      fmt::print("{:<8} compiled to machine code in {:.0f} ms\n", arch, time);
    }
  }
};

}  // namespace

void add_inspect(CLI::App& app) {
  auto inspect = std::make_shared<Inspect>();
  inspect->options.chunk_size = 16;
  inspect->precision = "bf16";
  CLI::App* command = app.add_subcommand(
      "inspect",
      "what the kernels of an op need on a GPU that need not be here: registers, bytes spilled, "
      "shared memory,\nand how long they take to compile");
  inspect->add_to(*command);
  command->add_option("--direction", inspect->direction, "forward or backward")
      ->capture_default_str();
  command->add_option("--arch", inspect->archs, "GPU architectures, e.g. sm_80,sm_90")
      ->delimiter(',')
      ->capture_default_str();
  command->callback([inspect] { inspect->run(); });
}

}  // namespace linnet::cli
