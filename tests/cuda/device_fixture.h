// A hand-written kernel on the virtual GPU: f32 arrays in, f32 arrays out.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "linnet/device.h"
#include "linnet/error.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/nvrtc.h"
#include "templates/embedded.h"

namespace linnet::testing {

// The device these tests run on: LINNET_TEST_DEVICE, or a virtual one; as the driver layer and as
// callers have it.
inline std::string test_device_name() {
  const char* chosen = std::getenv("LINNET_TEST_DEVICE");
  return chosen ? chosen : "virtual:sm_80";
}
inline std::shared_ptr<cuda::Device> test_device() {
  static std::shared_ptr<cuda::Device> device = cuda::Device::open(test_device_name());
  return device;
}
inline const Device& gpu() {
  static const Device device = Device::open(test_device_name());
  return device;
}

inline bool everything() { return std::getenv("LINNET_TEST_ALL"); }

// Runs `kernel(const float* in..., float* out)` in one block.
inline std::vector<float> run_kernel(const std::string& source, int warps, int shared_bytes,
                                     const std::vector<std::vector<float>>& inputs,
                                     size_t output_size) {
  auto device = test_device();
  cuda::Module module(
      device, cuda::Nvrtc::get().compile(source, "test.cu", device->arch(), embedded_templates()));
  std::vector<cuda::Buffer> buffers;
  for (const auto& input : inputs) {
    buffers.emplace_back(device, input.size() * 4);
    buffers.back().copy_from(input.data(), input.size() * 4);
  }
  std::vector<float> output(output_size, -1e30f);
  buffers.emplace_back(device, output_size * 4);
  buffers.back().copy_from(output.data(), output_size * 4);
  std::vector<cuda::DevicePointer> addresses;
  for (const auto& buffer : buffers) addresses.push_back(buffer.address());
  std::vector<void*> parameters;
  for (auto& address : addresses) parameters.push_back(&address);
  cuda::launch(module, "kernel", 1, 32 * warps, shared_bytes, parameters);
  device->synchronise();
  buffers.back().copy_to(output.data(), output_size * 4);
  return output;
}

}  // namespace linnet::testing
