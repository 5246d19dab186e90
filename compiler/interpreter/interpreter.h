// The slow, obvious definition of chunk graphs: runs one on plain arrays, in float64 or in the
// arithmetic the graph says.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/dialect/chunk.h"

namespace linnet {

enum class Arithmetic {
  f64,       // everything in double; the graph's roundings are ignored
  emulated,  // f32, with operands of products, stored tiles, inputs and outputs rounded where the
             // graph says
};

// How the arguments lie in memory: row-major [tokens, heads, channels], the tokens of all sequences
// one after another.
struct Layout {
  int64_t heads = 1;
  int64_t value_heads = 1;  // a multiple of heads
  std::vector<int64_t>
      lengths;  // tokens of each sequence, zero allowed; a batch is sequences of one length
  int64_t tokens() const;
  void check() const;  // throws UserError
};

using Tensors = std::map<std::string, std::vector<double>>;

// Runs the graph for every sequence and value head. Inputs by name: token scope [tokens, heads,
// ...], sequence scope [sequences, value_heads, ...], head scope [value_heads, ...], constant scope
// [1]. Missing sequence inputs are zero. Throws UserError for a missing or wrongly sized input.
Tensors interpret(chunk::GraphOp graph, const Layout& layout, const Tensors& inputs,
                  Arithmetic arithmetic);

// Runs a law token by token in float64, as written.
Tensors interpret(chunk::LawOp law, const Layout& layout, const Tensors& inputs);

}  // namespace linnet
