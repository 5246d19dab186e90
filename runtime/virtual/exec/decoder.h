// Turns parsed instructions into ops: assigns register slots, folds constants, resolves symbols.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/control_flow.h"
#include "exec/program.h"

namespace linnet::vgpu {

// Where a name of the module or of a function lives.
struct SymbolValue {
  enum class Kind : uint8_t {
    Constant,
    DynamicShared,
    Local,
    Param,
    KernelParam
  } kind = Kind::Constant;
  uint64_t value = 0;  // address, or offset within the frame's area
  uint32_t bytes = 0;
};

// Offsets and addresses that all functions of a module share.
struct ModuleLayout {
  std::map<std::string, SymbolValue, std::less<>> symbols;
  uint32_t shared_bytes = 0;
};

class FunctionDecoder;

// The decoder of one instruction works through this: it reads operands and fills `op`.
class OpBuilder {
 public:
  OpBuilder(FunctionDecoder& function, const Instruction& instruction)
      : in(instruction), function_(function) {}

  const Instruction& in;
  Op op;
  OpUse use;  // but for the registers, which are noted as they are asked for

  Type type(std::string_view slot = "type") const { return in.form.type(slot); }
  bool has(std::string_view slot) const { return in.form.has(slot); }
  std::string_view get(std::string_view slot) const { return in.form.get(slot); }
  size_t operands() const { return in.operands.size(); }
  const Operand& operand(size_t i) const;

  // Slots of register operands; `bytes` is the width the handler will access.
  Slot dst(const Operand& operand, int bytes);
  Slot dst(size_t i, Type type) { return dst(operand(i), type_bytes(type)); }
  // A register of at least this width (ld, cvt); `actual` receives its width.
  Slot wide_dst(const Operand& operand, int bytes, int& actual);
  Slot src(const Operand& operand, Type type);
  Slot src(size_t i, Type type) { return src(operand(i), type); }
  Slot wide_src(const Operand& operand, Type type, int& actual);
  Slot pred_dst(const Operand& operand);  // a scratch slot for '_'
  Slot pred_src(const Operand& operand, bool& negated);
  uint64_t immediate(size_t i) const;  // the operand must be an integer literal

  // [base + offset]: base slot in op.a with its width in op.aux, offset in op.imm.
  void address(const Operand& operand, Space space);
  // The same into any slot: returns a 64-bit register slot holding base + offset.
  Slot address_value(const Operand& operand);
  // Appends the registers of {a, b, ...} (or of a single operand) to the op's list.
  void list_dst(const Operand& operand, int bytes, size_t count);
  void list_src(const Operand& operand, Type type, size_t count);
  void list_add(uint32_t value);

  Slot scratch(int bytes);
  Slot constant(uint64_t bits, int bytes);
  // An op in front that fills a scratch slot.
  Slot emit_hidden(Op hidden, int bytes);
  Slot emit_hidden(Handler run, int bytes, int64_t imm);
  FunctionDecoder& function() { return function_; }
  void emit();  // appends the op
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void check_width(const Operand& operand, int bytes) const;
  Slot plain_src(const Operand& operand, Type type, int& actual);
  Slot written(Slot slot);
  Slot read(Slot slot);
  FunctionDecoder& function_;
  std::vector<uint32_t> reads_, writes_;
};

// Slot of a register a function declares in its parameter list, known before it is decoded.
Slot param_register_slot(const Function& function, int reg);

using DecodeFunction = void (*)(OpBuilder& builder);

struct DecodeRow {
  std::string_view opcode;
  DecodeFunction decode;
};

// Null when no family decodes the opcode.
DecodeFunction find_decoder(std::string_view opcode);

class FunctionDecoder {
 public:
  FunctionDecoder(const Function& function, const ModuleLayout& layout, const Program& program,
                  Code& code);
  void run();

  const Function& function() const { return function_; }
  const Program& program() const { return program_; }
  Code& code() { return code_; }
  Slot register_slot(int reg) const { return slots_[static_cast<size_t>(reg)]; }
  Type register_type(int reg) const { return function_.registers[static_cast<size_t>(reg)].type; }
  const SymbolValue* find_symbol(std::string_view name) const;
  Slot constant(uint64_t bits, int bytes);
  Slot scratch(int bytes);
  int emit(const Op& op, const OpUse& use, const Instruction& instruction);
  // Branch targets are labels until all instructions have their place.
  void add_flow(int pc, Flow flow) { flows_[pc] = std::move(flow); }
  int next_pc() const { return static_cast<int>(code_.ops.size()); }
  void branch_to_label(int pc, int label) { label_fixes_.emplace_back(pc, label); }
  void table_of_labels(int pc, const std::vector<int>& labels) { table_fixes_[pc] = labels; }

 private:
  void layout_registers();
  void layout_variables();
  void resolve_branches();
  void finish_constants();
  uint32_t place(uint32_t& offset, const Variable& variable);

  const Function& function_;
  const ModuleLayout& layout_;
  const Program& program_;
  Code& code_;
  std::vector<Slot> slots_;
  std::map<std::string, SymbolValue, std::less<>> symbols_;
  std::map<std::pair<uint64_t, int>, Slot> constants_;
  std::vector<uint8_t> constant_bytes_;
  std::map<int, Flow> flows_;
  std::vector<int> pc_of_instruction_;
  std::vector<std::pair<int, int>> label_fixes_;
  std::map<int, std::vector<int>> table_fixes_;
  std::map<std::string, uint32_t> text_index_;
};

}  // namespace linnet::vgpu
