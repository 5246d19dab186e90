// The processor code is made for, and what the emitter wants to know of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "linnet/schedule.h"

namespace linnet::cpu {

// What multiplies bf16 with sums in f32, if anything does: dot products of pairs (AVX512_BF16), or
// a matrix unit (AMX).
enum class NarrowUnit { none, dots, tiles };

// What the generated code may assume of the machine.
struct Target {
  std::string cpu;       // LLVM's name, e.g. "znver4"
  std::string features;  // LLVM's list, e.g. "+avx2,+fma"
  bool by_name = false;  // asked for, not found here
  int64_t lanes = 4;     // floats of a vector
  int64_t vector_registers = 16;
  bool has_fma = false;
  bool has_f16 = false;  // conversions between f16 and f32
  NarrowUnit narrow_unit = NarrowUnit::none;
  // Whether decode goes over a state by rows: on AMD's processors it runs twice as fast so, on
  // Intel's slower than by blocks of columns.
  bool reads_rows_ahead = false;
  bool stores_past_caches = false;  // whole vectors, to memory and not into a cache
  // Which cache lines are asked ahead into, 1 or 2: the first has room on a Zen 5 (48 KB), where
  // what comes from memory runs up to 12 % faster so.
  int64_t ahead_into = 2;

  // Rows of a block of sums in registers, beside a row of the factor they are made of and the
  // number it is multiplied by.
  int64_t block_rows(const Schedule& schedule) const {
    constexpr int64_t kMost = 8;  // more gain nothing, and divide fewer tiles
    if (schedule.register_rows > 0) return schedule.register_rows;
    int64_t vectors = schedule.register_vectors, sums = vector_registers - 1 - vectors;
    return std::clamp<int64_t>(sums / vectors, 1, kMost);
  }

  static Target host();
  // A named processor; throws UserError for one LLVM does not know.
  static Target named(const std::string& cpu);
};

}  // namespace linnet::cpu
