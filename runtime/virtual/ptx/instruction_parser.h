// Parses one instruction with its guard and operands.
#pragma once

#include "ptx/cursor.h"
#include "ptx/function_scope.h"
#include "ptx/module.h"

namespace linnet::vgpu {

// Reads up to and including the semicolon and appends the instruction to the function.
void parse_instruction(Cursor& cursor, Function& function, FunctionScope& scope,
                       const SourceLocation& location);

}  // namespace linnet::vgpu
