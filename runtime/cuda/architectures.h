// The GPU architectures there are, with what bounds how many blocks run at once on each: from the
// CUDA programming guide's table of technical specifications per compute capability.
#pragma once

#include <span>
#include <string>

namespace linnet::cuda {

struct Architecture {
  int number;                           // 90: compute capability 9.0
  int shared_per_sm, shared_per_block;  // bytes; of a block: the most it may ask for
  int threads_per_sm, blocks_per_sm;
};

inline constexpr int kOldestArchitecture = 80;  // the first with what the templates use
inline constexpr int kRegistersPerSm = 65536;
inline constexpr int kSharedReserved = 1024;  // bytes of each block, the system's

// From the oldest on.
std::span<const Architecture> architectures();
// Of "sm_90" or "compute_90"; throws UserError with the names there are.
const Architecture& find_architecture(const std::string& target);

// Blocks of a kernel that run on one SM at a time.
int blocks_at_once(const Architecture& architecture, int threads, int registers, int shared_bytes);

}  // namespace linnet::cuda
