// A tile program as a function of vector code: what the CPU back end compiles.
#pragma once

#include <string>
#include <vector>

#include "compiler/cpu/target.h"
#include "compiler/tile/program.h"
#include "linnet/compiler.h"

namespace linnet::cpu {

// What the caller's memory looks like, beyond the graph.
struct MemoryOptions {
  bool state_v_first = false;  // states are [V, K]
  bool grouped = false;        // gradients of what value heads share leave in f32, to be summed
  // Of all blocks, where loops that carry something have blocks of them.
  int64_t value_channels = 0;
};

// What is emitted: a program, and maybe the same of a block of value channels, of which the loops
// that carry something are taken then.
struct Programs {
  const TileProgram& whole;
  const TileProgram* block = nullptr;
  const TileProgram& of(const Loop& loop) const { return loop.scan && block ? *block : whole; }
};

// Emits the functions of a kernel into `module`, named entry0, entry1, ...: one for all loops, or
// one a loop where stages are not fused. The kernel has everything but its code.
CpuKernel emit_kernel(mlir::ModuleOp module, const Programs& programs, const Target& target,
                      const MemoryOptions& memory);

}  // namespace linnet::cpu
