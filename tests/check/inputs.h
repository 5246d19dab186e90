// Random arguments for an op, of the kind its models produce: unit keys, decaying gates, contracting transitions.
#pragma once

#include <cstdint>

#include "compiler/interpreter/interpreter.h"
#include "compiler/problem.h"

namespace linnet::check {

enum class Gates { random, lowest, zero, at_bound };  // lowest: -1000 for every token; at_bound: -5
struct InputOptions {
  uint64_t seed = 0;
  Gates gates = Gates::random;
  bool correlated_keys = false;  // every key near one direction: the hardest systems to solve
};

// Arguments for every input of the forward graph, rounded to how the graph stores them.
Tensors random_inputs(chunk::GraphOp forward, const Problem& problem, const Layout& layout, const InputOptions& options);
// Gradients of the forward graph's outputs.
Tensors random_output_gradients(chunk::GraphOp forward, const Layout& layout, uint64_t seed);

}  // namespace linnet::check
