#include "ptx/instruction_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "ptx/instruction_forms.h"

namespace linnet::vgpu {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// "rnd?=rn,rz": an optional slot with two values; "ftz?": the word itself; "=sync": required word.
ModifierSlot parse_slot(std::string_view text) {
  ModifierSlot slot;
  const size_t equals = text.find('=');
  slot.name = text.substr(0, equals);
  slot.optional = slot.name.ends_with('?');
  if (slot.optional) slot.name.remove_suffix(1);
  if (equals == std::string_view::npos)
    slot.values = {slot.name};
  else
    slot.values = split(text.substr(equals + 1), ',');
  return slot;
}

InstructionForm parse_form(const FormText& text) {
  InstructionForm form;
  form.opcode = text.opcode;
  form.min_operands = text.min_operands;
  form.max_operands = text.max_operands;
  for (std::string_view slot : split(text.modifiers, ' ')) form.slots.push_back(parse_slot(slot));
  return form;
}

using FormIndex = std::map<std::string_view, std::vector<InstructionForm>>;

const FormIndex& form_index() {
  static const FormIndex index = [] {
    FormIndex built;
    for (const FormText& text : instruction_forms()) built[text.opcode].push_back(parse_form(text));
    return built;
  }();
  return index;
}

// Matches modifiers left to right; `reached` tells how many fitted, for the error message.
bool match_form(const InstructionForm& form, std::span<const std::string_view> modifiers,
                MatchedForm& match, size_t& reached) {
  size_t next = 0;
  match.form = &form;
  match.chosen.clear();
  for (const ModifierSlot& slot : form.slots) {
    const bool fits = next < modifiers.size() && std::find(slot.values.begin(), slot.values.end(),
                                                           modifiers[next]) != slot.values.end();
    if (fits) {
      const auto value = std::find(slot.values.begin(), slot.values.end(), modifiers[next]);
      match.chosen.emplace_back(slot.name, *value);
      ++next;
    } else if (!slot.optional) {
      reached = std::max(reached, next);
      return false;
    }
  }
  reached = std::max(reached, next);
  return next == modifiers.size();
}

std::string written(std::string_view opcode, std::span<const std::string_view> modifiers) {
  std::string text(opcode);
  for (std::string_view modifier : modifiers) text += fmt::format(".{}", modifier);
  return text;
}

}  // namespace

std::string_view MatchedForm::get(std::string_view slot) const {
  for (const auto& [name, value] : chosen)
    if (name == slot) return value;
  return "";
}

std::string MatchedForm::text() const {
  std::string text(opcode());
  for (const auto& [name, value] : chosen) text += fmt::format(".{}", value);
  return text;
}

MatchedForm match_instruction(std::string_view opcode, std::span<const std::string_view> modifiers,
                              int operand_count, int line) {
  const auto found = form_index().find(opcode);
  if (found == form_index().end())
    throw PtxError(line, fmt::format("unknown instruction '{}'", written(opcode, modifiers)));
  MatchedForm match;
  size_t reached = 0;
  bool wrong_count = false;
  for (const InstructionForm& form : found->second) {
    if (!match_form(form, modifiers, match, reached)) continue;
    if (operand_count >= form.min_operands && operand_count <= form.max_operands) return match;
    wrong_count = true;
  }
  const std::string text = written(opcode, modifiers);
  if (wrong_count)
    throw PtxError(line, fmt::format("'{}' does not take {} operands", text, operand_count));
  if (reached < modifiers.size())
    throw PtxError(line, fmt::format("unknown modifier '.{}' in '{}'", modifiers[reached], text));
  throw PtxError(line, fmt::format("'{}' lacks a modifier", text));
}

std::vector<std::string_view> known_opcodes() {
  std::vector<std::string_view> opcodes;
  for (const auto& [opcode, forms] : form_index()) opcodes.push_back(opcode);
  return opcodes;
}

}  // namespace linnet::vgpu
