// Turns a tile program into machine code: a flat image that runs wherever it is put in memory.
#pragma once

#include "compiler/cpu/kernel.h"

namespace linnet::cpu {

// Throws InternalError if LLVM refuses the code, or if it would need anything outside of itself.
CpuKernel compile(const Programs& programs, const Target& target, const MemoryOptions& memory = {});

// The kernel as assembly for a processor that need not be this one.
std::string assembly_of(const TileProgram& program, const Target& target);

}  // namespace linnet::cpu
