// NVRTC from the Python wheel, loaded at run time: compiles CUDA text to PTX for the tests.
#pragma once

#include <string>

namespace linnet::vgpu::testing {

// True when the wheel is installed; tests that need it are skipped with a message otherwise.
bool nvrtc_available();
// PTX with line information; throws std::runtime_error with NVRTC's log.
std::string compile_cuda(const std::string& source, const std::string& arch = "sm_90",
                         const std::string& file = "kernel.cu");

}  // namespace linnet::vgpu::testing
