#include "ptx/function_scope.h"

#include <fmt/format.h>

#include <charconv>

namespace linnet::vgpu {
namespace {

// Damaged text must not make the loader allocate without bound.
constexpr size_t kMaxRegisters = 1u << 18;

}  // namespace

void FunctionScope::close(int line) {
  Block block = std::move(blocks_.back());
  blocks_.pop_back();
  for (LabelUse& use : block.uses) {
    const auto found = block.labels.find(use.name);
    if (found != block.labels.end())
      resolve(use, found->second);
    else if (blocks_.empty())
      throw PtxError(use.line ? use.line : line,
                     fmt::format("label '{}' is not defined", use.name));
    else
      blocks_.back().uses.push_back(std::move(use));
  }
}

void FunctionScope::resolve(const LabelUse& use, int label) {
  if (use.instruction < 0) {
    function_.branch_tables[use.table][static_cast<size_t>(use.operand)] = label;
    return;
  }
  Operand& operand = function_.instructions[static_cast<size_t>(use.instruction)]
                         .operands[static_cast<size_t>(use.operand)];
  operand.kind = OperandKind::Label;
  operand.reg = label;
}

int FunctionScope::add_registers(const std::string& name, int count, Type type, int line) {
  const size_t first = function_.registers.size();
  if (first + static_cast<size_t>(std::max(count, 1)) > kMaxRegisters)
    throw PtxError(line, fmt::format("function '{}' declares too many registers", function_.name));
  if (count == 0) function_.registers.push_back({name, type});
  for (int i = 0; i < count; ++i)
    function_.registers.push_back({fmt::format("{}{}", name, i), type});
  return static_cast<int>(first);
}

void FunctionScope::declare_register(const std::string& name, Type type, int line) {
  blocks_.back().registers[name] = {add_registers(name, 0, type, line), 0};
}

void FunctionScope::declare_register_range(const std::string& prefix, int count, Type type,
                                           int line) {
  blocks_.back().registers[prefix] = {add_registers(prefix, count, type, line), count};
}

int FunctionScope::find_register(std::string_view name) const {
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    const auto exact = block->registers.find(name);
    if (exact != block->registers.end() && exact->second.count == 0) return exact->second.first;
    // "%r12" may be number 12 of %r<..> or number 2 of %r1<..>: try every split.
    for (size_t split = digits; split < name.size(); ++split) {
      const auto range = block->registers.find(name.substr(0, split));
      if (range == block->registers.end() || range->second.count == 0) continue;
      int number = -1;
      const auto parsed = std::from_chars(name.data() + split, name.data() + name.size(), number);
      if (parsed.ec == std::errc() && number < range->second.count)
        return range->second.first + number;
    }
  }
  return -1;
}

void FunctionScope::declare_variable(Variable variable) {
  const std::string name = variable.name;
  const int use = variable_uses_[name]++;
  if (use > 0) variable.name = fmt::format("{}#{}", name, use);
  blocks_.back().variables[name] = variable.name;
  function_.locals.push_back(std::move(variable));
}

std::string FunctionScope::find_variable(std::string_view name) const {
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    const auto found = block->variables.find(name);
    if (found != block->variables.end()) return found->second;
  }
  return "";
}

void FunctionScope::define_label(const std::string& name, int line) {
  const int label = static_cast<int>(function_.labels.size());
  if (!blocks_.back().labels.emplace(name, label).second)
    throw PtxError(line, fmt::format("label '{}' is defined twice", name));
  function_.labels.push_back(static_cast<int>(function_.instructions.size()));
  function_.label_names.push_back(name);
}

void FunctionScope::use_label(const std::string& name, int instruction, int operand, int line) {
  blocks_.back().uses.push_back({name, instruction, operand, "", line});
}

void FunctionScope::define_branch_table(const std::string& name,
                                        const std::vector<std::string>& targets, int line) {
  if (!function_.branch_tables.emplace(name, std::vector<int>(targets.size(), -1)).second)
    throw PtxError(line, fmt::format("branch table '{}' is defined twice", name));
  for (size_t i = 0; i < targets.size(); ++i)
    blocks_.back().uses.push_back({targets[i], -1, static_cast<int>(i), name, line});
}

}  // namespace linnet::vgpu
