// A tiled bf16 GEMM with ldmatrix, mma.sync and a two-stage cp.async pipeline, compiled by NVRTC.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "driver_client.h"
#include "exec/numbers.h"
#include "nvrtc.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

// C[64 x 64] a block, A row-major, B row-major (loaded transposed), 4 warps of 32 x 32 each.
constexpr const char* kGemm = R"(
typedef unsigned short bf16;
__device__ __forceinline__ unsigned smem(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy16(void* s, const void* g) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(smem(s)), "l"(g) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
__device__ __forceinline__ void ldmatrix4(unsigned (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem(p)) : "memory");
}
__device__ __forceinline__ void ldmatrix2t(unsigned (&r)[2], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
    : "=r"(r[0]), "=r"(r[1]) : "r"(smem(p)) : "memory");
}
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
extern "C" __global__ void __launch_bounds__(128) gemm(const bf16* A, const bf16* B, float* C, int M, int N, int K) {
  __shared__ __align__(16) bf16 a[2][64][40];
  __shared__ __align__(16) bf16 b[2][32][72];
  int t = threadIdx.x, warp = t / 32, lane = t % 32;
  int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
  int wr = (warp / 2) * 32, wc = (warp % 2) * 32;
  auto load = [&](int stage, int k0) {
    for (int i = t; i < 64 * 4; i += 128) copy16(&a[stage][i / 4][i % 4 * 8], A + (row0 + i / 4) * K + k0 + i % 4 * 8);
    for (int i = t; i < 32 * 8; i += 128) copy16(&b[stage][i / 8][i % 8 * 8], B + (k0 + i / 8) * N + col0 + i % 8 * 8);
    commit();
  };
  float acc[2][4][4] = {};
  load(0, 0);
  int steps = K / 32;
  for (int s = 0; s < steps; ++s) {
    if (s + 1 < steps) { load((s + 1) & 1, (s + 1) * 32); wait<1>(); } else wait<0>();
    __syncthreads();
    for (int kk = 0; kk < 32; kk += 16) {
      unsigned fa[2][4], fb[4][2];
      for (int i = 0; i < 2; ++i) ldmatrix4(fa[i], &a[s & 1][wr + i * 16 + lane % 16][kk + lane / 16 * 8]);
      for (int j = 0; j < 4; ++j) ldmatrix2t(fb[j], &b[s & 1][kk + lane % 16][wc + j * 8]);
      for (int i = 0; i < 2; ++i) for (int j = 0; j < 4; ++j) mma(acc[i][j], fa[i], fb[j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 4; ++j) for (int e = 0; e < 4; ++e) {
    int r = row0 + wr + i * 16 + lane / 4 + 8 * (e / 2), c = col0 + wc + j * 8 + lane % 4 * 2 + e % 2;
    C[r * N + c] = acc[i][j][e];
  }
}
)";

std::vector<uint16_t> random_bf16(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = bfloat_from_float(normal(random));
  return values;
}

void run_gemm(const char* mode, const char* seed) {
  DriverClient& cuda = DriverClient::get();
  REQUIRE(cuda.linnet_virtual_set("mma", mode) == 0);
  REQUIRE(cuda.linnet_virtual_set("seed", seed) == 0);
  int m = 128, n = 128, k = 96;
  Session session(compile_cuda(kGemm));
  const auto a = random_bf16(static_cast<size_t>(m * k), 1),
             b = random_bf16(static_cast<size_t>(k * n), 2);
  DevicePointer da = session.upload(a), db = session.upload(b);
  DevicePointer dc = session.allocate(static_cast<size_t>(m * n) * 4);
  void* params[] = {&da, &db, &dc, &m, &n, &k};
  REQUIRE(cuda.cuLaunchKernel(session.function("gemm"), 2, 2, 1, 128, 1, 1, 0, nullptr, params,
                              nullptr) == 0);
  CHECK_MESSAGE(cuda.cuCtxSynchronize() == 0, cuda.linnet_virtual_last_error());
  const auto c = session.download<float>(dc, static_cast<size_t>(m * n));
  double worst = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double exact = 0;
      for (int x = 0; x < k; ++x)
        exact += static_cast<double>(bfloat_to_float(a[static_cast<size_t>(i * k + x)])) *
                 bfloat_to_float(b[static_cast<size_t>(x * n + j)]);
      worst = std::max(worst, std::fabs(exact - c[static_cast<size_t>(i * n + j)]));
    }
  CHECK(worst < 2e-4);
  const std::string counts = cuda.linnet_virtual_counts();
  // 4 blocks x 4 warps x 3 steps x 2 halves x 8 products
  CHECK(counts.find("\"mma\":768") != std::string::npos);
  cuda.linnet_virtual_set("mma", "hardware");
  cuda.linnet_virtual_set("seed", "0");
}

}  // namespace

TEST_CASE("gemm: ldmatrix, mma.sync and cp.async together, both mma modes, three warp orders") {
  for (const char* mode : {"hardware", "exact"})
    for (const char* seed : {"0", "1", "2"}) run_gemm(mode, seed);
}
