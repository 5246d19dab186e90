// An inference engine's two calls: a prompt through the chunked kernel, then tokens one by one with
// the state updated in place. Links liblinnet.so alone; the compiler is opened if a kernel is not
// in the cache yet.
//
//   build/bin/example_embed [tokens] [heads]
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "linnet/device.h"

namespace {

constexpr int64_t K = 128, V = 128;
using linnet::DType;
using linnet::Tensor;

// What a model would hand over for some tokens: unit keys, log decays, strengths.
struct Tokens {
  Tokens(int64_t tokens, int64_t heads, unsigned seed)
      : tokens(tokens),
        heads(heads),
        q(tokens * heads * K),
        k(q.size()),
        v(tokens * heads * V),
        g(q.size()),
        beta(tokens * heads),
        o(v.size()) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform;
    for (float& x : q) x = normal(random) / std::sqrt(static_cast<float>(K));
    for (float& x : k) x = normal(random) / std::sqrt(static_cast<float>(K));
    for (float& x : v) x = normal(random);
    for (float& x : g) x = -0.2f * uniform(random);
    for (float& x : beta) x = uniform(random);
  }
  Tensor rows(std::vector<float>& data, int64_t width) {
    return Tensor::dense(data.data(), DType::f32, {1, tokens, heads, width});
  }
  int64_t tokens, heads;
  std::vector<float> q, k, v, g, beta, o;
};

double now_ms() {
  auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

int main(int argc, char** argv) try {
  int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 512, heads = argc > 2 ? std::atoll(argv[2]) : 8;
  Tokens prompt(tokens, heads, 1), next(1, heads, 2);
  std::vector<float> state(heads * K * V);
  double start = now_ms();
  auto device = linnet::Device::open("cpu");
  linnet::Problem kda{.op = "kda", .key_dim = K, .value_dim = V};
  auto prefill = device.build(kda);
  auto decode = device.build(kda, {.direction = linnet::Direction::decode});

  auto states = Tensor::dense(state.data(), DType::f32, {1, heads, K, V});
  auto beta = [](Tokens& t) {
    return Tensor::dense(t.beta.data(), DType::f32, {1, t.tokens, t.heads});
  };
  prefill.run({{"q", prompt.rows(prompt.q, K)},
               {"k", prompt.rows(prompt.k, K)},
               {"v", prompt.rows(prompt.v, V)},
               {"g", prompt.rows(prompt.g, K)},
               {"beta", beta(prompt)},
               {"o", prompt.rows(prompt.o, V)},
               {"final_state", states}});
  std::printf("first result of %ld tokens after %.1f ms\n", static_cast<long>(tokens),
              now_ms() - start);

  start = now_ms();
  for (int i = 0; i < 100; ++i)
    decode.run({{"q", next.rows(next.q, K)},
                {"k", next.rows(next.k, K)},
                {"v", next.rows(next.v, V)},
                {"g", next.rows(next.g, K)},
                {"beta", beta(next)},
                {"o", next.rows(next.o, V)},
                {"state", states}});
  std::printf("100 tokens decoded, %.3f ms each; o[0] = %g\n", (now_ms() - start) / 100, next.o[0]);
  return 0;
} catch (const linnet::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
