// Turns something a warp did wrong into a finding with its source line, thread and block.
#pragma once

#include <cstdint>
#include <string>

#include "checks/findings.h"
#include "exec/warp.h"

namespace linnet::vgpu {

// Ends the kernel.
[[noreturn]] void fault(const Warp& warp, FindingKind kind, int lane, uint64_t address,
                        const std::string& text);
// Records a finding; the kernel goes on.
void report(const Warp& warp, FindingKind kind, int lane, uint64_t address,
            const std::string& text);
// As `report`, for an instruction other than the one being executed.
void report_at(const Warp& warp, const Code& code, int pc, FindingKind kind, int lane,
               uint64_t address, const std::string& text);

}  // namespace linnet::vgpu
