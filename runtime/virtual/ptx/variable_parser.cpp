#include "ptx/variable_parser.h"

#include <bit>
#include <cstring>

namespace linnet::vgpu {
namespace {

constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 31;
constexpr int kMaxNesting = 16;

// Fills a variable's image element by element as the initialiser is read.
class Initialiser {
 public:
  Initialiser(Cursor& cursor, Variable& variable) : cursor_(cursor), variable_(variable) {}

  void parse(int depth = 0) {
    if (depth > kMaxNesting) cursor_.fail("initialiser is nested too deeply");
    if (!cursor_.accept('{')) return element();
    if (cursor_.accept('}')) return;
    do {
      parse(depth + 1);
    } while (cursor_.accept(','));
    cursor_.expect('}', "after an initialiser list");
  }

 private:
  void element() {
    if (cursor_.peek().kind == TokenKind::Identifier) return symbol();
    bool negative = false;
    while (cursor_.at('-') || cursor_.at('+')) negative ^= cursor_.next().text[0] == '-';
    const Token& token = cursor_.next();
    if (token.kind == TokenKind::Float) return append(float_bits(token, negative));
    if (token.kind != TokenKind::Integer) cursor_.fail("expected a value in the initialiser");
    if (is_float(variable_.type)) {
      const double value = static_cast<double>(token.bits);
      Token as_float = token;
      as_float.bits = std::bit_cast<uint64_t>(value);
      return append(float_bits(as_float, negative));
    }
    append(negative ? 0 - token.bits : token.bits);
  }

  uint64_t float_bits(const Token& token, bool negative) const {
    double value = token.is_single ? std::bit_cast<float>(static_cast<uint32_t>(token.bits))
                                   : std::bit_cast<double>(token.bits);
    if (negative) value = -value;
    if (variable_.type == Type::F64) return std::bit_cast<uint64_t>(value);
    if (variable_.type == Type::F32) return std::bit_cast<uint32_t>(static_cast<float>(value));
    return token.bits;
  }

  // name, name+4, generic(name), generic(name)+4: an address known only when the module is loaded.
  void symbol() {
    std::string name(cursor_.identifier("a symbol"));
    if (name == "generic") {
      cursor_.expect('(', "after 'generic'");
      name = cursor_.identifier("a symbol");
      cursor_.expect(')', "after the symbol");
    }
    int64_t addend = 0;
    if (cursor_.at('+') || cursor_.at('-')) addend = cursor_.integer("an offset");
    const int bytes = type_bytes(variable_.type);
    if (bytes < 4) cursor_.fail("an address needs a variable of at least 32 bits");
    variable_.relocations.push_back({variable_.image.size(), bytes, name, addend});
    append(0);
  }

  void append(uint64_t bits) {
    const auto bytes = static_cast<size_t>(type_bytes(variable_.type));
    if (variable_.image.size() + bytes > kMaxVariableBytes) cursor_.fail("initialiser is too long");
    uint8_t raw[16] = {};
    std::memcpy(raw, &bits, sizeof bits);
    variable_.image.insert(variable_.image.end(), raw, raw + bytes);
  }

  Cursor& cursor_;
  Variable& variable_;
};

// Alignment, attributes and pointer annotations may stand in any order around the type.
void parse_attributes(Cursor& cursor, Variable& variable, int& vector) {
  for (;;) {
    if (cursor.peek().kind != TokenKind::Dotted) return;
    const std::string_view word = cursor.peek().text;
    if (word == "align") {
      cursor.next();
      const int64_t align = cursor.integer("an alignment", 1 << 20);
      if (align <= 0 || (align & (align - 1))) cursor.fail("alignment must be a power of two");
      variable.align = static_cast<uint32_t>(align);
    } else if (word == "attribute") {
      cursor.next();
      cursor.expect('(', "after .attribute");
      while (!cursor.accept(')')) {
        if (cursor.at_end()) cursor.fail("attribute list is never closed");
        cursor.next();
      }
    } else if (word == "ptr" || word == "global" || word == "shared" || word == "const" ||
               word == "local") {
      cursor.next();  // what a pointer parameter points to: a promise, not a layout
    } else if (word == "v2" || word == "v4" || word == "v8") {
      vector = word[1] - '0';
      cursor.next();
    } else if (variable.type == Type::None && type_from_name(word) != Type::None) {
      variable.type = type_from_name(word);
      cursor.next();
    } else {
      cursor.fail(fmt::format("unknown word '.{}' in a declaration", word));
    }
  }
}

}  // namespace

Variable parse_variable(Cursor& cursor, Space space, bool allow_initialiser) {
  Variable variable;
  variable.space = space;
  variable.type = Type::None;
  variable.align = 0;
  variable.line = cursor.line();
  int vector = 1;
  parse_attributes(cursor, variable, vector);
  if (variable.type == Type::None || type_bytes(variable.type) == 0)
    cursor.fail("declaration lacks a type with a size");
  variable.name = cursor.identifier("a variable's name");
  const auto element = static_cast<uint64_t>(type_bytes(variable.type) * vector);
  if (variable.align == 0) variable.align = static_cast<uint32_t>(element);
  variable.bytes = element;
  bool unsized = false;
  while (cursor.accept('[')) {
    if (cursor.accept(']')) {
      unsized = true;
      continue;
    }
    variable.bytes *= static_cast<uint64_t>(cursor.integer("an array size", 1LL << 31));
    if (variable.bytes > kMaxVariableBytes) cursor.fail("variable is too large");
    cursor.expect(']', "after the array size");
  }
  if (cursor.accept('=')) {
    if (!allow_initialiser) cursor.fail("this variable cannot have an initialiser");
    Initialiser(cursor, variable).parse();
    if (unsized) variable.bytes = std::max<uint64_t>(variable.image.size(), element);
    if (variable.image.size() > variable.bytes) cursor.fail("initialiser is longer than the array");
  } else if (unsized) {
    variable.bytes = 0;
  }
  return variable;
}

}  // namespace linnet::vgpu
