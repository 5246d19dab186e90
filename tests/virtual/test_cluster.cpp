// Clusters: ranks, barriers, each other's shared memory, barriers of other blocks.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "driver_client.h"
#include "nvrtc.h"
#include "ptx_runner.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

constexpr const char* kHelpers = R"(
__device__ __forceinline__ unsigned rank() { unsigned r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ unsigned size() { unsigned r; asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ void meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ unsigned in_block(const void* p, unsigned r) {
  unsigned a = (unsigned)__cvta_generic_to_shared(p), b;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(b) : "r"(a), "r"(r));
  return b;
}
)";

struct Launched {
  int result;
  std::vector<int> out;
  std::string findings;
};

Launched run(const std::string& body, unsigned blocks, unsigned threads = 64) {
  Session session(compile_cuda(kHelpers + body, "sm_90", "cluster.cu"));
  DevicePointer out = session.allocate(blocks * threads * 4);
  Launched launched;
  REQUIRE(DriverClient::get().cuMemsetD32_v2(out, 0, blocks * threads) == 0);
  launched.result = session.launch("k", blocks, threads, {&out});
  launched.findings = DriverClient::get().linnet_virtual_findings();
  if (launched.result == 0) launched.out = session.download<int>(out, blocks * threads);
  return launched;
}

}  // namespace

TEST_CASE("clusters: a block reads its neighbour's shared memory") {
  const auto launched = run(R"(
extern "C" __global__ void __cluster_dims__(4, 1, 1) k(int* out) {
  __shared__ int value[64];
  value[threadIdx.x] = 1000 * blockIdx.x + threadIdx.x;
  meet();
  int got;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(got) : "r"(in_block(&value[threadIdx.x], (rank() + 1) % size())) : "memory");
  meet();
  out[blockIdx.x * 64 + threadIdx.x] = got;
})",
                            8);
  REQUIRE_MESSAGE(launched.result == 0, launched.findings);
  int wrong = 0;
  for (int block = 0; block < 8; ++block)
    for (int t = 0; t < 64; ++t)
      wrong += launched.out[static_cast<size_t>(block * 64 + t)] !=
               1000 * (block / 4 * 4 + (block + 1) % 4) + t;
  CHECK(wrong == 0);
}

TEST_CASE("clusters: stores, atomics and arrivals in another block") {
  // Everybody adds to block 0's counter and arrives at its mbarrier; block 0 waits for them.
  const auto launched = run(R"(
extern "C" __global__ void __cluster_dims__(4, 1, 1) k(int* out) {
  __shared__ int sum, letters[4];
  __shared__ __align__(8) unsigned long long bar;
  unsigned b = (unsigned)__cvta_generic_to_shared(&bar);
  if (threadIdx.x == 0) { sum = 0; asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(b) : "memory"); }
  if (threadIdx.x < 4) letters[threadIdx.x] = -1;
  meet();
  asm volatile("red.shared::cluster.add.u32 [%0], %1;" :: "r"(in_block(&sum, 0)), "r"(threadIdx.x + 1) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(in_block(&letters[rank()], 0)), "r"(100 + rank()) : "memory");
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(in_block(&bar, 0)) : "memory");
  }
  if (rank() == 0) {
    asm volatile("{ .reg .pred p;\nWAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra WAIT; }" :: "r"(b) : "memory");
    out[threadIdx.x] = threadIdx.x < 4 ? letters[threadIdx.x] : sum;
  }
  meet();
})",
                            4);
  REQUIRE_MESSAGE(launched.result == 0, launched.findings);
  for (int t = 0; t < 64; ++t)
    CHECK(launched.out[static_cast<size_t>(t)] == (t < 4 ? 100 + t : 4 * 64 * 65 / 2));
}

TEST_CASE("clusters: special registers tell blocks and clusters apart") {
  PtxRunner runner;
  runner.load(kHeader + R"(
.visible .entry k(.param .u64 out) .reqnctapercluster 2, 2, 1
{ .reg .b64 %d<4>; .reg .b32 %r<16>;
ld.param.u64 %d0, [out]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mad.lo.u32 %r2, %r1, 4, %r0; mul.wide.u32 %d1, %r2, 32; add.u64 %d0, %d0, %d1;
mov.u32 %r3, %clusterid.x; st.global.u32 [%d0], %r3; mov.u32 %r3, %clusterid.y; st.global.u32 [%d0+4], %r3;
mov.u32 %r3, %nclusterid.x; st.global.u32 [%d0+8], %r3; mov.u32 %r3, %cluster_ctaid.x; st.global.u32 [%d0+12], %r3;
mov.u32 %r3, %cluster_ctaid.y; st.global.u32 [%d0+16], %r3; mov.u32 %r3, %cluster_ctarank; st.global.u32 [%d0+20], %r3;
mov.u32 %r3, %cluster_nctarank; st.global.u32 [%d0+24], %r3; mov.u32 %r3, %cluster_nctaid.y; st.global.u32 [%d0+28], %r3; ret; })");
  const uint64_t out = runner.upload(std::vector<uint32_t>(16 * 8, 99));
  runner.cluster = {2, 2, 1};
  runner.run("k", {4, 4, 1}, {1, 1, 1}, {out});
  const auto got = runner.download<uint32_t>(out, 16 * 8);
  for (uint32_t y = 0; y < 4; ++y)
    for (uint32_t x = 0; x < 4; ++x) {
      const std::vector<uint32_t> expected = {x / 2, y / 2, 2, x % 2, y % 2, x % 2 + 2 * (y % 2),
                                              4,     2};
      const auto first = got.begin() + static_cast<long>((4 * y + x) * 8);
      CHECK(std::vector<uint32_t>(first, first + 8) == expected);
    }
}

TEST_CASE("clusters: a launch attribute makes them, and must divide the grid") {
  Session session(compile_cuda(std::string(kHelpers) + R"(
extern "C" __global__ void k(int* out) { out[blockIdx.x] = 10 * size() + rank(); })",
                               "sm_90", "cluster.cu"));
  struct Attribute {
    int id;
    char pad[4];
    unsigned cluster[16];
  };
  struct Config {
    unsigned grid[3], block[3], shared;
    Handle stream;
    Attribute* attributes;
    unsigned count;
  };
  void* entry = nullptr;
  REQUIRE(DriverClient::get().cuGetProcAddress_v2("cuLaunchKernelEx", &entry, 12000, 0, nullptr) ==
          0);
  const auto launch = reinterpret_cast<int (*)(const Config*, Handle, void**, void**)>(entry);
  DevicePointer out = session.allocate(6 * 4);
  void* params[] = {&out};
  Attribute attribute{4, {}, {3, 1, 1}};
  Config config{{6, 1, 1}, {1, 1, 1}, 0, nullptr, &attribute, 1};
  REQUIRE(launch(&config, session.function("k"), params, nullptr) == 0);
  CHECK(session.download<int>(out, 6) == std::vector<int>{30, 31, 32, 30, 31, 32});
  attribute.cluster[0] = 4;
  CHECK(launch(&config, session.function("k"), params, nullptr) == 1);
}

TEST_CASE("clusters: a missing barrier and a barrier nobody else comes to are found") {
  const auto missing = run(R"(
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int* out) {
  __shared__ int value[64];
  if (rank() == 1) { meet(); value[threadIdx.x] = threadIdx.x; meet(); return; }
  int got;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(got) : "r"(in_block(&value[threadIdx.x], 1)) : "memory");
  out[threadIdx.x] = got;
  meet(); meet();
})",
                           2);
  CHECK(missing.result != 0);
  CHECK(missing.findings.find("uninitialised") != std::string::npos);
  const auto alone = run(R"(
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int* out) {
  if (rank() == 0) meet();
  else asm volatile("bar.sync 1, 128;" ::: "memory");
  out[0] = 1;
})",
                         2);
  CHECK(alone.result != 0);
  CHECK(alone.findings.find("the cluster") != std::string::npos);
}
