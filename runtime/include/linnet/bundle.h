// Bundles: kernels compiled ahead, for GPUs that need not be here, in a directory that programs
// run from. A program finds them through DeviceOptions::bundles or LINNET_BUNDLE, and then needs
// neither the compiler nor NVRTC.
#pragma once

#include <filesystem>

#include "linnet/device.h"

namespace linnet {

// What compile_ahead put into a bundle.
struct Bundled {
  std::string key;  // 64 hex digits: what a program looks for
  int kernels = 0;
  size_t bytes = 0;     // of the code
  bool cached = false;  // the code was in the kernel cache already
};

// Compiles an op for a target and adds it to the bundle, a directory that is made if need be.
// Targets are NVIDIA's names: "sm_90", machine code for GPUs of compute capability 9.0; or
// "compute_90", PTX, which the virtual GPU runs, and which drivers compile for 9.0 and all later
// GPUs. Throws UserError for a target or problem that is not known, DeviceError if there is no
// NVRTC, it does not know the target, or the target has too little shared memory.
Bundled compile_ahead(const Problem& problem, const BuildOptions& options,
                      const std::string& target, const std::filesystem::path& bundle);

}  // namespace linnet
