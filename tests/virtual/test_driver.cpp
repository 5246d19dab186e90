// The Driver API as a client uses it.
#include <doctest/doctest.h>

#include <cstring>

#include "driver_client.h"

using namespace linnet::vgpu::testing;

namespace {

constexpr const char* kIncrement = R"(
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 step = 3;
.visible .entry increment(.param .u64 p, .param .u32 n)
{ .reg .b64 %d<4>; .reg .b32 %r<6>; .reg .pred %q;
ld.param.u64 %d0, [p]; ld.param.u32 %r0, [n]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
mad.lo.u32 %r1, %r2, %r3, %r1; setp.ge.u32 %q, %r1, %r0; @%q ret;
mul.wide.u32 %d1, %r1, 4; add.u64 %d0, %d0, %d1; ld.global.u32 %r4, [%d0]; ld.global.u32 %r5, [step];
add.u32 %r4, %r4, %r5; st.global.u32 [%d0], %r4; ret; }
)";

}  // namespace

TEST_CASE("driver: the device answers questions about itself") {
  DriverClient& cuda = DriverClient::get();
  int value = 0;
  CHECK(cuda.cuDeviceGetCount(&value) == 0);
  CHECK(value == 1);
  char name[64];
  CHECK(cuda.cuDeviceGetName(name, sizeof name, 0) == 0);
  CHECK(std::string(name) == "Linnet Virtual H100");
  CHECK(cuda.cuDeviceGetAttribute(&value, 75, 0) == 0);
  CHECK(value == 9);
  CHECK(cuda.cuDeviceGetAttribute(&value, 16, 0) == 0);
  CHECK(value == 132);
  CHECK(cuda.cuDeviceGetAttribute(&value, 1, 5) == 101);
  const char* text = nullptr;
  CHECK(cuda.cuGetErrorName(700, &text) == 0);
  CHECK(std::string(text) == "CUDA_ERROR_ILLEGAL_ADDRESS");
}

TEST_CASE("driver: modules, globals, function attributes and launches") {
  Session session(kIncrement);
  DriverClient& cuda = DriverClient::get();
  const DevicePointer p = session.upload(std::vector<uint32_t>{1, 2, 3, 4, 5});
  DevicePointer argument = p;
  uint32_t n = 4;
  CHECK(session.launch("increment", 1, 32, {&argument, &n}) == 0);
  CHECK(session.download<uint32_t>(p, 5) == std::vector<uint32_t>{4, 5, 6, 7, 5});
  int threads = 0;
  CHECK(cuda.cuFuncGetAttribute(&threads, 0, session.function("increment")) == 0);
  CHECK(threads == 1024);
  int blocks = 0;
  CHECK(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, session.function("increment"),
                                                         128, 0) == 0);
  CHECK(blocks == 16);
  Handle missing = nullptr;
  CHECK(cuda.cuLaunchKernel(session.function("increment"), 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr,
                            nullptr) == 1);
  CHECK(cuda.cuModuleGetFunction(&missing, nullptr, "x") == 400);
}

TEST_CASE("driver: a bad module is refused with its line, machine code with a reason") {
  DriverClient& cuda = DriverClient::get();
  Handle module = nullptr;
  CHECK(cuda.cuModuleLoadData(
            &module, ".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { oops; }") == 218);
  CHECK(std::string(cuda.linnet_virtual_last_error()).find("line 4: unknown instruction 'oops'") !=
        std::string::npos);
  CHECK(cuda.cuModuleLoadData(&module, "\177ELF....") == 209);
}

TEST_CASE("driver: graphs replay captured launches and copies") {
  Session session(kIncrement);
  DriverClient& cuda = DriverClient::get();
  DevicePointer p = session.upload(std::vector<uint32_t>(32, 0)),
                q = session.upload(std::vector<uint32_t>(32, 0));
  uint32_t n = 32;
  Handle stream = nullptr, graph = nullptr, exec = nullptr;
  REQUIRE(cuda.cuStreamCreate(&stream, 1) == 0);
  REQUIRE(cuda.cuStreamBeginCapture_v2(stream, 0) == 0);
  void* params[] = {&p, &n};
  REQUIRE(cuda.cuLaunchKernel(session.function("increment"), 1, 1, 1, 32, 1, 1, 0, stream, params,
                              nullptr) == 0);
  REQUIRE(cuda.cuMemcpyDtoDAsync_v2(q, p, 128, stream) == 0);
  REQUIRE(cuda.cuStreamEndCapture(stream, &graph) == 0);
  CHECK(session.download<uint32_t>(p, 1)[0] == 0);
  REQUIRE(cuda.cuGraphInstantiateWithFlags(&exec, graph, 0) == 0);
  for (int i = 0; i < 3; ++i) REQUIRE(cuda.cuGraphLaunch(exec, stream) == 0);
  REQUIRE(cuda.cuStreamSynchronize(stream) == 0);
  CHECK(session.download<uint32_t>(q, 1)[0] == 9);
  CHECK(cuda.cuGraphExecDestroy(exec) == 0);
  CHECK(cuda.cuGraphDestroy(graph) == 0);
  CHECK(cuda.cuStreamDestroy_v2(stream) == 0);
}

TEST_CASE("driver: events measure, pools allocate, host memory is usable by kernels") {
  Session session(kIncrement);
  DriverClient& cuda = DriverClient::get();
  Handle start = nullptr, end = nullptr;
  REQUIRE(cuda.cuEventCreate(&start, 0) == 0);
  REQUIRE(cuda.cuEventCreate(&end, 0) == 0);
  REQUIRE(cuda.cuEventRecord(start, nullptr) == 0);
  void* host = nullptr;
  REQUIRE(cuda.cuMemHostAlloc(&host, 128, 0) == 0);
  std::memset(host, 0, 128);
  auto p = reinterpret_cast<DevicePointer>(host);
  uint32_t n = 32;
  CHECK(session.launch("increment", 1, 32, {&p, &n}) == 0);
  CHECK(static_cast<uint32_t*>(host)[31] == 3);
  CHECK(cuda.cuMemFreeHost(host) == 0);
  REQUIRE(cuda.cuEventRecord(end, nullptr) == 0);
  float milliseconds = -1;
  CHECK(cuda.cuEventElapsedTime(&milliseconds, start, end) == 0);
  CHECK(milliseconds >= 0);
  DevicePointer pooled = 0;
  CHECK(cuda.cuMemAllocAsync(&pooled, 1000, nullptr) == 0);
  unsigned type = 0;
  CHECK(cuda.cuPointerGetAttribute(&type, 2, pooled) == 0);
  CHECK(type == 2);
  CHECK(cuda.cuMemFreeAsync(pooled, nullptr) == 0);
  CHECK(cuda.cuMemFree_v2(pooled) == 1);
  cuda.cuEventDestroy_v2(start);
  cuda.cuEventDestroy_v2(end);
}

TEST_CASE("driver: cuGetProcAddress gives the version a caller was built for") {
  DriverClient& cuda = DriverClient::get();
  void* plain = nullptr;
  int status = -1;
  CHECK(cuda.cuGetProcAddress_v2("cuMemAlloc", &plain, 12000, 0, &status) == 0);
  CHECK(plain == reinterpret_cast<void*>(cuda.cuMemAlloc_v2));
  CHECK(cuda.cuGetProcAddress_v2("cuNoSuchThing", &plain, 12000, 0, &status) == 500);
  CHECK(status == 1);
}
