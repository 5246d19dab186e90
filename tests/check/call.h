// Runs an op of any device on plain arrays, as the interpreter runs graphs.
#pragma once

#include <set>

#include "compiler/interpreter/interpreter.h"
#include "linnet/device.h"

namespace linnet::check {

// How the caller's memory lies and what the caller asks for. None of it changes a number.
struct CallOptions {
  int64_t states_every = 0;  // states between chunks come back as "states" if it is not 0
  bool batch = false;        // [B, T, ...] instead of cu_seqlens; all sequences have one length
  bool int32_offsets = false;
  int64_t gap = 0;                 // numbers between two rows of every tensor
  std::set<std::string> left_out;  // optional arguments that are not given
  bool state_pool = false;         // decode: `state`, read and written, instead of two tensors
};

// Inputs as for interpret(); every output the op has comes back, rounded as the op stores it.
// Throws InternalError if the op wrote to an input, between rows or around a tensor.
Tensors call(const Op& op, const Layout& layout, const Tensors& inputs,
             const CallOptions& options = {});

}  // namespace linnet::check
