// Small random cases of every op and mode, and comparisons, for the tests of the reference.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "tests/reference/reference.h"

namespace linnet::reference {

inline const std::set<std::string> kScalarGate = {"simple_gla", "gated_delta_rule", "comba",
                                                  "gated_delta_product"};
inline const std::set<std::string> kVectorGate = {"gla", "kda", "gdn2", "rwkv6", "rwkv7"};
inline const std::set<std::string> kConstantGate = {"retention", "lightning"};
inline const std::set<std::string> kBeta = {"delta_rule", "gated_delta_rule", "kda", "comba",
                                            "gated_delta_product"};

inline bool has_token_gate(const std::string& op) {
  return kScalarGate.contains(op) || kVectorGate.contains(op);
}

inline int64_t tokens_of(const Case& c) {
  int64_t tokens = 0;
  for (int64_t length : c.lengths) tokens += length;
  return tokens;
}

// The names and sizes that reference.h promises, written down a second time.
inline std::map<std::string, int64_t> sizes_of(const Case& c) {
  const int64_t tokens = tokens_of(c), N = static_cast<int64_t>(c.lengths.size());
  const int64_t H = c.heads, HV = c.value_heads, K = c.key_dim, V = c.value_dim;
  std::map<std::string, int64_t> sizes = {{"q", tokens * H * K}, {"initial_state", N * HV * K * V}};
  const bool product = c.op == "gated_delta_product";
  for (std::string n :
       product ? std::vector<std::string>{"1", "2"} : std::vector<std::string>{""}) {
    sizes["k" + n] = tokens * H * K;
    sizes["v" + n] = tokens * HV * V;
    if (kBeta.contains(c.op)) sizes["beta" + n] = tokens * HV;
  }
  if (kConstantGate.contains(c.op)) sizes["g"] = HV;
  if (kScalarGate.contains(c.op)) sizes["g"] = tokens * HV;
  if (kVectorGate.contains(c.op)) sizes["g"] = tokens * HV * K;
  if (c.gate != Gate::pre) sizes["dt_bias"] = kVectorGate.contains(c.op) ? HV * K : HV;
  if (c.gate == Gate::softplus || (c.gate == Gate::bounded && c.has_A_log)) sizes["A_log"] = HV;
  if (c.op == "comba") sizes["p"] = tokens * H * K;
  if (c.op == "gdn2") sizes["b"] = tokens * HV * K;
  if (c.op == "gdn2") sizes["w"] = tokens * HV * V;
  if (c.op == "rwkv6") sizes["u"] = HV * K;
  if (c.op == "rwkv7") sizes["a"] = sizes["b"] = tokens * H * K;
  return sizes;
}

inline std::vector<double> uniform(int64_t size, double low, double high, std::mt19937& random) {
  std::vector<double> x(size);
  std::uniform_real_distribution<double> draw(low, high);
  for (double& e : x) e = draw(random);
  return x;
}

inline Tensors random_inputs(const Case& c, std::mt19937& random) {
  Tensors inputs;
  for (const auto& [name, size] : sizes_of(c)) {
    const bool log_decay = name == "g" && c.gate == Gate::pre;
    inputs[name] = uniform(size, log_decay ? -1.5 : -1, log_decay ? 0 : 1, random);
  }
  return inputs;
}

inline Tensors random_output_gradients(const Case& c, std::mt19937& random) {
  return {{"do", uniform(tokens_of(c) * c.value_heads * c.value_dim, -1, 1, random)},
          {"dfinal_state", uniform(sizes_of(c).at("initial_state"), -1, 1, random)}};
}

inline double inner(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

inline double loss(const Case& c, const Tensors& inputs, const Tensors& output_gradients) {
  const Tensors outputs = forward(c, inputs);
  return inner(outputs.at("o"), output_gradients.at("do")) +
         inner(outputs.at("final_state"), output_gradients.at("dfinal_state"));
}

inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

inline void check_equal(const Tensors& a, const Tensors& b) {
  CHECK(largest_difference(a.at("o"), b.at("o")) < 1e-13);
  CHECK(largest_difference(a.at("final_state"), b.at("final_state")) < 1e-13);
}

inline void check_finite(const Tensors& tensors) {
  for (const auto& [name, x] : tensors) {
    INFO(name);
    CHECK(std::all_of(x.begin(), x.end(), [](double e) { return std::isfinite(e); }));
  }
}

// GVA 4/2, K != V, several sequences and an empty one.
inline Case small_case(const std::string& op) {
  Case c;
  c.op = op;
  c.heads = 2;
  c.value_heads = 4;
  c.key_dim = 3;
  c.value_dim = 5;
  c.scale = 0.7;
  c.lengths = {5, 0, 1, 4};
  return c;
}

// The op in every gate mode, beta mode and with and without l2norm that it has.
inline std::vector<Case> modes_of(const std::string& op) {
  std::vector<Case> cases = {small_case(op)};
  auto vary = [&](bool applies, auto... changes) {
    if (!applies) return;
    const std::vector<Case> before = cases;
    auto add = [&](auto change) {
      for (Case c : before) {
        change(c);
        cases.push_back(c);
      }
    };
    (add(changes), ...);
  };
  auto bounded_without_A = [](Case& c) {
    c.gate = Gate::bounded;
    c.has_A_log = false;
    c.lower_bound = -2;
  };
  vary(
      has_token_gate(op), [](Case& c) { c.gate = Gate::softplus; },
      [](Case& c) { c.gate = Gate::bounded; }, bounded_without_A);
  vary(
      kBeta.contains(op), [](Case& c) { c.beta = Beta::sigmoid; },
      [](Case& c) { c.beta = Beta::twice_sigmoid; });
  vary(op != "rwkv6" && op != "rwkv7", [](Case& c) { c.l2norm = true; });
  return cases;
}

}  // namespace linnet::reference
