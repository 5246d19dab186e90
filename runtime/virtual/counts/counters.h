// What a launch did: how often each instruction was issued and what its memory accesses cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/program.h"

namespace linnet::vgpu {

// Memory traffic of one instruction, summed over its issues.
struct MemoryCount {
  uint64_t lanes = 0;    // active lanes
  uint64_t bytes = 0;    // asked for by the lanes
  uint64_t units = 0;    // 32-byte sectors (global, local) or wavefronts (shared)
  uint64_t minimum = 0;  // the same for a perfect access pattern

  void add(const MemoryCount& other) {
    lanes += other.lanes;
    bytes += other.bytes;
    units += other.units;
    minimum += other.minimum;
  }
};

// Bytes of global memory that a launch read or wrote at least once: what it must move even with a
// perfect cache. Known only while checks are on.
struct FirstTouches {
  uint64_t read = 0;
  uint64_t written = 0;
};

struct Counters {
  std::vector<uint64_t> issued;  // by op, over all functions of the program
  std::vector<MemoryCount> memory;
  FirstTouches touches;
  uint64_t block_clocks = 0;  // modelled: how long one block takes alone (exec/timeline.h)

  void reset(uint32_t ops);
  void add(const Counters& other);
};

// Distinct 32-byte sectors touched by the lanes of `mask`.
uint32_t count_sectors(const uint64_t* addresses, uint32_t bytes, uint32_t mask);
// Passes the shared memory needs for the access, and the fewest it could have needed.
struct Wavefronts {
  uint32_t count = 0;
  uint32_t minimum = 0;
};
Wavefronts count_wavefronts(const uint64_t* addresses, uint32_t bytes, uint32_t mask);

}  // namespace linnet::vgpu
