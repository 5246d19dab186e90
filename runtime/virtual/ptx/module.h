// The parsed form of a PTX module: variables, functions and instructions with resolved registers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/instruction_table.h"
#include "ptx/types.h"

namespace linnet::vgpu {

enum class Space : uint8_t { Generic, Global, Shared, Const, Local, Param };

// Where an instruction came from, from .loc; file 0 means the compiler gave no line.
struct SourceLocation {
  int file = 0;
  int line = 0;
  int column = 0;
  bool operator==(const SourceLocation&) const = default;
};

enum class OperandKind : uint8_t {
  Register,   // reg
  Special,    // text: "%tid.x"
  Immediate,  // bits, is_float
  Symbol,     // variable or function `text`, plus offset
  Memory,     // [base register or symbol + offset]; tensor coordinates in elements
  Vector,     // elements
  Pair,       // elements[0] | elements[1]
  Label,      // index into Function::labels
  List,       // parenthesised call arguments
  Sink,       // _
};

struct Operand {
  OperandKind kind = OperandKind::Sink;
  bool negated = false;    // !%p
  bool is_float = false;   // Immediate: a floating literal
  bool is_single = false;  // Immediate: `bits` is an f32 pattern, else f64
  int reg = -1;
  uint64_t bits = 0;
  int64_t offset = 0;
  std::string text;
  std::vector<Operand> elements;
};

struct Instruction {
  int line = 0;
  SourceLocation location;
  int guard = -1;  // predicate register
  bool guard_negated = false;
  MatchedForm form;
  std::vector<Operand> operands;
};

struct Relocation {
  uint64_t offset = 0;  // in the variable's image
  int bytes = 8;
  std::string symbol;
  int64_t addend = 0;
};

struct Variable {
  std::string name;
  Space space = Space::Global;
  Type type = Type::B8;
  uint32_t align = 1;
  uint64_t bytes = 0;
  bool is_extern = false;  // .extern .shared: the dynamic part of shared memory
  int line = 0;
  std::vector<uint8_t> image;  // initialiser; shorter than `bytes` means zeros follow
  std::vector<Relocation> relocations;
};

struct Register {
  std::string name;
  Type type = Type::B32;
};

struct LaunchBounds {
  uint32_t max_threads[3] = {0, 0, 0};       // .maxntid; 0 = unstated
  uint32_t required_threads[3] = {0, 0, 0};  // .reqntid
  uint32_t cluster[3] = {0, 0, 0};           // .reqnctapercluster
};

struct Function {
  std::string name;
  bool is_entry = false;
  bool is_declaration = false;
  int line = 0;
  LaunchBounds bounds;
  std::vector<Variable> returns;
  std::vector<Variable> params;
  std::vector<int> return_registers;  // .func (.reg .b32 r): register form, else -1
  std::vector<int> param_registers;
  std::vector<Variable> locals;  // .local, .shared and .param variables of the body
  std::vector<Register> registers;
  std::vector<Instruction> instructions;
  std::vector<int> labels;  // label -> instruction index
  std::vector<std::string> label_names;
  std::map<std::string, std::vector<int>> branch_tables;  // .branchtargets
};

struct Module {
  int version = 0;     // 90 for 9.0
  std::string target;  // "sm_90"
  std::map<int, std::string> files;
  std::vector<Variable> variables;  // .global, .const, module-scope .shared
  std::vector<Function> functions;
};

}  // namespace linnet::vgpu
