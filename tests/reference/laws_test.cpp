// Checks the laws of the reference against each other and against sums written out.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/reference/small_cases.h"

using namespace linnet::reference;

TEST_CASE("reference: gla is the sum over earlier tokens weighted by the decay between") {
  std::mt19937 random(2);
  Case c = small_case("gla");
  c.heads = c.value_heads = 1;
  c.lengths = {6};
  Tensors in = random_inputs(c, random);
  in.erase("initial_state");
  std::vector<double> expected(6 * c.value_dim);
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double score = 0;
      for (int64_t d = 0; d < c.key_dim; ++d) {
        double log_decay = 0;
        for (int64_t m = j + 1; m <= i; ++m) log_decay += in["g"][m * c.key_dim + d];
        score += in["q"][i * c.key_dim + d] * in["k"][j * c.key_dim + d] * std::exp(log_decay);
      }
      for (int64_t v = 0; v < c.value_dim; ++v) {
        expected[i * c.value_dim + v] += c.scale * score * in["v"][j * c.value_dim + v];
      }
    }
  }
  CHECK(largest_difference(forward(c, in).at("o"), expected) < 1e-13);
}

TEST_CASE("reference: kda equals rwkv7 with a=e^g*k, b=-beta*k, k'=beta*k") {
  std::mt19937 random(3);
  Case c = small_case("kda");
  c.heads = c.value_heads;
  const Tensors kda = random_inputs(c, random);
  Tensors dplr = kda;
  dplr.erase("beta");
  dplr["a"] = dplr["b"] = kda.at("k");
  for (size_t i = 0; i < kda.at("k").size(); ++i) {
    const double beta = kda.at("beta")[i / c.key_dim];
    dplr["a"][i] *= std::exp(kda.at("g")[i]);
    dplr["b"][i] *= -beta;
    dplr["k"][i] *= beta;
  }
  const Tensors expected = forward(c, kda);
  c.op = "rwkv7";
  check_equal(forward(c, dplr), expected);
}

TEST_CASE("reference: vector gates with equal elements are the scalar gate") {
  std::mt19937 random(4);
  for (const auto& [scalar_op, vector_op] :
       {std::pair<std::string, std::string>("simple_gla", "gla"), {"gated_delta_rule", "kda"}}) {
    for (Case c : modes_of(scalar_op)) {
      const Tensors scalar = random_inputs(c, random);
      Tensors vector = scalar;
      for (std::string name : {"g", "dt_bias"}) {
        if (!scalar.contains(name)) continue;
        vector[name].clear();
        for (double x : scalar.at(name)) vector[name].insert(vector[name].end(), c.key_dim, x);
      }
      const Tensors expected = forward(c, scalar);
      c.op = vector_op;
      check_equal(forward(c, vector), expected);
    }
  }
}

TEST_CASE("reference: gates of zero, constant gates and two names for one law") {
  std::mt19937 random(5);
  Case c = small_case("linear_attention");
  Tensors in = random_inputs(c, random);
  const Tensors linear = forward(c, in);

  in["g"].assign(c.value_heads, 0);
  c.op = "retention";
  check_equal(forward(c, in), linear);

  in["g"] = {-0.1, -0.2, -0.3, -0.4};
  const Tensors retention = forward(c, in);
  c.op = "lightning";
  check_equal(forward(c, in), retention);

  c.op = "simple_gla";
  const std::vector<double> per_head = in["g"];
  in["g"].clear();
  for (int64_t t = 0; t < tokens_of(c); ++t) {
    in["g"].insert(in["g"].end(), per_head.begin(), per_head.end());
  }
  check_equal(forward(c, in), retention);

  // With no decay and u = 1, rwkv6 reads the state as if it were already updated.
  c.op = "rwkv6";
  in["g"].assign(sizes_of(c).at("g"), 0);
  in["u"].assign(c.value_heads * c.key_dim, 1);
  check_equal(forward(c, in), linear);
}

TEST_CASE("reference: rwkv6 reads before its token what gla reads after the token before") {
  std::mt19937 random(6);
  Case c = small_case("gla");
  c.heads = c.value_heads;
  c.lengths = {6};
  Tensors in = random_inputs(c, random);
  // gla answers the query of the next token, rwkv6 (without bonus) that of its own.
  const int64_t row = c.heads * c.key_dim;
  Tensors shifted = in;
  std::rotate(shifted["q"].begin(), shifted["q"].begin() + row, shifted["q"].end());
  const Tensors gla = forward(c, shifted);
  c.op = "rwkv6";
  in["u"].assign(c.value_heads * c.key_dim, 0);
  const Tensors rwkv6 = forward(c, in);
  const int64_t out = c.value_heads * c.value_dim;
  const auto& o = rwkv6.at("o");
  const auto& o_gla = gla.at("o");
  CHECK(largest_difference({o.begin() + out, o.end()}, {o_gla.begin(), o_gla.end() - out}) < 1e-13);
  CHECK(largest_difference(rwkv6.at("final_state"), gla.at("final_state")) < 1e-13);
}

TEST_CASE("reference: comba with p=e^g*k, gdn2 with b=w=beta are the gated delta rules") {
  std::mt19937 random(7);
  Case c = small_case("gated_delta_rule");
  c.heads = c.value_heads;
  Tensors in = random_inputs(c, random);
  const Tensors expected = forward(c, in);
  Tensors comba = in;
  comba["p"] = in["k"];
  for (size_t i = 0; i < in["k"].size(); ++i) comba["p"][i] *= std::exp(in["g"][i / c.key_dim]);
  c.op = "comba";
  check_equal(forward(c, comba), expected);

  c.op = "kda";
  in = random_inputs(c, random);
  const Tensors kda = forward(c, in);
  Tensors gdn2 = in;
  gdn2.erase("beta");
  for (double beta : in["beta"]) {
    gdn2["b"].insert(gdn2["b"].end(), c.key_dim, beta);
    gdn2["w"].insert(gdn2["w"].end(), c.value_dim, beta);
  }
  c.op = "gdn2";
  check_equal(forward(c, gdn2), kda);
}

TEST_CASE("reference: gated_delta_product is gated_delta_rule at two tokens a token") {
  std::mt19937 random(8);
  Case c = small_case("gated_delta_product");
  const Tensors in = random_inputs(c, random);
  const Tensors product = forward(c, in);
  const int64_t tokens = tokens_of(c);
  auto interleave = [&](const std::vector<double>& first, const std::vector<double>& second) {
    const int64_t row = static_cast<int64_t>(first.size()) / tokens;
    std::vector<double> both;
    for (int64_t t = 0; t < tokens; ++t) {
      for (auto* x : {&first, &second}) {
        both.insert(both.end(), x->begin() + t * row, x->begin() + (t + 1) * row);
      }
    }
    return both;
  };
  const Tensors doubled = {{"q", interleave(in.at("q"), in.at("q"))},
                           {"k", interleave(in.at("k1"), in.at("k2"))},
                           {"v", interleave(in.at("v1"), in.at("v2"))},
                           {"beta", interleave(in.at("beta1"), in.at("beta2"))},
                           {"g", interleave(in.at("g"), std::vector<double>(in.at("g").size(), 0))},
                           {"initial_state", in.at("initial_state")}};
  c.op = "gated_delta_rule";
  for (int64_t& length : c.lengths) length *= 2;
  Tensors delta = forward(c, doubled);
  const int64_t row = c.value_heads * c.value_dim;
  std::vector<double> second_steps;
  for (int64_t t = 0; t < tokens; ++t) {
    auto o = delta["o"].begin() + (2 * t + 1) * row;
    second_steps.insert(second_steps.end(), o, o + row);
  }
  delta["o"] = second_steps;
  check_equal(product, delta);
}

TEST_CASE("reference: delta_rule at beta=1 reads back what it wrote under a unit key") {
  Case c = small_case("delta_rule");
  c.heads = c.value_heads = 1;
  c.lengths = {1};
  c.scale = 1;
  std::mt19937 random(9);
  Tensors in = random_inputs(c, random);
  in["q"] = in["k"] = {0.6, 0, 0.8};
  in["beta"] = {1};
  CHECK(largest_difference(forward(c, in).at("o"), in["v"]) < 1e-13);
}

TEST_CASE("reference: activations and l2norm equal the same inputs prepared by hand") {
  std::mt19937 random(15);
  for (const std::string op : {"kda", "gated_delta_rule"}) {
    for (const Case& c : modes_of(op)) {
      CAPTURE(op);
      CAPTURE(static_cast<int>(c.gate));
      CAPTURE(static_cast<int>(c.beta));
      CAPTURE(c.l2norm);
      Tensors in = random_inputs(c, random);
      for (double& x : in["k"]) x *= 1e-3;  // so that the eps of the norm shows
      Tensors prepared = in;
      const int64_t K = c.key_dim, width = op == "kda" ? K : 1;
      for (std::string name : {"q", "k"}) {
        auto& x = prepared[name];
        for (size_t row = 0; c.l2norm && row < x.size(); row += K) {
          double squares = 1e-6;
          for (int64_t d = 0; d < K; ++d) squares += x[row + d] * x[row + d];
          for (int64_t d = 0; d < K; ++d) x[row + d] /= std::sqrt(squares);
        }
      }
      for (double& x : prepared["beta"]) {
        if (c.beta == Beta::sigmoid) x = 1 / (1 + std::exp(-x));
        if (c.beta == Beta::twice_sigmoid) x = 2 / (1 + std::exp(-x));
      }
      for (size_t i = 0; c.gate != Gate::pre && i < in["g"].size(); ++i) {
        const double y = in["g"][i] + in["dt_bias"][i % (c.value_heads * width)];
        const double e_A =
            in.contains("A_log") ? std::exp(in["A_log"][i / width % c.value_heads]) : 1;
        prepared["g"][i] = c.gate == Gate::softplus ? -e_A * std::log(1 + std::exp(y))
                                                    : c.lower_bound / (1 + std::exp(-e_A * y));
      }
      prepared.erase("A_log");
      prepared.erase("dt_bias");
      Case plain = small_case(op);
      check_equal(forward(c, in), forward(plain, prepared));
    }
  }
}
