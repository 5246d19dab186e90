// Random arguments for an op, of the kind its models produce: unit keys, decaying gates,
// contracting transitions.
#pragma once

#include <cstdint>

#include "compiler/interpreter/interpreter.h"
#include "compiler/problem.h"

namespace linnet::check {

// lowest: -1000 for every token; at_bound: -5; mixed: random, but -1000 now and then.
enum class Gates { random, lowest, zero, at_bound, mixed };
struct InputOptions {
  uint64_t seed = 0;
  Gates gates = Gates::random;
  bool correlated_keys = false;  // every key near one direction: the hardest systems to solve
};

// Arguments for every input of the forward graph, rounded to how the graph stores them.
Tensors random_inputs(chunk::GraphOp forward, const Problem& problem, const Layout& layout,
                      const InputOptions& options);
// Gradients of the forward graph's outputs.
Tensors random_output_gradients(chunk::GraphOp forward, const Layout& layout, uint64_t seed);

// Numbers of a normal distribution under a name.
Tensors random_numbers(const std::string& name, size_t count, uint64_t seed);

}  // namespace linnet::check
