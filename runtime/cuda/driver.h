// The CUDA Driver API, resolved at run time: NVIDIA's libcuda or the virtual GPU's, called alike.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/cuda/library.h"
#include "runtime/virtual/linnet_virtual.h"

namespace linnet::cuda {

using Handle = void*;
using DevicePointer = unsigned long long;

// Numbers of the Driver API's enums that Linnet uses.
enum : int {
  kMaxSharedBytesPerBlockOptin = 97,  // of a device
  kProcessors = 16,
  kSecondCacheBytes = 38,
  kMaxThreadsPerProcessor = 39,
  kMaxSharedBytesPerProcessor = 81,
  kMaxBlocksPerProcessor = 106,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kFunctionSharedBytes = 1,  // of a function
  kFunctionLocalBytes = 3,
  kFunctionRegisters = 4,
  kFunctionMaxDynamicSharedBytes = 8,
};

struct Driver {
#define LINNET_DRIVER_FUNCTION(name, parameters) int(*name) parameters;
#include "runtime/cuda/driver_api.def"
#undef LINNET_DRIVER_FUNCTION

  // What only the virtual GPU has; null otherwise.
  int (*virtual_set)(const char*, const char*) = nullptr;
  const char* (*virtual_last_error)() = nullptr;
  const char* (*virtual_findings)() = nullptr;
  const char* (*virtual_counts)() = nullptr;
  int (*virtual_launches)(linnet_virtual_launch*, int) = nullptr;
  void (*virtual_reset)() = nullptr;

  explicit Driver(const std::filesystem::path& path);
  // Throws DeviceError that says what was tried and what the driver answered.
  void check(int result, const std::string& what) const;

 private:
  Library library_;
};

}  // namespace linnet::cuda
