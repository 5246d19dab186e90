// Checks a launch against the device's limits, copies its parameters and runs it.
#pragma once

#include "driver/state.h"

namespace linnet::vgpu::driver {

struct LaunchRequest {
  FunctionHandle* function = nullptr;
  Dim3 grid{1, 1, 1};
  Dim3 block{1, 1, 1};
  Dim3 cluster{1, 1, 1};
  uint32_t dynamic_shared = 0;
  std::vector<uint8_t> params;
};

// Throws DriverError for a launch the device would refuse.
LaunchRequest make_request(State& state, FunctionHandle* function, const Dim3& grid,
                           const Dim3& block, const Dim3& cluster, unsigned shared_bytes,
                           void** params, void** extra);
// Runs the kernel; what goes wrong in it is reported by later calls, as on a device.
void run_request(State& state, const LaunchRequest& request);

// Registers the compiler would use, guessed from the virtual ones: ptxas is not here to ask.
int estimated_registers(const Code& code);
int max_threads(const Code& code);

}  // namespace linnet::vgpu::driver
