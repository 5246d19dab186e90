// Draws a graph: stages as boxes, ops as nodes, for Graphviz.
#pragma once

#include <string>

#include "compiler/dialect/chunk.h"

namespace linnet {

// The graph in Graphviz's language.
std::string draw_dot(chunk::GraphOp graph);

}  // namespace linnet
