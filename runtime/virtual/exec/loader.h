// Loads a PTX module: parses it, places its variables in device memory and decodes its functions.
#pragma once

#include <memory>
#include <string_view>

#include "exec/program.h"

namespace linnet::vgpu {

// Throws PtxError for text it does not understand, std::bad_alloc when device memory is exhausted.
std::unique_ptr<Program> load_program(std::string_view ptx, DeviceMemory& memory);

}  // namespace linnet::vgpu
