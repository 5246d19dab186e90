// The processor code is made for, and what the emitter wants to know of it.
#pragma once

#include <cstdint>
#include <string>

namespace linnet::cpu {

// What multiplies bf16 with sums in f32, if anything does: dot products of pairs (AVX512_BF16), or
// a matrix unit (AMX).
enum class NarrowUnit { none, dots, tiles };

// What the generated code may assume of the machine.
struct Target {
  std::string cpu;       // LLVM's name, e.g. "znver4"
  std::string features;  // LLVM's list, e.g. "+avx2,+fma"
  int64_t lanes = 4;     // floats of a vector
  bool has_fma = false;
  bool has_f16 = false;  // conversions between f16 and f32
  NarrowUnit narrow_unit = NarrowUnit::none;
  // Whether decode goes over a state by rows: on AMD's processors it runs twice as fast so, on
  // Intel's slower than by blocks of columns.
  bool reads_rows_ahead = false;

  static Target host();
  // A named processor; throws UserError for one LLVM does not know.
  static Target named(const std::string& cpu);
};

}  // namespace linnet::cpu
