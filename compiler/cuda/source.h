// A tile program as CUDA source: its kernels, what they take, and how they are launched.
#pragma once

#include <string>
#include <vector>

#include "compiler/pipeline.h"
#include "compiler/tile/program.h"
#include "linnet/compiler.h"

namespace linnet::cuda {

// An input or output of the op, as the caller has it in memory.
struct Argument {
  std::string name;
  chunk::Scope scope;
  bool key_heads, is_output;
  chunk::Precision storage;
  int64_t row;  // numbers of one token, or of the whole tile for other scopes
  // Outputs shared by value heads or chunks leave their kernel as f32 partial sums, which a last
  // kernel adds up.
  bool is_summed() const { return is_output && (key_heads || scope == chunk::Scope::head); }
  // Those of key heads leave as they are where each has one value head.
  bool is_direct() const {
    return is_summed() && scope == chunk::Scope::token && row % kGathered == 0;
  }
};

struct Source {
  std::string name;  // the graph's
  std::string text;
  int64_t chunk;
  int64_t workspace_bytes_per_slot;  // a slot is a chunk of one value head
  int64_t segment_bytes = 0;         // of the record of a segment of one value head
  std::vector<Argument> arguments;
  std::vector<CudaKernel> kernels;  // in the order they are launched
};

// How a graph is run unless a tuner knows better: the plain recurrence (decode) is one kernel,
// anything else a kernel for each stage.
Schedule default_schedule(chunk::GraphOp graph);
// The same with what a schedule says of the rest.
Schedule schedule_for(chunk::GraphOp graph, Schedule wished);

// What the caller has in memory, and what the kernels are for: forward hands out states between
// chunks, decode finds its states by slots.
struct Memory {
  Direction direction = Direction::forward;
  bool state_v_first = false;  // states are [V, K]
};

// What kernels of a derivation are for: one token a chunk is decode.
inline Direction direction_of(const PipelineOptions& options) {
  return options.chunk_size == 1 ? Direction::decode : options.direction;
}

// Throws UserError for a schedule these kernels do not know.
Source emit(const TileProgram& program, const Memory& memory = {});

}  // namespace linnet::cuda
