// printf and assert called by device code.
#pragma once

#include <cstdint>

#include "exec/warp.h"

namespace linnet::vgpu {

// Prints to stdout what a lane's vprintf(format, arguments) asks for; the number of arguments.
uint32_t device_printf(Warp& warp, int lane, uint64_t format, uint64_t arguments);
[[noreturn]] void report_assert(Warp& warp, int lane, uint64_t message, uint64_t file);

}  // namespace linnet::vgpu
