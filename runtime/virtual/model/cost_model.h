// A kernel's time on a GPU that is not here, modelled from what the virtual GPU counted.
//
//   t = launch + max(DRAM, L2, tensor, shared, issue, latency)
//
// docs/virtual-gpu.md has the formula of each part and how far it is from published times.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "linnet_virtual.h"
#include "profile.h"

namespace linnet::vgpu {

// The counts of one launch, of a run or scaled from one: doubles, since large ones are scaled.
struct KernelCounts {
  std::string kernel;
  int threads = 0;       // of a block
  int shared_bytes = 0;  // of a block
  std::array<double, LINNET_COUNTS> counts{};

  explicit KernelCounts(const linnet_virtual_launch& launch);
  double operator[](linnet_virtual_count which) const { return counts[which]; }
  // Bytes between L2 and the SMs, and those that have to come from or go to memory.
  double bytes_moved() const;
  double bytes_compulsory() const;
};

// What ptxas says of a kernel.
struct KernelResources {
  int registers = 0;  // of a thread; 0: not known, 128 are assumed
  int spilled_bytes = 0;
};
// From the log of a compilation with --ptxas-options=-v.
KernelResources resources_of(const std::string& log, const std::string& kernel);

enum class Bound { dram, l2, tensor, shared, issue, latency, launch };
constexpr int kBounds = 7;
const char* name_of(Bound bound);

struct Cost {
  double seconds = 0;
  Bound bound = Bound::launch;          // the largest part
  std::array<double, kBounds> parts{};  // seconds, by Bound
  int blocks_per_sm = 0;                // resident at a time
};

Cost model_cost(const DeviceProfile& profile, const KernelCounts& counts,
                const KernelResources& resources);

}  // namespace linnet::vgpu
