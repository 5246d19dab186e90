// CUDA kernels compiled by NVRTC, run through the Driver API, compared with plain C++.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "driver_client.h"
#include "nvrtc.h"

using namespace linnet::vgpu::testing;

namespace {

std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

void check_clean(int result) {
  CHECK_MESSAGE(result == 0, DriverClient::get().linnet_virtual_last_error());
  CHECK(std::string(DriverClient::get().linnet_virtual_findings()) == "[]");
}

}  // namespace

TEST_CASE("corpus: vector addition") {
  Session session(compile_cuda(R"(
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
})"));
  int n = 1000;
  const auto a = random_floats(1000, 1), b = random_floats(1000, 2);
  DevicePointer da = session.upload(a), db = session.upload(b), dc = session.allocate(4000);
  check_clean(session.launch("add", 4, 256, {&da, &db, &dc, &n}));
  const auto c = session.download<float>(dc, 1000);
  for (size_t i = 0; i < c.size(); ++i) CHECK(c[i] == a[i] + b[i]);
}

TEST_CASE("corpus: block reduction with shuffles and shared memory") {
  Session session(compile_cuda(R"(
extern "C" __global__ void reduce(const float* in, float* out, int n) {
  __shared__ float parts[8];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += in[blockIdx.x * n + i];
  for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int w = 0; w < 8; ++w) total += parts[w];
    out[blockIdx.x] = total;
  }
})"));
  int n = 777;
  const auto in = random_floats(3 * 777, 3);
  DevicePointer din = session.upload(in), dout = session.allocate(12);
  check_clean(session.launch("reduce", 3, 256, {&din, &dout, &n}));
  const auto out = session.download<float>(dout, 3);
  for (size_t b = 0; b < 3; ++b) {
    const double exact = std::accumulate(in.begin() + static_cast<long>(b * 777),
                                         in.begin() + static_cast<long>((b + 1) * 777), 0.0);
    CHECK(out[b] == doctest::Approx(exact).epsilon(1e-4));
  }
}

TEST_CASE("corpus: inclusive scan in shared memory") {
  Session session(compile_cuda(R"(
extern "C" __global__ void scan(const int* in, int* out) {
  __shared__ int s[2][256];
  int t = threadIdx.x, side = 0;
  s[0][t] = in[t];
  __syncthreads();
  for (int d = 1; d < 256; d *= 2) {
    s[side ^ 1][t] = t >= d ? s[side][t] + s[side][t - d] : s[side][t];
    side ^= 1;
    __syncthreads();
  }
  out[t] = s[side][t];
})"));
  std::vector<int> in(256), expected(256);
  std::iota(in.begin(), in.end(), -100);
  std::partial_sum(in.begin(), in.end(), expected.begin());
  DevicePointer din = session.upload(in), dout = session.allocate(1024);
  check_clean(session.launch("scan", 1, 256, {&din, &dout}));
  CHECK(session.download<int>(dout, 256) == expected);
}

TEST_CASE("corpus: transpose through padded shared memory has no bank conflicts") {
  Session session(compile_cuda(R"(
extern "C" __global__ void transpose(const float* in, float* out, int n) {
  __shared__ float tile[32][33];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  int bx = blockIdx.x % (n / 32) * 32, by = blockIdx.x / (n / 32) * 32;
  for (int j = ty; j < 32; j += 8) tile[j][tx] = in[(by + j) * n + bx + tx];
  __syncthreads();
  for (int j = ty; j < 32; j += 8) out[(bx + j) * n + by + tx] = tile[tx][j];
})"));
  int n = 96;
  const auto in = random_floats(96 * 96, 4);
  DevicePointer din = session.upload(in), dout = session.allocate(in.size() * 4);
  check_clean(session.launch("transpose", 9, 256, {&din, &dout, &n}));
  const auto out = session.download<float>(dout, in.size());
  for (size_t i = 0; i < 96; ++i)
    for (size_t j = 0; j < 96; ++j) REQUIRE(out[j * 96 + i] == in[i * 96 + j]);
  const std::string counts = DriverClient::get().linnet_virtual_counts();
  CHECK(counts.find("\"wavefronts\":576,\"minimum\":576") != std::string::npos);
}

TEST_CASE("corpus: integer and float atomics from many blocks") {
  Session session(compile_cuda(R"(
extern "C" __global__ void count(int* histogram, float* sum, unsigned* top, unsigned long long* wide) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&histogram[i % 7], 1);
  atomicAdd(sum, 0.5f);
  atomicMax(top, (unsigned)i * 3u);
  atomicAdd(wide, 1ull << 33);
  unsigned old = atomicInc(&top[1], 99u);
  if (old > 99u) histogram[0] = -1000;
  atomicCAS(&histogram[7], i, i + 1);
})"));
  DevicePointer h = session.upload(std::vector<int>(8, 0)),
                s = session.upload(std::vector<float>{0});
  DevicePointer t = session.upload(std::vector<unsigned>{0, 0});
  DevicePointer w = session.upload(std::vector<uint64_t>{0});
  check_clean(session.launch("count", 10, 128, {&h, &s, &t, &w}));
  const auto histogram = session.download<int>(h, 8);
  for (int bin = 0; bin < 7; ++bin)
    CHECK(histogram[static_cast<size_t>(bin)] == (1280 - bin + 6) / 7);
  CHECK(session.download<float>(s, 1)[0] == 640.0f);
  CHECK(session.download<unsigned>(t, 2) == std::vector<unsigned>{1279u * 3u, 80u});
  CHECK(session.download<uint64_t>(w, 1)[0] == (1280ull << 33));
}

TEST_CASE("corpus: divergent loops, breaks, continues and a switch") {
  const char* source = R"(
__device__ int step(int x, int i) {
  switch ((x + i) % 5) {
    case 0: return x * 3 + 1;
    case 1: return x - 7;
    case 2: return x ^ 0x55;
    case 3: if (i & 1) return x + i; else return x - i;
    default: return x >> 1;
  }
}
extern "C" __global__ void wander(int* out) {
  int t = threadIdx.x, x = t * 37;
  for (int i = 0; i < t % 23 + 3; ++i) {
    if (x % 11 == 3) continue;
    if (x > 100000) break;
    for (int j = 0; j < (x & 3); ++j) x = step(x < 0 ? -x : x, i + j);
    while (x > 5000 && (x & 1)) x = x / 2 + 1;
  }
  out[t] = x;
})";
  Session session(compile_cuda(source));
  DevicePointer out = session.allocate(512);
  check_clean(session.launch("wander", 1, 128, {&out}));
  const auto step = [](int x, int i) {
    switch ((x + i) % 5) {
      case 0:
        return x * 3 + 1;
      case 1:
        return x - 7;
      case 2:
        return x ^ 0x55;
      case 3:
        return i & 1 ? x + i : x - i;
      default:
        return x >> 1;
    }
  };
  const auto result = session.download<int>(out, 128);
  for (int t = 0; t < 128; ++t) {
    int x = t * 37;
    for (int i = 0; i < t % 23 + 3; ++i) {
      if (x % 11 == 3) continue;
      if (x > 100000) break;
      for (int j = 0; j < (x & 3); ++j) x = step(x < 0 ? -x : x, i + j);
      while (x > 5000 && (x & 1)) x = x / 2 + 1;
    }
    REQUIRE(result[static_cast<size_t>(t)] == x);
  }
}

TEST_CASE("corpus: function calls with structs, recursion and function pointers") {
  Session session(compile_cuda(R"(
struct Pair { int a; double b[3]; };
__device__ __noinline__ double blend(Pair p, int i) { p.b[i % 3] += p.a; return p.b[0] + 2 * p.b[1] - p.b[2]; }
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
typedef int (*Function)(int);
__device__ Function table[2] = {twice, square};
extern "C" __global__ void calls(double* d, int* f, int* p) {
  int t = threadIdx.x;
  Pair pair; pair.a = t; pair.b[0] = 1; pair.b[1] = t * 0.5; pair.b[2] = 3;
  if (t % 3) d[t] = blend(pair, t); else d[t] = -blend(pair, t + 1);
  f[t] = fibonacci(t % 10);
  p[t] = table[t & 1](t);
})"));
  DevicePointer d = session.allocate(512), f = session.allocate(256), p = session.allocate(256);
  check_clean(session.launch("calls", 1, 64, {&d, &f, &p}));
  const auto doubles = session.download<double>(d, 64);
  const auto fib = session.download<int>(f, 64), through = session.download<int>(p, 64);
  const auto blend = [](int a, int t, int i) {
    double b[3] = {1, t * 0.5, 3};
    b[i % 3] += a;
    return b[0] + 2 * b[1] - b[2];
  };
  const int expected[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34};
  for (int t = 0; t < 64; ++t) {
    const auto at = static_cast<size_t>(t);
    CHECK(doubles[at] == (t % 3 ? blend(t, t, t) : -blend(t, t, t + 1)));
    CHECK(fib[at] == expected[t % 10]);
    CHECK(through[at] == (t & 1 ? t * t : 2 * t));
  }
}

TEST_CASE("corpus: math functions of CUDA C++ agree with the host") {
  Session session(compile_cuda(R"(
extern "C" __global__ void math(const float* x, float* y) {
  int t = threadIdx.x;
  float v = x[t];
  y[t] = expf(v); y[64 + t] = logf(v + 2.0f); y[128 + t] = sinf(v * 10); y[192 + t] = tanhf(v);
  y[256 + t] = sqrtf(v + 2.0f) / (v + 3.0f); y[320 + t] = powf(v + 2.0f, 1.7f);
  y[384 + t] = __expf(v); y[448 + t] = rsqrtf(v + 2.0f); y[512 + t] = (float)exp((double)v);
  y[576 + t] = log1pf(v * 0.5f); y[640 + t] = erff(v);
})"));
  const auto x = random_floats(64, 5);
  DevicePointer dx = session.upload(x), dy = session.allocate(704 * 4);
  check_clean(session.launch("math", 1, 64, {&dx, &dy}));
  const auto y = session.download<float>(dy, 704);
  for (size_t t = 0; t < 64; ++t) {
    const double v = x[t];
    const double expected[] = {std::exp(v),
                               std::log(v + 2),
                               std::sin(v * 10),
                               std::tanh(v),
                               std::sqrt(v + 2) / (v + 3),
                               std::pow(v + 2, 1.7),
                               std::exp(v),
                               1 / std::sqrt(v + 2),
                               std::exp(v),
                               std::log1p(v * 0.5),
                               std::erf(v)};
    for (size_t i = 0; i < 11; ++i)
      CHECK(y[i * 64 + t] == doctest::Approx(expected[i]).epsilon(3e-6));
  }
}

TEST_CASE("corpus: a block waits for the others through a fence and an atomic counter") {
  Session session(compile_cuda(R"(
__device__ unsigned arrived;
extern "C" __global__ void last_block(const float* in, float* partial, float* out) {
  __shared__ bool last;
  float v = in[blockIdx.x * 32 + threadIdx.x];
  for (int d = 16; d; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = v;
    __threadfence();
    last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float total = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) total += partial[b];
    *out = total;
  }
})"));
  const auto in = random_floats(64 * 32, 6);
  DevicePointer din = session.upload(in), part = session.allocate(256), out = session.allocate(4);
  check_clean(session.launch("last_block", 64, 32, {&din, &part, &out}));
  CHECK(session.download<float>(out, 1)[0] ==
        doctest::Approx(std::accumulate(in.begin(), in.end(), 0.0)).epsilon(1e-4));
}

TEST_CASE("corpus: blocks wait for each other at a grid-wide barrier") {
  // The barrier of cooperative groups, written out: NVRTC has no headers here.
  Session session(compile_cuda(R"(
__device__ unsigned long long workspace() {
  unsigned high, low;
  asm("mov.u32 %0, %envreg1;" : "=r"(high));
  asm("mov.u32 %0, %envreg2;" : "=r"(low));
  return (unsigned long long)high << 32 | low;
}
__device__ void sync_grid() {
  __syncthreads();
  if (threadIdx.x == 0) {
    volatile unsigned* arrived = (volatile unsigned*)(workspace() + 4);
    unsigned add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    __threadfence();
    unsigned old = atomicAdd((unsigned*)arrived, add);
    while (((old ^ *arrived) & 0x80000000u) == 0) {}
    __threadfence();
  }
  __syncthreads();
}
extern "C" __global__ void rotate(int* a, int* b) {
  int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int step = 0; step < 3; ++step) {
    b[(i + 32) % n] = a[i];
    sync_grid();
    a[i] = b[i] + 1;
    sync_grid();
  }
})"));
  std::vector<int> a(40 * 32);
  std::iota(a.begin(), a.end(), 0);
  DevicePointer da = session.upload(a), db = session.allocate(a.size() * 4);
  check_clean(session.launch("rotate", 40, 32, {&da, &db}));
  const auto result = session.download<int>(da, a.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(result[i] == a[(i + a.size() - 96) % a.size()] + 3);
}
