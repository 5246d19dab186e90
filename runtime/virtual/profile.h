// Device profiles: the properties of the GPUs the virtual device can pose as.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace linnet::vgpu {

struct DeviceProfile {
  std::string arch;  // "sm_90"
  std::string name;
  int major = 0;
  int minor = 0;
  int sm_count = 0;
  int clock_khz = 0;
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  uint64_t memory_bytes = 0;
  int l2_bytes = 0;
  int shared_per_sm = 0;
  int shared_per_block = 0;  // without opting in
  int shared_per_block_optin = 0;
  int shared_reserved = 0;  // per block, by the system
  int registers_per_sm = 0;
  int registers_per_block = 0;
  int threads_per_sm = 0;
  int blocks_per_sm = 0;
  int bandwidth_gbs = 0;
  int l2_gbs = 0;
  int tensor_bf16_tflops = 0;  // dense
  int mma_sync_percent = 100;  // of that rate, what mma.sync can reach; the rest needs wgmma
  int fp32_tflops = 0;
  int fp32_lanes = 128;       // of one SM, a clock
  int integer_lanes = 64;     // the same
  int latency_global = 0;     // clocks, from memory
  int latency_shared = 0;     // clocks
  int latency_mma = 0;        // clocks, m16n8k16
  int latency_launch_ns = 0;  // from one kernel of a stream to the next
  int cluster_launch = 0;     // from compute capability 9.0 on
  int mma_block = 0;          // products summed at once by the tensor core
  int mma_extra_bits = 0;     // fraction bits kept beyond the 23 of fp32
};

// All embedded profiles, in the order of their architecture.
const std::vector<DeviceProfile>& device_profiles();
// Null when there is no profile of that name.
const DeviceProfile* find_profile(const std::string& arch);

}  // namespace linnet::vgpu
