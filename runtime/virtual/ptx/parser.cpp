#include "ptx/parser.h"

#include <charconv>

#include "ptx/cursor.h"
#include "ptx/function_scope.h"
#include "ptx/instruction_parser.h"
#include "ptx/variable_parser.h"

namespace linnet::vgpu {
namespace {

struct Linkage {
  bool is_extern = false;
};

class ModuleParser {
 public:
  explicit ModuleParser(const std::vector<Token>& tokens) : cursor_(tokens) {}

  Module run() {
    parse_header();
    while (!cursor_.at_end()) parse_top_level();
    return std::move(module_);
  }

 private:
  void parse_header() {
    if (!cursor_.accept_dotted("version")) cursor_.fail("a module starts with .version");
    const Token& version = cursor_.next();
    if (version.kind != TokenKind::Float) cursor_.fail("expected a version such as 8.0");
    const size_t dot = version.text.find('.');
    int major = 0, minor = 0;
    const char* text = version.text.data();
    std::from_chars(text, text + dot, major);
    std::from_chars(text + dot + 1, text + version.text.size(), minor);
    module_.version = major * 10 + minor;
    if (module_.version < 60 || module_.version > 99)
      cursor_.fail(fmt::format("PTX version {} is not supported", version.text));
    if (!cursor_.accept_dotted("target")) cursor_.fail("expected .target after .version");
    module_.target = cursor_.identifier("a target");
    while (cursor_.accept(',')) cursor_.identifier("a target option");
    if (cursor_.accept_dotted("address_size") && cursor_.integer("an address size") != 64)
      cursor_.fail("only 64-bit addresses are supported");
  }

  void parse_top_level() {
    Linkage linkage = parse_linkage();
    if (cursor_.peek().kind != TokenKind::Dotted)
      cursor_.fail(fmt::format("unexpected '{}' outside a function", cursor_.peek().text));
    const std::string_view word = cursor_.next().text;
    if (word == "entry" || word == "func") return parse_function(word == "entry", linkage);
    if (word == "global" || word == "const" || word == "shared") {
      const Space space = word == "global"  ? Space::Global
                          : word == "const" ? Space::Const
                                            : Space::Shared;
      return parse_variables(space, linkage, module_.variables);
    }
    if (word == "file") return parse_file();
    if (word == "section") return skip_section();
    if (word == "pragma") return parse_pragma();
    cursor_.fail(fmt::format("unknown directive '.{}'", word));
  }

  Linkage parse_linkage() {
    Linkage linkage;
    for (;;) {
      if (cursor_.accept_dotted("visible") || cursor_.accept_dotted("weak") ||
          cursor_.accept_dotted("common"))
        continue;
      if (!cursor_.accept_dotted("extern")) return linkage;
      linkage.is_extern = true;
    }
  }

  void parse_variables(Space space, const Linkage& linkage, std::vector<Variable>& into) {
    Variable variable = parse_variable(cursor_, space, space != Space::Shared);
    variable.is_extern = linkage.is_extern;
    into.push_back(std::move(variable));
    cursor_.expect(';', "after a variable");
  }

  void parse_file() {
    const auto index = static_cast<int>(cursor_.integer("a file number", 1 << 20));
    if (cursor_.peek().kind != TokenKind::String) cursor_.fail("expected a file name");
    module_.files[index] = cursor_.next().text;
    while (cursor_.accept(',')) cursor_.integer("a file attribute");
  }

  // Debug sections hold labels and lists of numbers only; anything else in them is an error.
  void skip_section() {
    if (cursor_.peek().kind != TokenKind::Dotted) cursor_.fail("expected a section name");
    cursor_.next();
    cursor_.expect('{', "after a section name");
    while (!cursor_.accept('}')) {
      const Token& token = cursor_.peek();
      const bool data = token.kind == TokenKind::Dotted || token.kind == TokenKind::Identifier ||
                        token.kind == TokenKind::Integer || token.kind == TokenKind::String ||
                        cursor_.at(',') || cursor_.at(':') || cursor_.at('+') || cursor_.at('-');
      if (!data) cursor_.fail(fmt::format("unexpected '{}' in a debug section", token.text));
      cursor_.next();
    }
  }

  void parse_pragma() {
    if (cursor_.peek().kind != TokenKind::String) cursor_.fail("expected a pragma string");
    cursor_.next();
    cursor_.expect(';', "after a pragma");
  }

  void parse_function(bool is_entry, const Linkage& linkage) {
    Function function;
    function.is_entry = is_entry;
    function.line = cursor_.line();
    FunctionScope scope(function);
    parse_function_attributes(function);
    if (cursor_.accept('('))
      parse_params(function, scope, function.returns, function.return_registers);
    function.name = cursor_.identifier("a function's name");
    if (cursor_.accept('('))
      parse_params(function, scope, function.params, function.param_registers);
    parse_function_attributes(function);
    if (cursor_.accept(';')) {
      function.is_declaration = true;
    } else {
      if (linkage.is_extern) cursor_.fail("an .extern function has no body");
      cursor_.expect('{', "before a function's body");
      parse_body(function, scope);
    }
    add_function(std::move(function));
  }

  // A declaration may be followed by its definition; two definitions of a name are an error.
  void add_function(Function function) {
    for (Function& known : module_.functions) {
      if (known.name != function.name) continue;
      if (!known.is_declaration && !function.is_declaration)
        throw PtxError(function.line, fmt::format("function '{}' is defined twice", function.name));
      if (known.is_declaration) known = std::move(function);
      return;
    }
    module_.functions.push_back(std::move(function));
  }

  void parse_params(Function& function, FunctionScope& scope, std::vector<Variable>& params,
                    std::vector<int>& registers) {
    if (cursor_.accept(')')) return;
    do {
      if (cursor_.accept_dotted("reg")) {
        const Variable shape = parse_variable(cursor_, Space::Param, false);
        scope.declare_register(shape.name, shape.type, shape.line);
        registers.push_back(static_cast<int>(function.registers.size()) - 1);
        params.push_back(shape);
      } else if (cursor_.accept_dotted("param")) {
        params.push_back(parse_variable(cursor_, Space::Param, false));
        registers.push_back(-1);
      } else {
        cursor_.fail("expected .param or .reg in a parameter list");
      }
    } while (cursor_.accept(','));
    cursor_.expect(')', "after a parameter list");
  }

  void parse_function_attributes(Function& function) {
    for (;;) {
      if (cursor_.peek().kind != TokenKind::Dotted) return;
      const std::string_view word = cursor_.next().text;
      if (word == "maxntid") {
        parse_extent(function.bounds.max_threads);
      } else if (word == "reqntid") {
        parse_extent(function.bounds.required_threads);
      } else if (word == "reqnctapercluster") {
        parse_extent(function.bounds.cluster);
      } else if (word == "minnctapersm" || word == "maxnreg" || word == "maxclusterrank" ||
                 word == "maxnctapersm") {
        cursor_.integer("a launch bound");
      } else if (word == "pragma") {
        parse_pragma();
      } else if (word != "noreturn" && word != "explicitcluster" && word != "blocksareclusters" &&
                 word != "unified") {
        cursor_.fail(fmt::format("unknown function directive '.{}'", word));
      }
    }
  }

  void parse_extent(uint32_t (&extent)[3]) {
    for (uint32_t& value : extent) value = 1;
    int dimension = 0;
    do {
      if (dimension == 3) cursor_.fail("more than three dimensions");
      extent[dimension++] = static_cast<uint32_t>(cursor_.integer("an extent", 1 << 30));
    } while (cursor_.accept(','));
  }

  void parse_body(Function& function, FunctionScope& scope) {
    SourceLocation location;
    for (;;) {
      if (cursor_.at_end())
        cursor_.fail(fmt::format("body of '{}' is never closed", function.name));
      if (cursor_.accept('{')) {
        if (scope.depth() > 64) cursor_.fail("blocks are nested too deeply");
        scope.open();
      } else if (cursor_.accept('}')) {
        scope.close(cursor_.line());
        if (scope.depth() == 0) return;
      } else if (cursor_.peek().kind == TokenKind::Dotted) {
        parse_body_directive(function, scope, location);
      } else if (cursor_.peek().kind == TokenKind::Identifier && cursor_.at(':', 1)) {
        parse_label(scope);
      } else if (!cursor_.accept(';')) {
        parse_instruction(cursor_, function, scope, location);
      }
    }
  }

  void parse_label(FunctionScope& scope) {
    const int line = cursor_.line();
    const std::string name(cursor_.identifier("a label"));
    cursor_.expect(':', "after a label");
    if (cursor_.accept_dotted("branchtargets")) {
      std::vector<std::string> targets;
      do {
        targets.emplace_back(cursor_.identifier("a branch target"));
      } while (cursor_.accept(','));
      cursor_.expect(';', "after branch targets");
      scope.define_branch_table(name, targets, line);
    } else if (cursor_.accept_dotted("callprototype")) {
      parse_prototype();
    } else {
      scope.define_label(name, line);
    }
  }

  // The shapes of an indirect call repeat what the call's own operands say, so they are not kept.
  void parse_prototype() {
    Function shape;
    FunctionScope scope(shape);
    if (cursor_.accept('(')) parse_params(shape, scope, shape.returns, shape.return_registers);
    cursor_.identifier("'_' in a prototype");
    if (cursor_.accept('(')) parse_params(shape, scope, shape.params, shape.param_registers);
    parse_function_attributes(shape);
    cursor_.expect(';', "after a prototype");
  }

  void parse_body_directive(Function& function, FunctionScope& scope, SourceLocation& location) {
    const std::string_view word = cursor_.next().text;
    if (word == "reg") {
      parse_registers(scope);
    } else if (word == "loc") {
      parse_location(location);
    } else if (word == "pragma") {
      parse_pragma();
    } else if (word == "local" || word == "shared" || word == "param") {
      const Space space = word == "local"    ? Space::Local
                          : word == "shared" ? Space::Shared
                                             : Space::Param;
      do {
        scope.declare_variable(parse_variable(cursor_, space, false));
      } while (cursor_.accept(','));
      cursor_.expect(';', "after a variable");
    } else if (word == "global" || word == "const") {
      const Space space = word == "global" ? Space::Global : Space::Const;
      parse_variables(space, {}, module_.variables);
    } else {
      cursor_.fail(fmt::format("unknown directive '.{}' in '{}'", word, function.name));
    }
  }

  void parse_registers(FunctionScope& scope) {
    const int line = cursor_.line();
    if (cursor_.peek().kind != TokenKind::Dotted) cursor_.fail("expected a register type");
    const std::string_view word = cursor_.next().text;
    const Type type = type_from_name(word);
    if (type == Type::None) cursor_.fail(fmt::format("unknown register type '.{}'", word));
    do {
      const std::string name(cursor_.identifier("a register's name"));
      if (cursor_.accept('<')) {
        const auto count = static_cast<int>(cursor_.integer("a register count", 1 << 18));
        cursor_.expect('>', "after a register count");
        if (count <= 0) cursor_.fail("a register count must be positive");
        scope.declare_register_range(name, count, type, line);
      } else {
        scope.declare_register(name, type, line);
      }
    } while (cursor_.accept(','));
    cursor_.expect(';', "after registers");
  }

  void parse_location(SourceLocation& location) {
    location.file = static_cast<int>(cursor_.integer("a file number", 1 << 20));
    location.line = static_cast<int>(cursor_.integer("a line", 1 << 30));
    location.column = static_cast<int>(cursor_.integer("a column", 1 << 30));
    while (cursor_.accept(',')) {
      const std::string_view attribute = cursor_.identifier("a .loc attribute");
      if (attribute == "function_name") {
        cursor_.identifier("a function name label");
        if (cursor_.at('+')) cursor_.integer("an offset");
      } else if (attribute == "inlined_at") {
        for (int i = 0; i < 3; ++i) cursor_.integer("an inline position");
      } else {
        cursor_.fail(fmt::format("unknown .loc attribute '{}'", attribute));
      }
    }
  }

  Cursor cursor_;
  Module module_;
};

}  // namespace

Module parse_module(std::string_view source) {
  const std::vector<Token> tokens = tokenize(source);
  return ModuleParser(tokens).run();
}

}  // namespace linnet::vgpu
