// Branches, calls, returns, traps and instructions that only matter for timing.
#include <fmt/format.h>

#include "exec/cta.h"
#include "exec/device_printf.h"
#include "exec/families.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

void branch(Warp& warp, const Op& op, uint32_t mask) {
  warp.branch(mask, op.target, op.reconverge);
}

void decode_bra(OpBuilder& b) {
  b.op.kind = OpClass::Control;
  b.op.run = branch;
  const int pc = b.function().next_pc();
  b.function().branch_to_label(pc, b.operand(0).reg);
  b.function().add_flow(pc, {{}, b.in.guard >= 0, false});
}

void branch_indexed(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* index = warp.src<uint32_t>(op.a);
  int32_t targets[kLanes] = {};
  active_lanes(mask, [&](int lane) {
    if (index[lane] >= op.list_size)
      fault(warp, FindingKind::IllegalInstruction, lane, index[lane],
            fmt::format("branch index {} of {} targets", index[lane], op.list_size));
    targets[lane] = static_cast<int32_t>(warp.list(op)[index[lane]]);
  });
  warp.branch_many(mask, targets, op.reconverge);
}

void decode_brx(OpBuilder& b) {
  b.op.kind = OpClass::Control;
  b.op.a = b.src(0, Type::U32);
  b.op.run = branch_indexed;
  const auto& tables = b.function().function().branch_tables;
  const auto table = tables.find(b.operand(1).text);
  if (table == tables.end())
    b.fail(fmt::format("branch table '{}' is not declared", b.operand(1).text));
  const int pc = b.function().next_pc();
  b.function().table_of_labels(pc, table->second);
  b.function().add_flow(pc, {{}, b.in.guard >= 0, false});
}

void leave(Warp& warp, const Op&, uint32_t mask) { warp.leave(mask); }
void exit_lanes(Warp& warp, const Op&, uint32_t mask) { warp.exit(mask); }

void decode_leave(OpBuilder& b) {
  b.op.kind = OpClass::Control;
  b.op.run = b.in.form.opcode() == "ret" ? leave : exit_lanes;
  b.function().add_flow(b.function().next_pc(), {{}, b.in.guard >= 0, true});
}

void trap(Warp& warp, const Op&, uint32_t mask) {
  fault(warp, FindingKind::Trap, std::countr_zero(mask), 0, "the kernel executed a trap");
}

void decode_trap(OpBuilder& b) {
  b.op.kind = OpClass::Control;
  b.op.run = trap;
}

void nothing(Warp&, const Op&, uint32_t) {}
void yield(Warp& warp, const Op&, uint32_t) { warp.yield(); }

void decode_hint(OpBuilder& b) {
  b.op.kind = OpClass::Other;
  b.op.run = b.in.form.opcode() == "nanosleep" ? yield : nothing;
  if (b.in.form.opcode() == "nanosleep") b.op.a = b.src(0, Type::U32);
}

// ---- Calls ----

void call(Warp& warp, const Op& op, uint32_t mask) {
  const CallSite& site = warp.code->calls[static_cast<size_t>(op.imm)];
  if (site.builtin == Builtin::None) return warp.call(site, site.callee, mask);
  const std::vector<uint32_t>& arguments = site.builtin_arguments;
  active_lanes(mask, [&](int lane) {
    const auto pointer = [&](size_t i) {
      uint64_t value = 0;
      std::memcpy(&value, warp.params(lane) + arguments[i], sizeof value);
      return value;
    };
    if (site.builtin == Builtin::AssertFail) report_assert(warp, lane, pointer(0), pointer(1));
    const uint32_t printed = device_printf(warp, lane, pointer(0), pointer(1));
    if (!site.results.empty())
      std::memcpy(warp.params(lane) + site.results[0].caller, &printed, sizeof printed);
  });
}

// Lanes may call different functions; each group calls its own.
void call_indirect(Warp& warp, const Op& op, uint32_t mask) {
  const uint64_t* address = warp.src<uint64_t>(op.a);
  const CallSite& site = warp.code->calls[static_cast<size_t>(op.imm)];
  const uint64_t first = address[std::countr_zero(mask)];
  uint32_t same = 0;
  active_lanes(mask, [&](int lane) { same |= address[lane] == first ? 1u << lane : 0u; });
  const uint64_t index = first - kFunctionWindow;
  if (index >= warp.launch.program->codes.size())
    fault(warp, FindingKind::IllegalInstruction, std::countr_zero(mask), first,
          "call of an address that is no function");
  const Code& callee = *warp.launch.program->codes[index];
  if (callee.param_offsets.size() != site.arguments.size() ||
      callee.result_offsets.size() != site.results.size())
    fault(warp, FindingKind::IllegalInstruction, std::countr_zero(mask), first,
          fmt::format("call of '{}' with other parameters than it takes", callee.name));
  if (same != mask) {
    // The other lanes execute this call again, after these have returned.
    const int again = warp.pc - 1;
    warp.branch(mask & ~same, again, warp.pc);
  }
  warp.call(site, static_cast<int>(index), same);
}

uint32_t param_offset(OpBuilder& b, const Operand& argument) {
  const SymbolValue* symbol = b.function().find_symbol(argument.text);
  if (!symbol || symbol->kind != SymbolValue::Kind::Param)
    b.fail(fmt::format("argument '{}' is no parameter", argument.text));
  return static_cast<uint32_t>(symbol->value);
}

// Copies from (or to) the caller's operands, to (or from) offsets or registers of the callee.
std::vector<ParamCopy> copies(OpBuilder& b, const Operand* list,
                              const std::vector<Variable>& shapes) {
  std::vector<ParamCopy> result;
  const size_t count = list ? list->elements.size() : 0;
  if (count != shapes.size()) b.fail("call has a wrong number of arguments");
  uint32_t offset = 0;
  for (size_t i = 0; i < count; ++i) {
    const Operand& argument = list->elements[i];
    ParamCopy copy;
    copy.bytes = static_cast<uint32_t>(shapes[i].bytes);
    offset = (offset + shapes[i].align - 1) / shapes[i].align * shapes[i].align;
    copy.callee = offset;
    offset += copy.bytes;
    copy.caller_is_register =
        argument.kind == OperandKind::Register || argument.kind == OperandKind::Immediate;
    if (copy.caller_is_register)
      copy.caller = b.src(argument, shapes[i].type);
    else
      copy.caller = param_offset(b, argument);
    result.push_back(copy);
  }
  return result;
}

const Function* find_function(const Module& module, std::string_view name) {
  for (const Function& function : module.functions)
    if (function.name == name) return &function;
  return nullptr;
}

Builtin builtin_named(std::string_view name) {
  if (name == "vprintf") return Builtin::Printf;
  if (name == "__assertfail") return Builtin::AssertFail;
  return Builtin::None;
}

struct CallOperands {
  const Operand* results = nullptr;
  const Operand* target = nullptr;
  const Operand* arguments = nullptr;
};

CallOperands split_call(OpBuilder& b) {
  CallOperands parts;
  for (const Operand& operand : b.in.operands) {
    if (operand.kind == OperandKind::List)
      (parts.target ? parts.arguments : parts.results) = &operand;
    else if (!parts.target)
      parts.target = &operand;
  }
  if (!parts.target) b.fail("call names no function");
  return parts;
}

// Parameters the callee declared as registers are copied there instead of its parameter area.
void redirect_to_registers(std::vector<ParamCopy>& copies, const std::vector<int>& registers,
                           const Function& callee) {
  for (size_t i = 0; i < copies.size(); ++i) {
    if (registers[i] < 0) continue;
    copies[i].callee_is_register = true;
    copies[i].callee = param_register_slot(callee, registers[i]);
  }
}

// The callee's own layout puts parameters first, then results: `copies` repeats that rule, so the
// results only have to be moved behind the parameters.
void place_results(CallSite& site, const std::vector<Variable>& params,
                   const std::vector<Variable>& results) {
  uint32_t offset = 0;
  const auto place = [&](const Variable& variable) {
    offset = (offset + variable.align - 1) / variable.align * variable.align;
    const uint32_t at = offset;
    offset += static_cast<uint32_t>(variable.bytes);
    return at;
  };
  for (const Variable& variable : params) place(variable);
  for (size_t i = 0; i < results.size(); ++i) site.results[i].callee = place(results[i]);
}

void decode_indirect(OpBuilder& b, const CallOperands& parts, CallSite& site) {
  b.op.a = b.src(*parts.target, Type::U64);
  b.op.run = call_indirect;
  const auto shapes = [&](const Operand* list) {
    std::vector<Variable> variables;
    if (!list) return variables;
    for (const Operand& argument : list->elements) {
      const SymbolValue* symbol = b.function().find_symbol(argument.text);
      if (!symbol) b.fail("indirect calls take .param arguments only");
      Variable variable;
      variable.bytes = symbol->bytes;
      variable.align = symbol->bytes >= 16 ? 16 : std::bit_ceil(std::max(1u, symbol->bytes));
      variable.type = Type::B8;
      variables.push_back(variable);
    }
    return variables;
  };
  const auto params = shapes(parts.arguments), results = shapes(parts.results);
  site.arguments = copies(b, parts.arguments, params);
  site.results = copies(b, parts.results, results);
  place_results(site, params, results);
}

void decode_call(OpBuilder& b) {
  b.op.kind = OpClass::Control;
  const CallOperands parts = split_call(b);
  CallSite site;
  if (parts.target->kind == OperandKind::Register) {
    decode_indirect(b, parts, site);
  } else {
    const std::string& name = parts.target->text;
    const Function* callee = find_function(b.function().program().module, name);
    if (!callee || callee->is_entry) b.fail(fmt::format("function '{}' is not declared", name));
    site.builtin = builtin_named(name);
    if (callee->is_declaration && site.builtin == Builtin::None)
      b.fail(fmt::format("function '{}' has no body", name));
    site.arguments = copies(b, parts.arguments, callee->params);
    site.results = copies(b, parts.results, callee->returns);
    place_results(site, callee->params, callee->returns);
    redirect_to_registers(site.arguments, callee->param_registers, *callee);
    redirect_to_registers(site.results, callee->return_registers, *callee);
    if (site.builtin == Builtin::None)
      site.callee = b.function().program().code_index.find(name)->second;
    else if (site.arguments.size() < 2)
      b.fail(fmt::format("'{}' takes at least two arguments", name));
    for (const ParamCopy& copy : site.arguments) {
      if (site.builtin != Builtin::None && copy.caller_is_register)
        b.fail(fmt::format("'{}' takes .param arguments only", name));
      site.builtin_arguments.push_back(copy.caller);
    }
    b.op.run = call;
  }
  Code& code = b.function().code();
  b.op.imm = static_cast<int64_t>(code.calls.size());
  code.calls.push_back(std::move(site));
}

constexpr DecodeRow kRows[] = {
    {"bra", decode_bra},         {"brx", decode_brx},
    {"ret", decode_leave},       {"exit", decode_leave},
    {"trap", decode_trap},       {"brkpt", decode_trap},
    {"call", decode_call},       {"nanosleep", decode_hint},
    {"pmevent", decode_hint},    {"griddepcontrol", decode_hint},
    {"setmaxnreg", decode_hint},
};

}  // namespace

std::span<const DecodeRow> control_family() { return kRows; }

}  // namespace linnet::vgpu
