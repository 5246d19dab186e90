// How tensor copies and warp-group products permute 16-byte pieces of shared memory.
#pragma once

#include <cstdint>

namespace linnet::vgpu {

// `span`: 32, 64 or 128 bytes, in which pieces change places; 0 for none. The bits above the span's
// rows are exchanged into those that number its pieces.
inline uint32_t swizzled(uint32_t address, uint32_t span) {
  return span == 0 ? address : address ^ ((address >> 3) & (span - 16));
}

}  // namespace linnet::vgpu
