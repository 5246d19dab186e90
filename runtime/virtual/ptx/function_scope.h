// The names visible while a function body is parsed: registers, variables and labels, by block.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ptx/module.h"

namespace linnet::vgpu {

// Names of inner blocks hide outer ones; inline assembly and call sequences reuse names freely, so
// variables are given unique names here and labels are resolved when their block closes.
class FunctionScope {
 public:
  explicit FunctionScope(Function& function) : function_(function) { open(); }

  void open() { blocks_.emplace_back(); }
  // Resolves the labels of the innermost block; at the outermost one, missing labels are errors.
  void close(int line);
  size_t depth() const { return blocks_.size(); }

  void declare_register(const std::string& name, Type type, int line);
  void declare_register_range(const std::string& prefix, int count, Type type, int line);
  int find_register(std::string_view name) const;  // -1 when there is none

  void declare_variable(Variable variable);  // renamed when its name is taken
  // The unique name of a variable, or "" when the function declares none of that name.
  std::string find_variable(std::string_view name) const;

  void define_label(const std::string& name, int line);
  // `operand` of instruction `instruction` will hold the label's index.
  void use_label(const std::string& name, int instruction, int operand, int line);
  void define_branch_table(const std::string& name, const std::vector<std::string>& targets,
                           int line);

 private:
  struct RegisterRange {
    int first = 0;
    int count = 0;  // 0: a single register without a number
  };
  struct LabelUse {
    std::string name;
    int instruction = -1;  // -1: an entry of a branch table
    int operand = 0;
    std::string table;
    int line = 0;
  };
  struct Block {
    std::map<std::string, RegisterRange, std::less<>> registers;
    std::map<std::string, std::string, std::less<>> variables;
    std::map<std::string, int, std::less<>> labels;
    std::vector<LabelUse> uses;
  };

  int add_registers(const std::string& name, int count, Type type, int line);
  void resolve(const LabelUse& use, int label);

  Function& function_;
  std::vector<Block> blocks_;
  std::map<std::string, int> variable_uses_;
};

}  // namespace linnet::vgpu
