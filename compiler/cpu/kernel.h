// A tile program as a function of vector code: what the CPU back end compiles.
#pragma once

#include <string>
#include <vector>

#include "compiler/tile/program.h"

namespace linnet::cpu {

// What the generated code may assume of the machine.
struct Target {
  std::string cpu;       // LLVM's name, e.g. "znver4"
  std::string features;  // LLVM's list, e.g. "+avx2,+fma"
  int64_t lanes = 4;     // floats of a vector

  static Target host();
  // A named processor; throws UserError for one LLVM does not know.
  static Target named(const std::string& cpu);
};

// One argument as the kernel sees it: a pointer to the first row of one sequence and head, and the
// step between tokens.
struct Argument {
  std::string name;
  chunk::Scope scope;
  bool key_heads, is_output;
  chunk::Precision storage;  // in the kernel's memory
  chunk::Precision result;   // what a summed output is rounded to in the end
  int64_t row;               // numbers of one token, or of the whole tile for other scopes
};

// The function `void name(const int64_t* arguments)`:
//   arguments[0] tokens of the sequence, [1] scratch, [2] workspace, then pointer and row step for
//   each argument.
struct Signature {
  std::string name;
  std::vector<Argument> arguments;
  int64_t scratch_floats = 0;
  int64_t workspace_floats_per_chunk = 0;
  int64_t chunk = 0;
};

// Emits the kernel into `module`.
Signature emit_kernel(mlir::ModuleOp module, const TileProgram& program, const Target& target);

}  // namespace linnet::cpu
