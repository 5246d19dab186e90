// The emitted source itself: what it reads like, that no compiler complains, what it takes, and how
// bad schedules are refused.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "compiler/cuda/source.h"
#include "compiler/pipeline.h"
#include "linnet/error.h"
#include "ops/registry.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/nvrtc.h"
#include "templates/embedded.h"
#include "tests/cuda/device_fixture.h"

using namespace linnet;
using chunk::Precision;

namespace {

cuda::Source source_of(const Problem& problem, Direction direction = Direction::forward,
                       int64_t chunk = 16) {
  auto context = make_context();
  auto module = derive(*context, ops::find(problem.op).define, problem,
                       {.chunk_size = chunk, .direction = direction});
  auto graph = graph_of(*module);
  return cuda::emit(TileProgram(graph, cuda::default_schedule(graph)));
}

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The message a call ends with.
template <class E, class F>
std::string message_of(F call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE(
    "cuda source: kda forward and backward stand in tests/golden (LINNET_UPDATE_GOLDEN=1 renews)") {
  for (Direction direction : {Direction::forward, Direction::backward}) {
    std::string text = source_of({.op = "kda", .dtype = DType::bf16}, direction).text;
    std::string path = direction == Direction::forward ? "tests/golden/kda_forward.cu"
                                                       : "tests/golden/kda_backward.cu";
    if (std::getenv("LINNET_UPDATE_GOLDEN")) std::ofstream(path) << text;
    CHECK_MESSAGE(text == read(path), path);
  }
}

TEST_CASE("cuda source: the same text every time, at most 2 launches forward and 5 backward") {
  for (const ops::Entry& entry : ops::registry()) {
    CAPTURE(entry.name);
    Problem problem{.op = entry.name, .key_dim = 60, .value_dim = 36};
    cuda::Source forward = source_of(problem);
    CHECK(forward.text == source_of(problem).text);
    CHECK(forward.kernels.size() <= 2);
    CHECK(source_of(problem, Direction::backward).kernels.size() <= 5);
    CHECK(source_of(problem, Direction::forward, 1).kernels.size() == 1);
  }
}

TEST_CASE("cuda source: kda at 128 channels compiles without a warning and spills nothing") {
  for (Direction direction : {Direction::forward, Direction::backward}) {
    cuda::Source source = source_of({.op = "kda", .dtype = DType::bf16}, direction);
    auto made = cuda::Nvrtc::get().compile_cubin(source.text, "kda.cu", "sm_80",
                                                 embedded_templates(), {"--ptxas-options=-v"});
    CHECK(made.log.find("warning") == std::string::npos);
    size_t kernels = 0;
    for (size_t at = 0; (at = made.log.find(" bytes spill stores", at)) != std::string::npos;
         ++at) {
      CHECK_MESSAGE(made.log.compare(at - 3, 3, ", 0") == 0, made.log);
      ++kernels;
    }
    CHECK(kernels == source.kernels.size());
    for (const auto& kernel : source.kernels) CHECK(kernel.shared_bytes <= 99 * 1024);
  }
}

TEST_CASE("cuda source: refusals name what was expected and what came") {
  auto context = make_context();
  auto module = derive(*context, ops::find("kda").define, {.op = "kda"}, {.chunk_size = 48});
  CHECK(message_of<UserError>([&] { cuda::emit(TileProgram(graph_of(*module), {.chunk = 48})); }) ==
        "chunk: expected at most 16 or a power of two on CUDA, got 48");
  auto wide =
      derive(*context, ops::find("kda").define, {.op = "kda", .key_dim = 260}, {.chunk_size = 16});
  CHECK(message_of<UserError>([&] {
          cuda::emit(TileProgram(graph_of(*wide), {.chunk = 16, .value_block = 64}));
        }) == "key_dim: expected at most 256 on CUDA, got 260");
  CHECK(message_of<UserError>([] { cuda::Device::open("gpu"); }) ==
        "device: expected cuda:<number> or virtual:sm_<arch>, got 'gpu'");
  std::string bad = message_of<DeviceError>(
      [] { cuda::Nvrtc::get().compile("\nint x() {\n", "bad.cu", "sm_80", {}); });
  CHECK(bad.find("line 2: int x() {") != std::string::npos);
  std::string arch =
      message_of<DeviceError>([] { cuda::Nvrtc::get().compile("", "none.cu", "sm_12345", {}); });
  CHECK(arch.find("compute_12345") != std::string::npos);
  CHECK(message_of<DeviceError>([] {
          cuda::Driver("/nowhere/libcuda.so.1");
        }).starts_with("/nowhere/libcuda.so.1: expected a library that loads"));
  CHECK(message_of<DeviceError>([] { cuda::Driver("libm.so.6"); }) ==
        "libm.so.6: expected a function cuInit, found none");
  std::string kernel = "extern \"C\" __global__ void kernel(float* out) { out[0] = 1; }";
  CHECK(message_of<DeviceError>([&] {
          testing::run_kernel(kernel, 1, 300000, {}, 1);
        }).starts_with("kernel: expected at most"));
}
