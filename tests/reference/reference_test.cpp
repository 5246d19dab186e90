// Checks the reference's gradients against differences, its packing of sequences and heads, and
// what it refuses.
#include "tests/reference/reference.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/reference/small_cases.h"

using namespace linnet::reference;

namespace {

std::string message_of(const Case& c, const Tensors& inputs) {
  try {
    forward(c, inputs);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("reference: gradients of every op and mode agree with central differences") {
  std::mt19937 random(1);
  for (const std::string& op : ops()) {
    for (const Case& c : modes_of(op)) {
      CAPTURE(op);
      CAPTURE(static_cast<int>(c.gate));
      CAPTURE(static_cast<int>(c.beta));
      CAPTURE(c.l2norm);
      const Tensors inputs = random_inputs(c, random);
      const Tensors output_gradients = random_output_gradients(c, random);
      const Tensors gradients = backward(c, inputs, output_gradients);
      REQUIRE(gradients.size() == inputs.size());
      for (const auto& [name, x] : inputs) {
        CAPTURE(name);
        const std::vector<double>& gradient = gradients.at("d" + name);
        REQUIRE(gradient.size() == x.size());
        const std::vector<double> direction = uniform(x.size(), -1, 1, random);
        const double h = 1e-5;
        Tensors up = inputs, down = inputs;
        double magnitude = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          up[name][i] += h * direction[i];
          down[name][i] -= h * direction[i];
          magnitude += std::abs(gradient[i] * direction[i]);
        }
        const double difference =
            (loss(c, up, output_gradients) - loss(c, down, output_gradients)) / (2 * h);
        CHECK(magnitude > 0);
        CHECK(std::abs(inner(gradient, direction) - difference) <= 1e-6 * magnitude);
      }
    }
  }
}

TEST_CASE("reference: sequences of a packed batch are independent, an empty one keeps its state") {
  std::mt19937 random(10);
  for (const std::string& op : ops()) {
    CAPTURE(op);
    const Case c = small_case(op);
    const Tensors in = random_inputs(c, random), grads = random_output_gradients(c, random);
    const Tensors all = forward(c, in), all_back = backward(c, in, grads);
    const int64_t tokens = tokens_of(c), N = static_cast<int64_t>(c.lengths.size());
    int64_t first = 0;
    for (int64_t n = 0; n < N; ++n) {
      CAPTURE(n);
      Case one = c;
      one.lengths = {c.lengths[n]};
      // The part of a tensor that belongs to sequence n; per-head constants are shared.
      auto part = [&](const std::string& name, const std::vector<double>& x) {
        const bool state = name.ends_with("_state");
        const bool constant = name == "u" || (name == "g" && kConstantGate.contains(op));
        if (constant) return x;
        const int64_t row = static_cast<int64_t>(x.size()) / (state ? N : tokens);
        const int64_t begin = state ? n : first, rows = state ? 1 : c.lengths[n];
        return std::vector<double>(x.begin() + begin * row, x.begin() + (begin + rows) * row);
      };
      Tensors own, own_grads;
      for (const auto& [name, x] : in) own[name] = part(name, x);
      for (const auto& [name, x] : grads) own_grads[name] = part(name, x);
      for (const auto& [name, x] : forward(one, own)) {
        CHECK(largest_difference(x, part(name, all.at(name))) == 0);
        if (c.lengths[n] == 0 && name == "final_state") CHECK(x == own.at("initial_state"));
      }
      for (const auto& [name, x] : backward(one, own, own_grads)) {
        const std::string input = name.substr(1);
        if (input == "u" || (input == "g" && kConstantGate.contains(op))) continue;
        CHECK(largest_difference(x, part(input, all_back.at(name))) == 0);
      }
      first += c.lengths[n];
    }
  }
}

TEST_CASE("reference: value heads of a group share the key head and sum its gradients") {
  std::mt19937 random(11);
  for (const std::string& op : ops()) {
    CAPTURE(op);
    const Case shared = small_case(op);
    Case own = shared;
    own.heads = own.value_heads;
    const Tensors in = random_inputs(shared, random);
    const Tensors grads = random_output_gradients(shared, random);
    const int64_t group = shared.value_heads / shared.heads, K = shared.key_dim;
    Tensors expanded = in;
    for (auto& [name, x] : expanded) {
      if (sizes_of(own).at(name) == static_cast<int64_t>(x.size())) continue;
      const std::vector<double>& narrow = in.at(name);
      x.clear();
      for (auto row = narrow.begin(); row != narrow.end(); row += K) {
        for (int64_t r = 0; r < group; ++r) x.insert(x.end(), row, row + K);
      }
    }
    check_equal(forward(shared, in), forward(own, expanded));
    const Tensors narrow = backward(shared, in, grads);
    for (const auto& [name, wide] : backward(own, expanded, grads)) {
      CAPTURE(name);
      std::vector<double> summed(narrow.at(name).size());
      const bool grouped = wide.size() != summed.size();
      for (size_t i = 0; i < wide.size(); ++i) {
        summed[grouped ? i / (group * K) * K + i % K : i] += wide[i];
      }
      CHECK(largest_difference(summed, narrow.at(name)) < 1e-13);
    }
  }
}

TEST_CASE("reference: gates of -1000 and -inf wipe the state and stay finite") {
  std::mt19937 random(12);
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::string& op : ops()) {
    for (const Case& c : modes_of(op)) {
      Tensors in = random_inputs(c, random);
      if (!in.contains("g")) continue;
      CAPTURE(op);
      CAPTURE(static_cast<int>(c.gate));
      const Tensors grads = random_output_gradients(c, random);
      // Raw inputs of an activated gate may be large on either side.
      const bool pre = c.gate == Gate::pre;
      const std::vector<double> hard =
          pre ? std::vector<double>{-1000, -inf} : std::vector<double>{-1000, 1000, -inf, inf};
      for (size_t i = 0; i < in["g"].size(); ++i) {
        if (i % 3 != 1) in["g"][i] = hard[i % hard.size()];
      }
      check_finite(forward(c, in));
      check_finite(backward(c, in, grads));
    }
  }
  Case c = small_case("gla");
  Tensors in = random_inputs(c, random);
  in["g"].assign(in["g"].size(), -inf);
  const Tensors wiped = forward(c, in);
  in["g"].assign(in["g"].size(), -1000);
  check_equal(forward(c, in), wiped);
  for (double& x : in["initial_state"]) x *= 7;
  CHECK(largest_difference(forward(c, in).at("o"), wiped.at("o")) == 0);
}

TEST_CASE("reference: initial_state and dfinal_state are zeros when missing") {
  std::mt19937 random(13);
  const Case c = small_case("kda");
  Tensors in = random_inputs(c, random), grads = random_output_gradients(c, random);
  for (double& x : in["initial_state"]) x = 0;
  for (double& x : grads["dfinal_state"]) x = 0;
  const Tensors expected = backward(c, in, grads), outputs = forward(c, in);
  in.erase("initial_state");
  grads.erase("dfinal_state");
  CHECK(forward(c, in) == outputs);
  CHECK(backward(c, in, grads) == expected);
}

TEST_CASE("reference: refuses wrong inputs by name, expected and actual size") {
  std::mt19937 random(14);
  Case c = small_case("kda");
  const Tensors in = random_inputs(c, random);
  Tensors wrong = in;
  wrong.erase("beta");
  CHECK(message_of(c, wrong) == "reference: kda: tensor 'beta' is missing, expected 40 elements");
  wrong = in;
  wrong["g"].resize(7);
  CHECK(message_of(c, wrong) == "reference: kda: tensor 'g' has 7 elements, expected 120");
  wrong = in;
  wrong["A_log"].resize(4);
  CHECK(message_of(c, wrong) == "reference: kda: does not take a tensor 'A_log' of 4 elements");
  c.value_heads = 3;
  CHECK(message_of(c, in) == "reference: kda: value_heads 3 is not a multiple of heads 2");
  c.op = "nonesuch";
  CHECK(message_of(c, in) == "reference: unknown op 'nonesuch'");
  c = small_case("kda");
  CHECK_THROWS_AS(backward(c, in, {}), std::invalid_argument);
}

TEST_CASE("reference: refuses a mode that the op does not have") {
  for (std::string op : {"rwkv6", "rwkv7"}) {
    Case c = small_case(op);
    c.l2norm = true;
    CHECK(message_of(c, {}) == "reference: " + op + ": has no l2norm");
  }
  for (std::string op : {"retention", "lightning", "linear_attention", "delta_rule"}) {
    Case c = small_case(op);
    c.gate = Gate::softplus;
    CHECK(message_of(c, {}) == "reference: " + op + ": has no token gate to activate");
  }
  Case c = small_case("gla");
  c.beta = Beta::sigmoid;
  CHECK(message_of(c, {}) == "reference: gla: has no beta to activate");
}
