#include "exec/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "exec/families.h"
#include "exec/lanes.h"
#include "exec/numbers.h"

namespace linnet::vgpu {
namespace {

constexpr uint32_t kSlotAlign = 64;

uint32_t slot_bytes(int value_bytes) {
  const uint32_t bytes = value_bytes == 0 ? 4 : static_cast<uint32_t>(value_bytes) * kLanes;
  return (bytes + kSlotAlign - 1) / kSlotAlign * kSlotAlign;
}

// The bit pattern of a literal as an operand of `type`.
uint64_t literal_bits(const Operand& operand, Type type) {
  if (!operand.is_float) {
    if (type == Type::F32) return std::bit_cast<uint32_t>(static_cast<float>(operand.bits));
    if (type == Type::F64) return std::bit_cast<uint64_t>(static_cast<double>(operand.bits));
    return operand.bits;
  }
  if (operand.is_single && type_bytes(type) == 4) return operand.bits;
  const double value = operand.is_single ? std::bit_cast<float>(static_cast<uint32_t>(operand.bits))
                                         : std::bit_cast<double>(operand.bits);
  if (type == Type::F16) return half_from_float(static_cast<float>(value));
  if (type == Type::BF16) return bfloat_from_float(static_cast<float>(value));
  if (type_bytes(type) == 4) return std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<uint64_t>(value);
}

}  // namespace

void AlignedBytes::Free::operator()(uint8_t* bytes) const {
  ::operator delete[](bytes, std::align_val_t{kSlotAlign});
}

void AlignedBytes::resize_zeroed(size_t bytes) {
  size = bytes;
  data.reset(static_cast<uint8_t*>(
      ::operator new[](std::max<size_t>(bytes, kSlotAlign), std::align_val_t{kSlotAlign})));
  std::memset(data.get(), 0, std::max<size_t>(bytes, kSlotAlign));
}

DecodeFunction find_decoder(std::string_view opcode) {
  static const auto index = [] {
    std::map<std::string_view, DecodeFunction> built;
    for (const auto family : decoder_families())
      for (const DecodeRow& row : family) built[row.opcode] = row.decode;
    return built;
  }();
  const auto found = index.find(opcode);
  return found == index.end() ? nullptr : found->second;
}

Slot param_register_slot(const Function& function, int reg) {
  Slot slot = 0;
  for (int i = 0; i < reg; ++i)
    slot += slot_bytes(type_bytes(function.registers[static_cast<size_t>(i)].type));
  return slot;
}

// ---- OpBuilder ----

void OpBuilder::fail(const std::string& what) const {
  throw PtxError(in.line, fmt::format("{} in '{}'", what, in.form.text()));
}

const Operand& OpBuilder::operand(size_t i) const {
  if (i >= in.operands.size()) fail("missing operand");
  return in.operands[i];
}

void OpBuilder::check_width(const Operand& operand, int bytes) const {
  const Type type = function_.register_type(operand.reg);
  if (type_bytes(type) != bytes)
    fail(fmt::format("register '{}' of type .{} does not fit",
                     function_.function().registers[static_cast<size_t>(operand.reg)].name,
                     type_name(type)));
}

Slot OpBuilder::dst(const Operand& operand, int bytes) {
  if (operand.kind == OperandKind::Sink) return scratch(bytes);
  if (operand.kind != OperandKind::Register || operand.negated) fail("destination is no register");
  check_width(operand, bytes);
  return written(function_.register_slot(operand.reg));
}

Slot OpBuilder::written(Slot slot) {
  writes_.push_back(slot / kSlotAlign);
  return slot;
}

Slot OpBuilder::read(Slot slot) {
  if (!(slot & kConstantSlot)) reads_.push_back(slot / kSlotAlign);
  return slot;
}

void OpBuilder::emit() {
  auto& used = function_.code().used;
  use.first = static_cast<uint32_t>(used.size());
  if (op.guard != kNoSlot) read(op.guard);
  use.reads = static_cast<uint16_t>(reads_.size());
  use.writes = static_cast<uint16_t>(writes_.size());
  used.insert(used.end(), reads_.begin(), reads_.end());
  used.insert(used.end(), writes_.begin(), writes_.end());
  function_.emit(op, use, in);
}

Slot OpBuilder::wide_dst(const Operand& operand, int bytes, int& actual) {
  actual = bytes;
  if (operand.kind == OperandKind::Sink) return scratch(bytes);
  if (operand.kind != OperandKind::Register || operand.negated) fail("destination is no register");
  actual = type_bytes(function_.register_type(operand.reg));
  if (actual < bytes || actual == 0) fail("destination register is too narrow");
  return written(function_.register_slot(operand.reg));
}

Slot OpBuilder::src(const Operand& operand, Type type) {
  int actual = 0;
  const Slot slot = wide_src(operand, type, actual);
  if (operand.kind == OperandKind::Register) check_width(operand, type_bytes(type));
  return slot;
}

Slot OpBuilder::wide_src(const Operand& operand, Type type, int& actual) {
  return read(plain_src(operand, type, actual));
}

Slot OpBuilder::plain_src(const Operand& operand, Type type, int& actual) {
  actual = type_bytes(type);
  if (operand.negated) fail("'!' on an operand that is no predicate");
  switch (operand.kind) {
    case OperandKind::Register: {
      actual = type_bytes(function_.register_type(operand.reg));
      if (actual < type_bytes(type)) fail("source register is too narrow");
      return function_.register_slot(operand.reg);
    }
    case OperandKind::Immediate:
      return constant(literal_bits(operand, type), type_bytes(type));
    case OperandKind::Special:
      return emit_special(*this, operand.text, type_bytes(type));
    case OperandKind::Symbol: {
      const SymbolValue* symbol = function_.find_symbol(operand.text);
      if (!symbol) fail(fmt::format("'{}' is not declared", operand.text));
      const int64_t value = static_cast<int64_t>(symbol->value) + operand.offset;
      if (type_bytes(type) != 4 && type_bytes(type) != 8) fail("an address needs 32 or 64 bits");
      if (symbol->kind == SymbolValue::Kind::DynamicShared)
        return emit_hidden(dynamic_shared_handler(), type_bytes(type), operand.offset);
      if (symbol->kind == SymbolValue::Kind::Local)
        return emit_hidden(local_address_handler(), type_bytes(type), value);
      return constant(static_cast<uint64_t>(value), type_bytes(type));
    }
    default:
      fail("operand of a wrong kind");
  }
}

Slot OpBuilder::pred_dst(const Operand& operand) {
  if (operand.kind == OperandKind::Sink) return scratch(0);
  if (operand.kind != OperandKind::Register || function_.register_type(operand.reg) != Type::Pred ||
      operand.negated)
    fail("destination is no predicate");
  return written(function_.register_slot(operand.reg));
}

Slot OpBuilder::pred_src(const Operand& operand, bool& negated) {
  negated = operand.negated;
  if (operand.kind == OperandKind::Immediate) return constant(operand.bits ? ~uint64_t{0} : 0, 4);
  if (operand.kind != OperandKind::Register || function_.register_type(operand.reg) != Type::Pred)
    fail("operand is no predicate");
  return read(function_.register_slot(operand.reg));
}

uint64_t OpBuilder::immediate(size_t i) const {
  const Operand& value = operand(i);
  if (value.kind != OperandKind::Immediate || value.is_float) fail("operand must be a constant");
  return value.bits;
}

void OpBuilder::address(const Operand& operand, Space space) {
  if (operand.kind != OperandKind::Memory) fail("operand is no address");
  op.imm = operand.offset;
  if (operand.reg >= 0) {
    op.a = read(function_.register_slot(operand.reg));
    op.aux = static_cast<uint16_t>(type_bytes(function_.register_type(operand.reg)));
    const bool narrow = op.aux == 4 && space != Space::Generic && space != Space::Global;
    if (op.aux != 8 && !narrow) fail("address register has a wrong width");
    return;
  }
  op.aux = 8;
  if (operand.text.empty()) {
    op.a = constant(0, 8);
    return;
  }
  Operand symbol = operand;
  symbol.kind = OperandKind::Symbol;
  symbol.offset = 0;
  op.a = src(symbol, Type::U64);
}

Slot OpBuilder::address_value(const Operand& operand) {
  OpBuilder part(function_, in);
  part.address(operand, Space::Shared);
  part.op.run = address_sum_handler();
  part.op.dst = part.written(scratch(8));
  part.op.guard = op.guard;
  part.op.kind = OpClass::Integer;
  part.emit();
  return read(part.op.dst);
}

void OpBuilder::list_add(uint32_t value) {
  auto& lists = function_.code().lists;
  if (op.list_size == 0) op.list = static_cast<uint32_t>(lists.size());
  lists.push_back(value);
  ++op.list_size;
}

void OpBuilder::list_dst(const Operand& operand, int bytes, size_t count) {
  const bool vector = operand.kind == OperandKind::Vector;
  if (!vector && count != 1) fail("operand must be a vector");
  if (vector && operand.elements.size() != count) fail("vector has a wrong number of elements");
  for (size_t i = 0; i < count; ++i) list_add(dst(vector ? operand.elements[i] : operand, bytes));
}

void OpBuilder::list_src(const Operand& operand, Type type, size_t count) {
  const bool vector = operand.kind == OperandKind::Vector;
  if (!vector && count != 1) fail("operand must be a vector");
  if (vector && operand.elements.size() != count) fail("vector has a wrong number of elements");
  for (size_t i = 0; i < count; ++i) list_add(src(vector ? operand.elements[i] : operand, type));
}

Slot OpBuilder::scratch(int bytes) { return function_.scratch(bytes); }
Slot OpBuilder::constant(uint64_t bits, int bytes) { return function_.constant(bits, bytes); }

Slot OpBuilder::emit_hidden(Op hidden, int bytes) {
  OpBuilder front(function_, in);
  front.op = hidden;
  front.op.dst = front.written(scratch(bytes));
  front.emit();
  return front.op.dst;
}

Slot OpBuilder::emit_hidden(Handler run, int bytes, int64_t imm) {
  Op hidden;
  hidden.run = run;
  hidden.width = static_cast<uint8_t>(bytes);
  hidden.imm = imm;
  hidden.kind = OpClass::Move;
  return emit_hidden(hidden, bytes);
}

// ---- FunctionDecoder ----

FunctionDecoder::FunctionDecoder(const Function& function, const ModuleLayout& layout,
                                 const Program& program, Code& code)
    : function_(function), layout_(layout), program_(program), code_(code) {}

void FunctionDecoder::run() {
  layout_registers();
  layout_variables();
  for (const Instruction& instruction : function_.instructions) {
    pc_of_instruction_.push_back(next_pc());
    const DecodeFunction decode = find_decoder(instruction.form.opcode());
    if (!decode)
      throw PtxError(instruction.line,
                     fmt::format("instruction '{}' is not implemented", instruction.form.text()));
    OpBuilder builder(*this, instruction);
    if (instruction.guard >= 0) {
      builder.op.guard = register_slot(instruction.guard);
      builder.op.guard_negated = instruction.guard_negated;
    }
    decode(builder);
    if (builder.op.run) builder.emit();
  }
  pc_of_instruction_.push_back(next_pc());
  // Falling off the end of a body means returning.
  Instruction end;
  end.line = function_.line;
  end.form = match_instruction("ret", {}, 0, function_.line);
  OpBuilder last(*this, end);
  find_decoder("ret")(last);
  last.emit();
  resolve_branches();
  finish_constants();
}

void FunctionDecoder::layout_registers() {
  code_.register_count = static_cast<uint32_t>(function_.registers.size());
  for (const Register& reg : function_.registers) slots_.push_back(scratch(type_bytes(reg.type)));
}

uint32_t FunctionDecoder::place(uint32_t& offset, const Variable& variable) {
  offset = (offset + variable.align - 1) / variable.align * variable.align;
  const uint32_t at = offset;
  if (variable.bytes > (1u << 24) || offset > (1u << 28))
    throw PtxError(variable.line, fmt::format("variable '{}' is too large", variable.name));
  offset += static_cast<uint32_t>(variable.bytes);
  return at;
}

void FunctionDecoder::layout_variables() {
  using Kind = SymbolValue::Kind;
  uint32_t shared = layout_.shared_bytes;
  const auto add = [&](const Variable& variable, Kind kind, uint32_t offset) {
    symbols_[variable.name] = {kind, offset, static_cast<uint32_t>(variable.bytes)};
  };
  const Kind own = function_.is_entry ? Kind::KernelParam : Kind::Param;
  for (const Variable& variable : function_.params) {
    const uint32_t offset = place(code_.param_bytes, variable);
    code_.param_offsets.push_back(offset);
    code_.param_sizes.push_back(static_cast<uint32_t>(variable.bytes));
    add(variable, own, offset);
  }
  for (const Variable& variable : function_.returns) {
    const uint32_t offset = place(code_.param_bytes, variable);
    code_.result_offsets.push_back(offset);
    code_.result_sizes.push_back(static_cast<uint32_t>(variable.bytes));
    add(variable, Kind::Param, offset);
  }
  for (const Variable& variable : function_.locals) {
    if (variable.space == Space::Local)
      add(variable, Kind::Local, place(code_.local_bytes, variable));
    if (variable.space == Space::Param)
      add(variable, Kind::Param, place(code_.param_bytes, variable));
    if (variable.space == Space::Shared) add(variable, Kind::Constant, place(shared, variable));
  }
  code_.static_shared = shared;
  // Shared variables of device functions would need a place in every kernel that calls them; the
  // compiler never emits them, so they are refused rather than overlapped.
  if (!function_.is_entry && shared != layout_.shared_bytes)
    throw PtxError(function_.line,
                   fmt::format("device function '{}' declares shared memory", function_.name));
}

const SymbolValue* FunctionDecoder::find_symbol(std::string_view name) const {
  const auto own = symbols_.find(name);
  if (own != symbols_.end()) return &own->second;
  const auto shared = layout_.symbols.find(name);
  return shared == layout_.symbols.end() ? nullptr : &shared->second;
}

Slot FunctionDecoder::scratch(int bytes) {
  const Slot slot = code_.frame_bytes;
  code_.frame_bytes += slot_bytes(bytes);
  if (code_.frame_bytes > (1u << 28)) throw PtxError(function_.line, "frame is too large");
  return slot;
}

Slot FunctionDecoder::constant(uint64_t bits, int bytes) {
  const auto [entry, fresh] =
      constants_.emplace(std::pair{bits, bytes}, static_cast<Slot>(constant_bytes_.size()));
  if (fresh) {
    const size_t at = constant_bytes_.size();
    constant_bytes_.resize(at + slot_bytes(bytes), 0);
    uint8_t raw[16] = {};
    std::memcpy(raw, &bits, sizeof bits);
    for (size_t lane = 0; lane < kLanes; ++lane)
      std::memcpy(constant_bytes_.data() + at + lane * static_cast<size_t>(bytes), raw,
                  static_cast<size_t>(bytes));
  }
  return entry->second | kConstantSlot;
}

void FunctionDecoder::finish_constants() {
  code_.constants.resize_zeroed(constant_bytes_.size());
  std::copy(constant_bytes_.begin(), constant_bytes_.end(), code_.constants.data.get());
}

int FunctionDecoder::emit(const Op& op, const OpUse& use, const Instruction& instruction) {
  const int pc = next_pc();
  code_.ops.push_back(op);
  code_.uses.push_back(use);
  const std::string text = instruction.form.text();
  const auto [entry, fresh] = text_index_.emplace(text, static_cast<uint32_t>(code_.texts.size()));
  if (fresh) code_.texts.push_back(text);
  code_.sources.push_back({instruction.location, instruction.line, entry->second});
  return pc;
}

void FunctionDecoder::resolve_branches() {
  const auto pc_of_label = [&](int label) {
    const int instruction = function_.labels[static_cast<size_t>(label)];
    return pc_of_instruction_[static_cast<size_t>(instruction)];
  };
  for (const auto& [pc, label] : label_fixes_) {
    const int target = pc_of_label(label);
    code_.ops[static_cast<size_t>(pc)].target = target;
    flows_[pc].targets.push_back(target);
  }
  for (const auto& [pc, labels] : table_fixes_) {
    Op& op = code_.ops[static_cast<size_t>(pc)];
    op.list = static_cast<uint32_t>(code_.lists.size());
    op.list_size = static_cast<uint32_t>(labels.size());
    for (const int label : labels) {
      code_.lists.push_back(static_cast<uint32_t>(pc_of_label(label)));
      flows_[pc].targets.push_back(pc_of_label(label));
    }
  }
  for (const auto& [pc, point] : reconvergence_points(next_pc(), flows_))
    code_.ops[static_cast<size_t>(pc)].reconverge = point;
}

}  // namespace linnet::vgpu
