// NVRTC from the Python wheel, loaded at run time: compiles CUDA text to PTX for the tests.
#pragma once

#include <string>

namespace linnet::vgpu::testing {

// PTX with line information; throws std::runtime_error with NVRTC's log, or if the wheel is not
// installed.
std::string compile_cuda(const std::string& source, const std::string& arch = "sm_90",
                         const std::string& file = "kernel.cu");

}  // namespace linnet::vgpu::testing
