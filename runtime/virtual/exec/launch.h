// One kernel launch: its geometry and everything its CTAs share, and the function that runs it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "checks/findings.h"
#include "checks/global_shadow.h"
#include "counts/counters.h"
#include "exec/program.h"
#include "memory/device_memory.h"
#include "profile.h"
#include "settings.h"

namespace linnet::vgpu {

using Dim3 = std::array<uint32_t, 3>;

struct Launch {
  const Program* program = nullptr;
  const Code* kernel = nullptr;
  Dim3 grid{1, 1, 1};
  Dim3 block{1, 1, 1};
  Dim3 cluster{1, 1, 1};  // blocks; divides the grid
  uint32_t dynamic_shared = 0;
  std::vector<uint8_t> params;

  Settings settings;
  const DeviceProfile* profile = nullptr;
  DeviceMemory* memory = nullptr;
  Findings* findings = nullptr;
  uint16_t serial = 1;  // tells launches apart in the shadow of global memory

  // Set by run_launch.
  std::shared_ptr<const RegionTable> regions;
  std::unique_ptr<GlobalShadow> shadow;  // null when checks are off
  uint32_t dynamic_shared_offset = 0;
  std::atomic<uint64_t> finding_count{0};

  uint32_t threads() const { return block[0] * block[1] * block[2]; }
  uint64_t ctas() const { return uint64_t{grid[0]} * grid[1] * grid[2]; }
  uint64_t clusters() const { return ctas() / (cluster[0] * cluster[1] * cluster[2]); }
  uint32_t shared_bytes() const { return dynamic_shared_offset + dynamic_shared; }
};

// Runs every CTA to its end and returns the counts; throws KernelFault when one of them fails.
Counters run_launch(Launch& launch);

}  // namespace linnet::vgpu
