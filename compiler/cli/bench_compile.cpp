// `linnet bench --compile`: how long it takes to have kernels.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "compiler/cli/bench_table.h"
#include "compiler/pipeline.h"
#include "linnet/error.h"
#include "ops/registry.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/nvrtc.h"

namespace linnet::cli {

namespace {

void print_derivation(const std::vector<std::string>& ops, int64_t chunk, int runs) {
  fmt::print(
      "Law to staged graph, K = V = 128, chunk {}, a new context each time; median of {} runs, "
      "ms\n",
      chunk, runs);
  fmt::print("{:<21} {:>9} {:>9} {:>9}\n", "op", "forward", "backward", "both");
  for (const std::string& name : ops) {
    const auto& entry = linnet::ops::find(name);
    auto derive_once = [&](Direction direction, mlir::MLIRContext& context) {
      derive(context, entry.define, {.op = name}, {.chunk_size = chunk, .direction = direction});
    };
    auto median = [&](auto call) { return timed(runs, 1e9, call).median_ms; };
    double forward = median([&] { derive_once(Direction::forward, *make_context()); });
    double backward = median([&] { derive_once(Direction::backward, *make_context()); });
    double both = median([&] {
      auto context = make_context();
      derive_once(Direction::forward, *context);
      derive_once(Direction::backward, *context);
    });
    fmt::print("{:<21} {:>9.2f} {:>9.2f} {:>9.2f}\n", name, forward, backward, both);
  }
}

// A new directory, removed with the object.
struct EmptyCache {
  EmptyCache() {
    std::string name = (std::filesystem::temp_directory_path() / "linnet-bench-XXXXXX").string();
    if (!mkdtemp(name.data())) throw DeviceError(fmt::format("{}: cannot be made", name));
    root = name;
  }
  EmptyCache(const EmptyCache&) = delete;
  ~EmptyCache() {
    std::error_code ignored;
    std::filesystem::remove_all(root, ignored);
  }
  Cache::Options options() const {
    return {.root = root, .max_bytes = uint64_t{1} << 30, .bundles = {}};
  }
  std::filesystem::path root;
};

// CPU time of the process, all its threads.
double cpu_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// One direction of KDA for one architecture, from an empty cache and from a full one.
struct Measured {
  double cold_s = 0;   // CPU: derived, written, compiled, stored
  double warm_ms = 0;  // found, checked and read
  int launches = 0, registers = 0, spilled = 0;
};

Measured measure(const Problem& problem, Direction direction, const std::string& arch, int runs) {
  EmptyCache cache;
  CudaRequest request = cuda_request(problem, {.direction = direction});
  double before = cpu_seconds();
  CudaImage image = CudaKernels(cache.options()).load(request, arch, /*is_virtual=*/false);
  Measured measured{.cold_s = cpu_seconds() - before,
                    .launches = static_cast<int>(image.program.kernels.size())};
  measured.warm_ms =
      timed(runs, 1e9, [&] { CudaKernels(cache.options()).load(request, arch, false); }).median_ms;
  for (const CudaKernel& kernel : image.program.kernels) {
    cuda::KernelResources resources = cuda::resources_of(image.log, kernel.name);
    measured.registers = std::max(measured.registers, resources.registers);
    measured.spilled += std::max(0, resources.spilled);
  }
  return measured;
}

// What the kernels of a forward read and write of a token and value head: each argument once for
// every kernel that takes it, and the workspace once out and once in (docs/math.md g, which leaves
// out beta's single number).
double bytes_moved(Problem problem, int64_t chunk) {
  problem.gate_dtype = problem.dtype;  // as math.md counts it
  CudaProgram program = linnet_compiler()->emit({problem, Direction::forward, chunk});
  double bytes = 2.0 * static_cast<double>(program.workspace_bytes) / static_cast<double>(chunk);
  for (const CudaKernel& kernel : program.kernels)
    for (const KernelArgument& a : program.arguments) {
      bool taken = std::find(kernel.parameters.begin(), kernel.parameters.end(), a.name) !=
                   kernel.parameters.end();
      if (a.scope != ArgumentScope::token || !taken) continue;
      int64_t row = 1;
      for (char axis : a.axes) row *= axis == 'k' ? problem.key_dim : problem.value_dim;
      if (row > 1) bytes += static_cast<double>(row * size_of(a.storage));
    }
  return bytes;
}

void print_cuda(int runs) {
  const std::vector<std::string> archs = {"sm_80", "sm_90"};
  const Problem problem{.op = "kda", .dtype = DType::bf16};
  try {
    cuda::Nvrtc::get().full_version();  // loads it, as the first kernel of a process does
  } catch (const DeviceError& error) {
    return fmt::print("\nno CUDA compile times: {}\n", error.what());
  }
  std::vector<Measured> forward, backward, decode;
  for (const std::string& arch : archs) {
    forward.push_back(measure(problem, Direction::forward, arch, runs));
    backward.push_back(measure(problem, Direction::backward, arch, runs));
    decode.push_back(measure(problem, Direction::decode, arch, runs));
  }
  fmt::print(
      "\nKDA on GPUs, K = V = 128, bf16, chunks of 16, NVRTC {}; CPU seconds of all threads, cache "
      "empty.\nFLA's figures: 0.6 through Triton 3.9 on a machine like this, as the project was "
      "given them; not measured here.\n",
      cuda::Nvrtc::get().full_version());
  fmt::print("{:<44} {:>26} {:>10} {:>18} {:>18}\n", "what", "FLA", "goal", archs[0], archs[1]);
  auto line = [](const char* what, const char* peer, const std::string& goal, auto text) {
    fmt::print("{:<44} {:>26} {:>10} {:>18} {:>18}\n", what, peer, goal, text(0), text(1));
    std::fflush(stdout);
  };
  auto judged = [](double value, double goal, const char* format) {
    return fmt::format("{}{}", fmt::format(fmt::runtime(format), value),
                       value <= goal ? "" : " MISSED");
  };
  line("first forward + backward, CPU s", "285 / 228", "<= 6",
       [&](size_t i) { return judged(forward[i].cold_s + backward[i].cold_s, 6, "{:.2f}"); });
  line("forward alone, CPU s", "-", "<= 1.5",
       [&](size_t i) { return judged(forward[i].cold_s, 1.5, "{:.2f}"); });
  line("decode, CPU s", "-", "<= 0.4",
       [&](size_t i) { return judged(decode[i].cold_s, 0.4, "{:.2f}"); });
  line("warm start, forward + backward, ms", "900", "<= 10",
       [&](size_t i) { return judged(forward[i].warm_ms + backward[i].warm_ms, 10, "{:.2f}"); });
  line("launches, forward / forward + backward", "6 / 13", "2 / 7", [&](size_t i) {
    return fmt::format("{} / {}", forward[i].launches, forward[i].launches + backward[i].launches);
  });
  line("registers at most, forward / backward", "-", "-", [&](size_t i) {
    return fmt::format("{} / {}", forward[i].registers, backward[i].registers);
  });
  line("spilled bytes", "12-548, at least 696", "0", [&](size_t i) {
    return judged(forward[i].spilled + backward[i].spilled + decode[i].spilled, 0, "{:.0f}");
  });
  line("bytes a token and head, forward, chunk 16, model", "-", "<= 3008",
       [&](size_t) { return judged(bytes_moved(problem, 16), 3008, "{:.0f}"); });
  line("bytes a token and head, forward, chunk 64, model", "7432", "<= 3344",
       [&](size_t) { return judged(bytes_moved(problem, 64), 3344, "{:.0f}"); });
}

}  // namespace

void print_compile_times(std::vector<std::string> ops, int64_t chunk, int runs) {
  if (ops.empty())
    for (const auto& entry : linnet::ops::registry()) ops.push_back(entry.name);
  print_derivation(ops, chunk ? chunk : 64, runs);
  if (std::find(ops.begin(), ops.end(), "kda") != ops.end()) print_cuda(runs);
}

}  // namespace linnet::cli
