// The inputs and outputs of a graph as the runtime knows them.
#pragma once

#include "compiler/dialect/chunk.h"
#include "linnet/compiler.h"

namespace linnet {

// In the order inputs, outputs; stored as the graph says.
std::vector<KernelArgument> arguments_of(chunk::GraphOp graph);
DType dtype_of(chunk::Precision precision);

}  // namespace linnet
