#include "ptx/instruction_parser.h"

namespace linnet::vgpu {
namespace {

constexpr int kMaxNesting = 4;
constexpr size_t kMaxElements = 256;

class OperandParser {
 public:
  OperandParser(Cursor& cursor, const FunctionScope& scope) : cursor_(cursor), scope_(scope) {}

  Operand parse(int depth = 0) {
    if (depth > kMaxNesting) cursor_.fail("operand is nested too deeply");
    Operand operand = single(depth);
    if (!cursor_.accept('|')) return operand;
    Operand pair;
    pair.kind = OperandKind::Pair;
    pair.elements.push_back(std::move(operand));
    pair.elements.push_back(single(depth));
    return pair;
  }

 private:
  Operand single(int depth) {
    if (cursor_.accept('{')) return list(OperandKind::Vector, '}', depth);
    if (cursor_.accept('(')) return list(OperandKind::List, ')', depth);
    if (cursor_.accept('[')) return memory(depth);
    if (cursor_.accept('!')) {
      Operand operand = single(depth);
      if (operand.kind != OperandKind::Register) cursor_.fail("'!' needs a predicate register");
      operand.negated = true;
      return operand;
    }
    if (cursor_.peek().kind == TokenKind::Identifier) return named();
    return immediate();
  }

  Operand list(OperandKind kind, char closing, int depth) {
    Operand operand;
    operand.kind = kind;
    if (cursor_.accept(closing)) return operand;
    do {
      if (operand.elements.size() >= kMaxElements) cursor_.fail("operand list is too long");
      operand.elements.push_back(parse(depth + 1));
    } while (cursor_.accept(','));
    cursor_.expect(closing, "after an operand list");
    return operand;
  }

  Operand memory(int depth) {
    Operand operand;
    operand.kind = OperandKind::Memory;
    if (cursor_.peek().kind == TokenKind::Identifier) {
      const Operand base = named();
      if (base.kind != OperandKind::Register && base.kind != OperandKind::Symbol)
        cursor_.fail("an address needs a register or a variable");
      operand.reg = base.reg;
      operand.text = base.text;
      operand.offset = base.offset;
      if (base.kind == OperandKind::Register && (cursor_.at('+') || cursor_.at('-')))
        operand.offset = cursor_.integer("an offset");
    } else {
      operand.offset = cursor_.integer("an address");
    }
    if (cursor_.accept(',')) operand.elements.push_back(parse(depth + 1));
    cursor_.expect(']', "after an address");
    return operand;
  }

  Operand named() {
    Operand operand;
    const Token& token = cursor_.next();
    operand.text = token.text;
    operand.reg = scope_.find_register(token.text);
    if (token.text == "_") {
      operand.kind = OperandKind::Sink;
    } else if (token.text == "WARP_SZ") {
      operand.kind = OperandKind::Immediate;
      operand.bits = 32;
    } else if (operand.reg >= 0) {
      operand.kind = OperandKind::Register;
      operand.text.clear();
    } else if (token.text[0] == '%') {
      operand.kind = OperandKind::Special;
      if (cursor_.peek().kind == TokenKind::Dotted && cursor_.peek().glued)
        operand.text += fmt::format(".{}", cursor_.next().text);
    } else {
      operand.kind = OperandKind::Symbol;
      const std::string unique = scope_.find_variable(token.text);
      if (!unique.empty()) operand.text = unique;
      if (cursor_.at('+') || cursor_.at('-')) operand.offset = cursor_.integer("an offset");
    }
    return operand;
  }

  Operand immediate() {
    Operand operand;
    operand.kind = OperandKind::Immediate;
    bool negative = false;
    while (cursor_.at('-') || cursor_.at('+')) negative ^= cursor_.next().text[0] == '-';
    const Token& token = cursor_.peek();
    if (token.kind != TokenKind::Integer && token.kind != TokenKind::Float)
      cursor_.fail(fmt::format("expected an operand, found '{}'", token.text));
    cursor_.next();
    operand.is_float = token.kind == TokenKind::Float;
    operand.is_single = token.is_single;
    operand.bits = token.bits;
    if (negative && operand.is_float)
      operand.bits ^= uint64_t{1} << (token.is_single ? 31 : 63);
    else if (negative)
      operand.bits = 0 - token.bits;
    return operand;
  }

  Cursor& cursor_;
  const FunctionScope& scope_;
};

void parse_guard(Cursor& cursor, const Function& function, const FunctionScope& scope,
                 Instruction& instruction) {
  if (!cursor.accept('@')) return;
  instruction.guard_negated = cursor.accept('!');
  const std::string_view name = cursor.identifier("a guard predicate");
  instruction.guard = scope.find_register(name);
  if (instruction.guard < 0) cursor.fail(fmt::format("guard '{}' is not declared", name));
  if (function.registers[static_cast<size_t>(instruction.guard)].type != Type::Pred)
    cursor.fail(fmt::format("guard '{}' is not a predicate", name));
}

}  // namespace

void parse_instruction(Cursor& cursor, Function& function, FunctionScope& scope,
                       const SourceLocation& location) {
  Instruction instruction;
  instruction.line = cursor.line();
  instruction.location = location;
  parse_guard(cursor, function, scope, instruction);
  const int line = cursor.line();
  const std::string_view opcode = cursor.identifier("an instruction");
  std::vector<std::string_view> modifiers;
  while (cursor.peek().kind == TokenKind::Dotted) modifiers.push_back(cursor.next().text);
  if (!cursor.at(';')) {
    OperandParser operands(cursor, scope);
    do {
      if (instruction.operands.size() >= kMaxElements) cursor.fail("too many operands");
      instruction.operands.push_back(operands.parse());
    } while (cursor.accept(','));
  }
  cursor.expect(';', fmt::format("after '{}'", opcode));
  const int count = static_cast<int>(instruction.operands.size());
  instruction.form = match_instruction(opcode, modifiers, count, line);
  function.instructions.push_back(std::move(instruction));
  if (opcode != "bra") return;
  const int index = static_cast<int>(function.instructions.size()) - 1;
  const Operand& target = function.instructions.back().operands[0];
  if (target.kind != OperandKind::Symbol) throw PtxError(line, "'bra' needs a label");
  scope.use_label(target.text, index, 0, line);
}

}  // namespace linnet::vgpu
