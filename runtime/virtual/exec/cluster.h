// A cluster: blocks that run together, meet at barriers and reach into each other's shared memory.
// Blocks outside of clusters are clusters of one.
#pragma once

#include <memory>
#include <vector>

#include "exec/cta.h"

namespace linnet::vgpu {

class Cluster {
 public:
  Cluster(Launch& launch, Counters& counters, uint64_t index);

  // Runs the blocks in turns; true when all have ended, false after `slice` instructions or when
  // they wait for other clusters.
  bool run(uint64_t slice);

  // barrier.cluster: threads arrive; those who wait do so for the phase after the one they saw.
  void arrive(uint32_t threads);
  void lanes_exited() { complete_if_done(); }
  uint64_t phase() const { return phase_; }

  uint32_t size() const { return static_cast<uint32_t>(ctas_.size()); }
  // Null when there is no such block.
  Cta* block(uint32_t rank) { return rank < ctas_.size() ? ctas_[rank].get() : nullptr; }
  Dim3 id{0, 0, 0};

 private:
  void complete_if_done();

  std::vector<std::unique_ptr<Cta>> ctas_;
  std::vector<bool> done_;
  uint32_t arrived_ = 0;
  uint64_t phase_ = 0;
};

// Addresses of the cluster's shared memory: an offset in the block itself, or one with the number
// of another block, plus one, above.
constexpr int kRankShift = 24;
inline uint32_t rank_bits(uint64_t address) {
  return static_cast<uint32_t>(address & ~kWindowMask) >> kRankShift;
}
inline uint32_t offset_bits(uint64_t address) {
  return static_cast<uint32_t>(address) & ((1u << kRankShift) - 1);
}
// The block an address of shared memory belongs to; a fault when the cluster has none such.
Cta& block_of(Warp& warp, int lane, uint64_t address);

}  // namespace linnet::vgpu
