// Parses the text of a PTX module.
#pragma once

#include <string_view>

#include "ptx/module.h"

namespace linnet::vgpu {

// Throws PtxError with the line of whatever it does not understand; nothing is skipped silently
// except comments and the contents of debug sections.
Module parse_module(std::string_view source);

}  // namespace linnet::vgpu
