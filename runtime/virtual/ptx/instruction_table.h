// The table of PTX instructions: which modifiers each opcode takes, in which order and with which
// values.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptx/types.h"

namespace linnet::vgpu {

// One place in an opcode's modifier list: `name` is how decoders ask for the value.
struct ModifierSlot {
  std::string_view name;
  bool optional = false;
  std::vector<std::string_view> values;
};

// One legal spelling of an instruction, e.g. add{.rn,...}{.ftz}{.sat}.f32 with its operand count.
struct InstructionForm {
  std::string_view opcode;
  std::vector<ModifierSlot> slots;
  int min_operands = 0;
  int max_operands = 0;
};

// An instruction's form together with the modifiers the text chose.
struct MatchedForm {
  const InstructionForm* form = nullptr;
  std::vector<std::pair<std::string_view, std::string_view>> chosen;

  std::string_view opcode() const { return form->opcode; }
  bool has(std::string_view slot) const { return !get(slot).empty(); }
  // The value chosen for a slot, or "" when it was left out.
  std::string_view get(std::string_view slot) const;
  Type type(std::string_view slot = "type") const { return type_from_name(get(slot)); }
  std::string text() const;  // as written, for messages
};

// Throws PtxError naming the opcode or the modifier that is not known.
MatchedForm match_instruction(std::string_view opcode, std::span<const std::string_view> modifiers,
                              int operand_count, int line);

// Every opcode of the table once, for tests.
std::vector<std::string_view> known_opcodes();

}  // namespace linnet::vgpu
