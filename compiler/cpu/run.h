// Runs a compiled kernel on plain arrays, as the interpreter runs its graph.
#pragma once

#include "compiler/cpu/jit.h"
#include "compiler/interpreter/interpreter.h"

namespace linnet::cpu {

// The same contract as interpret(): every sequence and value head, inputs and outputs by name, each
// rounded to how the graph stores it. Works in f32.
Tensors run(const CompiledKernel& kernel, const Layout& layout, const Tensors& inputs);

}  // namespace linnet::cpu
