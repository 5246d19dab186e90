// The outcome of checking one access against a shadow.
#pragma once

#include <cstdint>

#include "checks/findings.h"

namespace linnet::vgpu {

enum class Access : uint8_t { Read, Write, Atomic };

struct Hazard {
  FindingKind kind = FindingKind::SharedRace;
  Access earlier = Access::Read;
  uint32_t other = 0;  // the other warp (shared memory) or CTA (global memory)
  uint32_t bytes = 0;  // of the cell: those that are wrong
};

}  // namespace linnet::vgpu
