// The counts of a launch as numbers for programs and as text for people.
#pragma once

#include <string>

#include "counts/counters.h"
#include "linnet_virtual.h"

namespace linnet::vgpu {

struct LaunchReport {
  std::string kernel;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  const Program* program = nullptr;
  Counters counters;
};

linnet_virtual_launch launch_record(const LaunchReport& report);
// One object a launch: totals by class, memory, and a list of source lines with their counts.
std::string report_json(const LaunchReport& report);

}  // namespace linnet::vgpu
