// The device library: every header compiles alone for every architecture, and its functions compute
// what their comments say, on the virtual GPU.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "tests/cuda/device_fixture.h"

using namespace linnet;

namespace {

std::vector<float> random_numbers(size_t count, unsigned seed, float size = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> numbers(count);
  for (float& x : numbers) x = normal(engine);
  return numbers;
}

double rms_ratio(const std::vector<float>& x, const std::vector<double>& ref) {
  double error = x.size() == ref.size() ? 0 : INFINITY, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - ref[i]) * (x[i] - ref[i]);
    size += ref[i] * ref[i];
  }
  return std::sqrt(error / size);
}

// Loads f32 matrices as tiles of any format, and stores a tile in registers as f32.
const char* kPrelude = R"(
#include "decay.cuh"
#include "inverse.cuh"
#include "reduce.cuh"
using namespace linnet;
extern __shared__ __align__(16) unsigned char shared[];
template <class Cta, class S> __device__ S fill(unsigned char*& at, const float* from) {
  S tile(at);
  at += S::kBytes;
  for (int x = threadIdx.x; x < S::kPaddedRows * S::kPaddedColumns; x += Cta::kThreads) {
    int i = x / S::kPaddedColumns, j = x % S::kPaddedColumns;
    bool inside = i < S::kRows && j < S::kColumns;
    tile(i, j) = from_f32<typename S::Element>(inside && from ? from[i * S::kColumns + j] : 0.f);
  }
  return tile;
}
template <class T> __device__ void put(float* to, const T& a, int rows, int columns) {
  for_each<T>([&](int m, int n, int e) {
    int i = T::row(m, e), j = T::column(n, e);
    if (T::owns(m, n) && i < rows && j < columns) to[i * columns + j] = a.x[m][n][e];
  });
}
)";

}  // namespace

TEST_CASE("templates: every header compiles on its own for every architecture") {
  for (const auto& [name, text] : embedded_templates())
    for (const char* arch : {"sm_80", "sm_89", "sm_90", "sm_100", "sm_120"}) {
      CAPTURE(name);
      CAPTURE(arch);
      CHECK_NOTHROW(cuda::Nvrtc::get().compile(text, name, arch, embedded_templates()));
    }
}

TEST_CASE("templates: products in every format and form, sizes that are no multiples of 16") {
  constexpr int M = 20, K = 52, N = 36;
  auto a = random_numbers(M * K, 1), b = random_numbers(K * N, 2);
  std::vector<double> expected(M * N);
  std::vector<float> a_t(a.size()), b_t(b.size());
  for (int i = 0; i < M; ++i)
    for (int k = 0; k < K; ++k) a_t[k * M + i] = a[i * K + k];
  for (int k = 0; k < K; ++k)
    for (int j = 0; j < N; ++j) b_t[j * K + k] = b[k * N + j];
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j)
      for (int k = 0; k < K; ++k) expected[i * N + j] += double(a[i * K + k]) * b[k * N + j];
  struct Format {
    const char *precision, *element;
    double limit;
  };
  for (Format format : {Format{"f32", "float", 1e-6}, Format{"tf32", "float", 1e-3},
                        Format{"bf16", "bf16", 5e-3}, Format{"f16", "f16", 6e-4}})
    for (int form = 0; form < 6; ++form) {
      CAPTURE(format.precision);
      CAPTURE(form);
      bool flip_a = form & 1, flip_b = form & 2, registers = form >= 4;
      if (registers) flip_a = false;
      std::string source = kPrelude;
      source += fmt::format(
          R"(
extern "C" __global__ void kernel(const float* a, const float* b, float* out) {{
  using cta = Cta<{warps}>;
  unsigned char* at = shared;
  auto A = fill<cta, SharedTile<{element}, {ar}, {ac}>>(at, a);
  auto B = fill<cta, SharedTile<{element}, {br}, {bc}>>(at, b);
  __syncthreads();
  using Y = Tile<{m}, {n}, {split}>;
  put(out, product<Y, Precision::{precision}>({left}, {right}), {m}, {n});
}})",
          fmt::arg("warps", registers ? 2 : 3), fmt::arg("element", format.element),
          fmt::arg("ar", flip_a ? K : M), fmt::arg("ac", flip_a ? M : K),
          fmt::arg("br", flip_b ? N : K), fmt::arg("bc", flip_b ? K : N), fmt::arg("m", M),
          fmt::arg("n", N), fmt::arg("split", registers ? "Rows<2>" : "Columns<3>"),
          fmt::arg("precision", format.precision),
          fmt::arg("left", registers ? fmt::format("load<Tile<{}, {}, Rows<2>>>(A)", M, K)
                           : flip_a  ? "transposed(A)"
                                     : "A"),
          fmt::arg("right", flip_b ? "transposed(B)" : "B"));
      auto y = testing::run_kernel(source, registers ? 2 : 3, 40000,
                                   {flip_a ? a_t : a, flip_b ? b_t : b}, M * N);
      CHECK(rms_ratio(y, expected) < format.limit);
    }
}

TEST_CASE("templates: the inverse of I + A, one block and several, odd sizes") {
  for (int n : {5, 16, 32, 64}) {
    CAPTURE(n);
    auto a = random_numbers(n * n, 3, 0.3f);
    for (int i = 0; i < n; ++i)
      for (int j = i; j < n; ++j) a[i * n + j] = 0;
    std::vector<double> z(n * n);
    for (int i = 0; i < n; ++i) {
      z[i * n + i] = 1;
      for (int j = 0; j < i; ++j)
        for (int c = 0; c <= j; ++c) z[i * n + c] -= a[i * n + j] * z[j * n + c];
    }
    std::string source = kPrelude;
    source += fmt::format(R"(
extern "C" __global__ void kernel(const float* a, float* out) {{
  using cta = Cta<4>;
  unsigned char* at = shared;
  auto A = fill<cta, SharedTile<float, {0}, {0}>>(at, a);
  SharedTile<float, {0}, {0}> Z(at);
  __syncthreads();
  inverse_unit_lower<cta, Precision::f32>(Z, A);
  __syncthreads();
  put(out, load<Tile<{0}, {0}, Columns<4>>>(Z), {0}, {0});
}})",
                          n);
    CHECK(rms_ratio(testing::run_kernel(source, 4, 80000, {a}, n * n), z) < 2e-6);
  }
}

TEST_CASE("templates: running sums down a tile, forward and back, with and without the own row") {
  constexpr int R = 40, N = 20;
  auto a = random_numbers(R * N, 4);
  for (bool reverse : {false, true})
    for (bool exclusive : {false, true}) {
      std::vector<double> expected(R * N);
      for (int j = 0; j < N; ++j) {
        double sum = 0;
        for (int step = 0; step < R; ++step) {
          int i = reverse ? R - 1 - step : step;
          expected[i * N + j] = exclusive ? sum : sum + a[i * N + j];
          sum += a[i * N + j];
        }
      }
      std::string source = kPrelude;
      source += fmt::format(R"(
extern "C" __global__ void kernel(const float* a, float* out) {{
  using cta = Cta<2>;
  unsigned char* at = shared;
  auto A = fill<cta, SharedTile<float, 40, 20>>(at, a);
  __syncthreads();
  auto y = cumsum<Direction::{}, Own::{}>(load<Tile<40, 20, Columns<2>>>(A));
  put(out, y, 40, 20);
}})",
                            reverse ? "reverse" : "forward", exclusive ? "excluded" : "included");
      CHECK(rms_ratio(testing::run_kernel(source, 2, 20000, {a}, R * N), expected) < 1e-6);
    }
}

TEST_CASE("templates: scores under decay, pairwise and anchored, every format and block") {
  constexpr int C = 32, K = 20;
  auto a = random_numbers(C * K, 5), b = random_numbers(C * K, 6), g = random_numbers(C * K, 7);
  for (int i = 0; i < C; ++i)
    for (int d = 0; d < K; ++d)
      g[i * K + d] = (i ? g[(i - 1) * K + d] : 0) - std::fmin(5.f, std::fabs(g[i * K + d]));
  std::vector<double> expected(C * C);
  for (int i = 0; i < C; ++i)
    for (int j = 0; j < i; ++j)
      for (int d = 0; d < K; ++d)
        expected[i * C + j] +=
            double(a[i * K + d]) * b[j * K + d] * std::exp(double(g[i * K + d]) - g[j * K + d]);
  struct Kind {
    const char *form, *precision, *element;
    double limit;
  };
  for (Kind kind :
       {Kind{"pairwise", "f32", "float", 2e-6}, Kind{"anchored", "f32", "float", 5e-6},
        Kind{"pairwise", "bf16", "bf16", 5e-3}, Kind{"anchored", "bf16", "bf16", 5e-3}}) {
    CAPTURE(kind.form);
    CAPTURE(kind.precision);
    std::string source = kPrelude;
    source += fmt::format(R"(
extern "C" __global__ void kernel(const float* a, const float* b, const float* g, float* out) {{
  using cta = Cta<3>;
  using S = SharedTile<float, 32, 20>;
  using L = SharedTile<{element}, 32, 20>;
  unsigned char* at = shared;
  auto A = fill<cta, S>(at, a);
  auto B = fill<cta, S>(at, b);
  auto G = fill<cta, S>(at, g);
  auto left = fill<cta, L>(at, nullptr);
  auto right = fill<cta, L>(at, nullptr);
  SharedTile<float, 32, 32> D(at);
  __syncthreads();
  decay_dot<cta, Precision::{precision}, Triangle::strict_lower, Form::{form}, 16>(
      D, A, B, G, G, -37.5f, left, right);
  __syncthreads();
  put(out, load<Tile<32, 32, Columns<3>>>(D), 32, 32);
}})",
                          fmt::arg("element", kind.element), fmt::arg("precision", kind.precision),
                          fmt::arg("form", kind.form));
    CHECK(rms_ratio(testing::run_kernel(source, 3, 60000, {a, b, g}, C * C), expected) <
          kind.limit);
  }
}

TEST_CASE("templates: the adjoints of scores under decay, rows and columns, both forms") {
  constexpr int C = 32, K = 20;
  auto m = random_numbers(C * C, 8), x = random_numbers(C * K, 9), g = random_numbers(C * K, 10);
  for (int i = 0; i < C; ++i)
    for (int d = 0; d < K; ++d)
      g[i * K + d] = (i ? g[(i - 1) * K + d] : 0) - std::fmin(5.f, std::fabs(g[i * K + d]));
  for (bool rows : {true, false})
    for (const char* form : {"pairwise", "anchored"}) {
      CAPTURE(form);
      std::vector<double> expected(C * K);
      for (int i = 0; i < C; ++i)
        for (int j = 0; j <= i; ++j)
          for (int d = 0; d < K; ++d) {
            double decay = std::exp(double(g[i * K + d]) - g[j * K + d]) * m[i * C + j];
            expected[(rows ? i : j) * K + d] += decay * x[(rows ? j : i) * K + d];
          }
      std::string source = kPrelude;
      source += fmt::format(R"(
extern "C" __global__ void kernel(const float* m, const float* x, const float* g, float* out) {{
  using cta = Cta<3>;
  using S = SharedTile<float, 32, 20>;
  unsigned char* at = shared;
  auto M = fill<cta, SharedTile<float, 32, 32>>(at, m);
  auto X = fill<cta, S>(at, x);
  auto G = fill<cta, S>(at, g);
  auto scaled = fill<cta, S>(at, nullptr);
  __syncthreads();
  using Y = Tile<32, 20, Columns<3>>;
  auto y = decay_apply<Y, cta, Precision::f32, Side::{}, Triangle::lower, Form::{}, 16>(
      M, X, G, G, -37.5f, scaled);
  put(out, y, 32, 20);
}})",
                            rows ? "rows" : "columns", form);
      CHECK(rms_ratio(testing::run_kernel(source, 3, 60000, {m, x, g}, C * K), expected) < 5e-6);
    }
}
