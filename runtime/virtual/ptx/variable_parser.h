// Parses variable and parameter declarations with their sizes, alignment and initialisers.
#pragma once

#include "ptx/cursor.h"
#include "ptx/module.h"

namespace linnet::vgpu {

// `.align 8 .b8 name[32]` after the state space word; stops before ',', ')' or ';'.
Variable parse_variable(Cursor& cursor, Space space, bool allow_initialiser);

}  // namespace linnet::vgpu
