// The rows of the instruction table, one legal spelling a row, in the notation of
// instruction_forms.cpp.
#pragma once

#include <span>
#include <string_view>

namespace linnet::vgpu {

// `modifiers` lists slots in order: "rnd?=rn,rz" (optional, two values), "ftz?" (the word itself),
// "type=f32" (required). Operand counts exclude the guard; {vectors}, [addresses] and p|q count
// once.
struct FormText {
  std::string_view opcode;
  std::string_view modifiers;
  int min_operands;
  int max_operands;
};

std::span<const FormText> instruction_forms();

}  // namespace linnet::vgpu
