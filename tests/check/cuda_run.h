// Runs a CUDA module on plain arrays, as the interpreter runs its graph.
#pragma once

#include "compiler/cuda/source.h"
#include "compiler/interpreter/interpreter.h"
#include "runtime/cuda/device.h"

namespace linnet::check {

// How a graph is run on a GPU unless a tuner knows better: the plain recurrence (decode) is one
// kernel, anything else a kernel for each stage.
Schedule cuda_schedule(chunk::GraphOp graph);

class CudaProgram {
 public:
  CudaProgram(const TileProgram& program, std::shared_ptr<cuda::Device> device);
  // The same contract as interpret(): every sequence and value head, inputs and outputs by name,
  // each rounded to how the graph stores it.
  Tensors run(const Layout& layout, const Tensors& inputs) const;
  const cuda::Source& source() const { return source_; }

 private:
  std::shared_ptr<cuda::Device> device_;
  cuda::Source source_;
  cuda::Module module_;
};

}  // namespace linnet::check
