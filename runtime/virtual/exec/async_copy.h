// Copies that were issued but have not landed: cp.async groups and bulk copies of one warp.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace linnet::vgpu {

// One thread's 4, 8 or 16 byte cp.async; the bytes were read when it was issued and land at the
// wait.
struct PendingCopy {
  uint32_t shared_address = 0;
  uint8_t bytes = 0;
  std::array<uint8_t, 16> data{};
};

// Per lane: copies since the last commit, then the committed groups, oldest first.
struct AsyncCopies {
  struct Lane {
    std::vector<PendingCopy> open;
    std::vector<std::vector<PendingCopy>> groups;
  };
  std::array<Lane, 32> lanes;
};

}  // namespace linnet::vgpu
