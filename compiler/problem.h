// What is asked for: an op with its sizes and modes. Nothing about how or where it runs.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/dialect/chunk.h"

namespace linnet {

// How the input of a gate becomes a log decay (MATH.md b).
enum class Gate {
  pre,       // the input is the log decay
  softplus,  // -exp(A_log) softplus(g + dt_bias)
  bounded,   // lower_bound sigmoid(exp(A_log) (g + dt_bias))
};

// How the input of a strength becomes one.
enum class Beta { plain, sigmoid, twice_sigmoid };

struct Problem {
  std::string op;
  int64_t key_dim = 128, value_dim = 128;
  Gate gate = Gate::pre;
  // Of a bounded gate; for a pre-gated input the caller's promise, 0 meaning none.
  float lower_bound = 0;
  bool has_A_log = true;  // bounded only: without it exp(A_log) is 1
  Beta beta = Beta::plain;
  bool l2norm = false;
  chunk::Precision precision =
      chunk::Precision::f32;  // of inputs, outputs and operands of products
};

}  // namespace linnet
