// An op captured into a CUDA graph, by a program that calls the driver itself, as engines do.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <vector>

#include "linnet/device.h"
#include "tests/cuda/device_fixture.h"

using namespace linnet;

namespace {

// A function of the driver the device has loaded.
template <class... Arguments>
void driver(const char* name, Arguments... arguments) {
  static void* library = dlopen(LINNET_VIRTUAL_DRIVER, RTLD_NOW);
  REQUIRE(library);
  void* found = dlsym(library, name);
  REQUIRE_MESSAGE(found, name);
  CHECK_MESSAGE(reinterpret_cast<int (*)(Arguments...)>(found)(arguments...) == 0, name);
}

void run_from_graph(const Schedule& schedule, size_t launches) {
  constexpr int64_t T = 20, K = 16;
  Device device = Device::open("virtual:sm_80");
  Op op = device.build({.op = "linear_attention", .key_dim = K, .value_dim = K},
                       {.schedule = schedule});
  std::vector<float> ones(T * K, 1), o(T * K);
  Buffer in = device.allocate(ones.size() * 4), out = device.allocate(o.size() * 4);
  device.write(in.data(), ones.data(), in.bytes());
  Tensor x = Tensor::dense(in.data(), DType::f32, {1, T, 1, K});
  std::vector<Argument> arguments = {{"q", x},
                                     {"k", x},
                                     {"v", x},
                                     {"scale", 1.f},
                                     {"o", Tensor::dense(out.data(), DType::f32, {1, T, 1, K})}};
  Buffer workspace = device.allocate(op.workspace_bytes(arguments));
  void *stream = nullptr, *graph = nullptr, *exec = nullptr;
  driver("cuStreamCreate", &stream, 1u);
  driver("cuStreamBeginCapture_v2", stream, /*global*/ 0);
  op.run(arguments,
         {.workspace = workspace.data(), .workspace_bytes = workspace.bytes(), .stream = stream});
  driver("cuStreamEndCapture", stream, &graph);
  driver("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
  size_t nodes = 0;
  driver("cuGraphGetNodes", graph, static_cast<void**>(nullptr), &nodes);
  CHECK(nodes == launches);
  for (float value : {1.f, 2.f}) {
    std::vector<float> values(ones.size(), value);
    device.write(in.data(), values.data(), in.bytes());
    driver("cuGraphLaunch", exec, stream);
    driver("cuStreamSynchronize", stream);
    device.read(o.data(), out.data(), out.bytes());
    for (int64_t t = 0; t < T; ++t)
      CHECK(o[t * K] == value * value * value * K * static_cast<float>(t + 1));
  }
  driver("cuGraphExecDestroy", exec);
  driver("cuGraphDestroy", graph);
  driver("cuStreamDestroy_v2", stream);
}

}  // namespace

TEST_CASE(
    "runtime: a captured call runs from its graph, again and again, with what inputs are then") {
  if (std::getenv("LINNET_TEST_DEVICE") || std::getenv("LINNET_CUDA_DRIVER")) return;
  run_from_graph({.chunk = 16}, 2);
  run_from_graph({.chunk = 16, .segment = 16}, 4);
}
