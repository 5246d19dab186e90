// Deliberately broken kernels: each must be caught, with the line of the mistake.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <sstream>

#include "driver_client.h"
#include "nvrtc.h"

using namespace linnet::vgpu::testing;

namespace {

// The line of the source that carries the mark.
int marked_line(const std::string& source) {
  std::istringstream lines(source);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number)
    if (line.find("// HERE") != std::string::npos) return number;
  return -1;
}

struct Outcome {
  int result = 0;
  std::string findings;
};

// Runs `bad(in, out, n)` on 256 floats each and returns what was found.
Outcome run_bad(const std::string& source, unsigned grid, unsigned block, int n = 256,
                bool write_input = true, size_t floats = 256) {
  Session session(compile_cuda(source, "sm_90", "bad.cu"));
  DevicePointer in = session.allocate(floats * 4), out = session.allocate(floats * 4);
  if (write_input) REQUIRE(DriverClient::get().cuMemsetD32_v2(in, 0, floats) == 0);
  Outcome outcome;
  outcome.result = session.launch("bad", grid, block, {&in, &out, &n});
  outcome.findings = DriverClient::get().linnet_virtual_findings();
  return outcome;
}

void expect(const Outcome& outcome, const std::string& kind, const std::string& source) {
  CHECK(outcome.result != 0);
  CHECK_MESSAGE(outcome.findings.find(fmt::format("\"kind\":\"{}\"", kind)) != std::string::npos,
                outcome.findings);
  const std::string where = fmt::format("bad.cu\",\"line\":{},", marked_line(source));
  CHECK_MESSAGE(outcome.findings.find(where) != std::string::npos,
                outcome.findings << " expected line " << marked_line(source));
}

}  // namespace

TEST_CASE("findings: an off-by-one store runs over the allocation") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n)
    out[i] = 1.0f;  // HERE
})";
  const Outcome outcome = run_bad(source, 2, 256);
  CHECK(outcome.result == 700);
  expect(outcome, "out-of-bounds", source);
  CHECK(outcome.findings.find("\"block\":[1,0,0]") != std::string::npos);
  CHECK(outcome.findings.find("\"thread\":[0,0,0]") != std::string::npos);
  CHECK(outcome.findings.find("cuMemAlloc") != std::string::npos);
}

TEST_CASE("findings: a vector load from an address that is not a multiple of its size") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  const float4* p = (const float4*)(in + 1);
  float4 v = p[threadIdx.x];  // HERE
  out[threadIdx.x] = v.x + v.y;
})";
  const Outcome outcome = run_bad(source, 1, 32);
  CHECK(outcome.result == 716);
  expect(outcome, "misaligned", source);
}

TEST_CASE("findings: shared memory read before anything was written") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  __shared__ float s[64];
  if (threadIdx.x < 31) s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];  // HERE
})";
  const Outcome outcome = run_bad(source, 1, 32);
  expect(outcome, "uninitialised", source);
  CHECK(outcome.findings.find("\"thread\":[31,0,0]") != std::string::npos);
}

TEST_CASE("findings: fresh global memory read before anything was written") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  out[threadIdx.x] = in[threadIdx.x] + 1.0f;  // HERE
})";
  expect(run_bad(source, 1, 32, 256, false), "uninitialised", source);
}

TEST_CASE("findings: local memory read before anything was written") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  volatile float local[16];
  for (int i = 0; i < 8; ++i) local[(i * n) & 7] = in[i];
  out[threadIdx.x] = local[8 + (n & 7)];  // HERE
})";
  expect(run_bad(source, 1, 32, 1), "uninitialised", source);
}

TEST_CASE("findings: a missing barrier between warps") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  __shared__ float s[128];
  s[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = s[127 - threadIdx.x];  // HERE
})";
  const Outcome outcome = run_bad(source, 1, 128);
  CHECK(outcome.findings.find("shared-race") != std::string::npos);
  expect(outcome, "shared-race", source);
}

TEST_CASE("findings: a missing second barrier lets the next write overtake a read") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  __shared__ float s[64];
  float sum = 0;
  for (int i = 0; i < 2; ++i) {
    s[threadIdx.x] = in[i * 64 + threadIdx.x];  // HERE
    __syncthreads();
    sum += s[63 - threadIdx.x];
  }
  out[threadIdx.x] = sum;
})";
  expect(run_bad(source, 1, 64), "shared-race", source);
}

TEST_CASE("findings: a correct double-buffered loop has no finding") {
  const Outcome outcome = run_bad(R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  __shared__ float s[2][64];
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    s[i & 1][threadIdx.x] = in[i * 64 + threadIdx.x];
    __syncthreads();
    sum += s[i & 1][63 - threadIdx.x];
  }
  out[threadIdx.x] = sum;
})",
                                  1, 64);
  CHECK(outcome.result == 0);
  CHECK(outcome.findings == "[]");
}

TEST_CASE("findings: cp.async data used without wait_group") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  __shared__ __align__(16) float s[128];
  unsigned to = (unsigned)__cvta_generic_to_shared(s + threadIdx.x * 4);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(in + threadIdx.x * 4) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];  // HERE
})";
  expect(run_bad(source, 1, 32), "async-hazard", source);
}

TEST_CASE("findings: two blocks write the same word") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  out[threadIdx.x] = (float)blockIdx.x;  // HERE
})";
  expect(run_bad(source, 4, 32), "global-race", source);
}

TEST_CASE("findings: a barrier that only part of a warp reaches") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  if (threadIdx.x < (unsigned)n) {
    __syncthreads();  // HERE
    out[threadIdx.x] = 1.0f;
  } else {
    out[threadIdx.x] = 2.0f;
  }
})";
  expect(run_bad(source, 1, 64, 40), "divergent-barrier", source);
}

TEST_CASE("findings: a full-mask shuffle executed by half the warp") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  float v = in[threadIdx.x];
  if (threadIdx.x < (unsigned)n)
    v += __shfl_xor_sync(0xffffffffu, v, 1);  // HERE
  out[threadIdx.x] = v;
})";
  expect(run_bad(source, 1, 32, 16), "bad-sync-mask", source);
}

TEST_CASE("findings: warps that wait at different barriers for ever") {
  const std::string source = R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  if (threadIdx.x < 32)
    asm volatile("bar.sync 1, 64;" ::: "memory");  // HERE
  else
    asm volatile("bar.sync 2, 64;" ::: "memory");
  out[threadIdx.x] = 1;
})";
  const Outcome outcome = run_bad(source, 1, 64);
  CHECK(outcome.result == 702);
  expect(outcome, "deadlock", source);
}

TEST_CASE("findings: use after free names the allocation") {
  Session session(compile_cuda(R"(
extern "C" __global__ void touch(float* p) { p[threadIdx.x] = 1.0f; })"));
  DriverClient& cuda = DriverClient::get();
  DevicePointer freed = 0;
  REQUIRE(cuda.cuMemAlloc_v2(&freed, 4096) == 0);
  REQUIRE(cuda.cuMemFree_v2(freed) == 0);
  CHECK(session.launch("touch", 1, 32, {&freed}) == 700);
  const std::string findings = cuda.linnet_virtual_findings();
  CHECK(findings.find("use-after-free") != std::string::npos);
  CHECK(findings.find("+4096 bytes") != std::string::npos);
}

TEST_CASE("findings: dynamic shared memory out of bounds") {
  const std::string source = R"(
extern __shared__ float dynamic[];
extern "C" __global__ void bad(const float* in, float* out, int n) {
  dynamic[threadIdx.x] = in[threadIdx.x];  // HERE
  out[threadIdx.x] = dynamic[threadIdx.x];
})";
  Session session(compile_cuda(source, "sm_90", "bad.cu"));
  DevicePointer in = session.upload(std::vector<float>(64, 0)), out = session.allocate(256);
  int n = 0;
  Outcome outcome;
  outcome.result = session.launch("bad", 1, 64, {&in, &out, &n}, 63 * 4);
  outcome.findings = DriverClient::get().linnet_virtual_findings();
  expect(outcome, "shared-bounds", source);
}

TEST_CASE("findings: checks can be switched off") {
  DriverClient::get().linnet_virtual_set("checks", "0");
  const Outcome outcome = run_bad(R"(
extern "C" __global__ void bad(const float* in, float* out, int n) {
  __shared__ float s[64];
  out[threadIdx.x] = s[threadIdx.x] + (float)blockIdx.x;
})",
                                  4, 32);
  DriverClient::get().linnet_virtual_set("checks", "1");
  CHECK(outcome.result == 0);
  CHECK(outcome.findings == "[]");
}
