// Counts the work of a graph in products, the way MATH.md g does.
#pragma once

#include <optional>

#include "compiler/problem.h"

namespace linnet {

// Floating point operations of all products of one chunk, dense (no causal skipping); the inverse
// by its block merges.
int64_t count_flops(chunk::GraphOp graph);

// MATH.md's closed count per chunk for a law's forward pass in the solve form; nothing for laws it
// does not list.
std::optional<int64_t> flops_by_hand(chunk::LawOp law, int64_t chunk_size);

}  // namespace linnet
