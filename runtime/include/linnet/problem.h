// What is asked for: an op with its sizes and modes. Nothing about how or where it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "linnet/tensor.h"

namespace linnet {

// How the input of a gate becomes a log decay (docs/math.md b).
enum class Gate {
  pre,       // the input is the log decay
  softplus,  // -exp(A_log) softplus(g + dt_bias)
  bounded,   // lower_bound sigmoid(exp(A_log) (g + dt_bias))
};

// How the input of a strength becomes one.
enum class Beta { plain, sigmoid, twice_sigmoid };

// backward: the gradients of all inputs, from the inputs and the gradients of the outputs.
// decode: the plain recurrence, for a few tokens a sequence.
enum class Direction { forward, backward, decode };

struct Problem {
  std::string op;
  // Empty for the ops of `linnet list`. For any other its law as text, a chunk.law of the dialect
  // (docs/dialect.md) whose sizes are named !K, !V and !KxV.
  std::string law;
  int64_t key_dim = 128, value_dim = 128;
  Gate gate = Gate::pre;
  // Of a bounded gate; for a pre-gated input the caller's promise, 0 meaning none.
  float lower_bound = 0;
  bool has_A_log = true;  // bounded only: without it exp(A_log) is 1
  Beta beta = Beta::plain;
  bool l2norm = false;
  DType dtype = DType::f32;         // of inputs, outputs and operands of products
  bool tf32 = false;                // f32 only: operands of products may keep ten bits
  DType gate_dtype = DType::f32;    // of gates and their gradients
  std::optional<DType> beta_dtype;  // of strengths and their gradients; none: dtype
  DType state_dtype = DType::f32;   // of initial and final states and their gradients
  bool state_v_first = false;       // states lie as [V, K] instead of [K, V]
};

}  // namespace linnet
