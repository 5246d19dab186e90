// mbarrier objects in shared memory, and the bulk copies that complete on them.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/program.h"

namespace linnet::vgpu {

class Cta;

// A cp.async.bulk into shared memory whose bytes have been read but have not landed.
struct BulkCopy {
  uint32_t shared_address = 0;
  uint32_t warp = 0;
  uint32_t span = 0;    // of the swizzle (exec/swizzle.h)
  bool remote = false;  // another block of the cluster asked for it
  std::vector<uint8_t> data;
};

// The program sees only an opaque 64-bit word; its fields live here, keyed by the word's address.
struct Mbarrier {
  uint32_t expected = 0;     // arrivals of every phase
  uint32_t pending = 0;      // arrivals the current phase still waits for
  int64_t transactions = 0;  // bytes announced and not yet copied
  uint64_t phase = 0;
  std::vector<BulkCopy> copies;       // land when somebody looks whether the phase is over
  std::vector<uint32_t> clock;        // of those that arrived in the current phase
  std::vector<uint32_t> phase_clock;  // of the last completed phase

  // Starts the next phase when nothing is awaited any more.
  void complete_if_done() {
    if (pending != 0 || transactions != 0 || expected == 0) return;
    ++phase;
    pending = expected;
    phase_clock = clock;
  }
};

// The object at a shared address of the running lane; a fault when it was never initialised.
Mbarrier& find_mbarrier(Warp& warp, int lane, uint64_t address);
// `count` arrivals of one lane; its warp's past is now visible to those who wait for the phase.
void arrive_mbarrier(Warp& warp, int lane, uint64_t address, uint32_t count);
// Generic addresses of shared memory are accepted as well as offsets.
uint64_t shared_offset(uint64_t address);

}  // namespace linnet::vgpu
