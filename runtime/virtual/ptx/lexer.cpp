#include "ptx/lexer.h"

#include <bit>
#include <charconv>
#include <cstdlib>

namespace linnet::vgpu {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name_start(char c) { return is_letter(c) || c == '_' || c == '$' || c == '%'; }
bool is_name_char(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '$'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(source) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    tokens.reserve(text_.size() / 4 + 1);
    for (;;) {
      const bool spaced = skip_blank();
      Token token = next();
      token.glued = !spaced;
      tokens.push_back(token);
      if (token.kind == TokenKind::End) return tokens;
    }
  }

 private:
  char peek(size_t ahead = 0) const {
    return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0';
  }

  // Moves over spaces and comments; true when there were any.
  bool skip_blank() {
    const size_t start = pos_;
    while (pos_ < text_.size()) {
      const char c = peek();
      if (c == '\n') {
        ++line_;
        ++pos_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
        ++pos_;
      } else if (c == '/' && peek(1) == '/') {
        while (pos_ < text_.size() && peek() != '\n') ++pos_;
      } else if (c == '/' && peek(1) == '*') {
        skip_block_comment();
      } else {
        break;
      }
    }
    return pos_ != start;
  }

  void skip_block_comment() {
    const int opened = line_;
    pos_ += 2;
    while (!(peek() == '*' && peek(1) == '/')) {
      if (pos_ >= text_.size()) throw PtxError(opened, "comment is never closed");
      if (peek() == '\n') ++line_;
      ++pos_;
    }
    pos_ += 2;
  }

  Token make(TokenKind kind, size_t start) const {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = text_.substr(start, pos_ - start);
    return token;
  }

  Token next() {
    const size_t start = pos_;
    if (pos_ >= text_.size()) return make(TokenKind::End, start);
    const char c = peek();
    if (is_name_start(c)) {
      ++pos_;
      while (is_name_char(peek())) ++pos_;
      return make(TokenKind::Identifier, start);
    }
    if (c == '.' && (is_letter(peek(1)) || is_digit(peek(1)) || peek(1) == '_')) return dotted();
    if (is_digit(c)) return number();
    if (c == '"') return string();
    if (std::string_view("{}[](),;:+-*/!|@<>=&~^?").find(c) != std::string_view::npos) {
      ++pos_;
      return make(TokenKind::Punctuation, start);
    }
    throw PtxError(line_, std::string("unexpected character '") + c + "'");
  }

  Token dotted() {
    const size_t start = ++pos_;
    for (;;) {
      if (is_name_char(peek())) {
        ++pos_;
      } else if (peek() == ':' && peek(1) == ':') {
        pos_ += 2;
      } else {
        return make(TokenKind::Dotted, start);
      }
    }
  }

  Token string() {
    const size_t start = ++pos_;
    while (peek() != '"') {
      if (pos_ >= text_.size() || peek() == '\n') throw PtxError(line_, "string is never closed");
      ++pos_;
    }
    Token token = make(TokenKind::String, start);
    ++pos_;
    return token;
  }

  Token number() {
    if (peek() == '0' && (peek(1) == 'f' || peek(1) == 'F')) return hex_float(8);
    if (peek() == '0' && (peek(1) == 'd' || peek(1) == 'D')) return hex_float(16);
    const size_t start = pos_;
    int base = 10;
    if (peek() == '0' && (peek(1) == 'x' || peek(1) == 'X')) base = 16;
    if (peek() == '0' && (peek(1) == 'b' || peek(1) == 'B')) base = 2;
    if (base != 10) {
      pos_ += 2;
    } else if (peek() == '0' && is_digit(peek(1))) {
      base = 8;
    }
    if (base == 10 && is_decimal_float()) return decimal_float();
    return integer(start, base);
  }

  bool is_decimal_float() const {
    size_t ahead = 0;
    while (is_digit(peek(ahead))) ++ahead;
    if (peek(ahead) == '.' && is_digit(peek(ahead + 1))) return true;
    return peek(ahead) == 'e' || peek(ahead) == 'E';
  }

  Token integer(size_t start, int base) {
    uint64_t value = 0;
    const char* first = text_.data() + pos_;
    const auto result = std::from_chars(first, text_.data() + text_.size(), value, base);
    if (result.ec != std::errc() || result.ptr == first)
      throw PtxError(line_, "integer literal is malformed or does not fit 64 bits");
    pos_ += static_cast<size_t>(result.ptr - first);
    if (peek() == 'U') ++pos_;
    if (is_name_char(peek())) throw PtxError(line_, "integer literal runs into a name");
    Token token = make(TokenKind::Integer, start);
    token.bits = value;
    return token;
  }

  Token hex_float(int digits) {
    const size_t start = pos_;
    pos_ += 2;
    uint64_t value = 0;
    for (int i = 0; i < digits; ++i, ++pos_) {
      const char c = peek();
      const bool hex = is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!hex) throw PtxError(line_, "float literal needs " + std::to_string(digits) + " digits");
      value = value * 16 + static_cast<uint64_t>(is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (is_name_char(peek())) throw PtxError(line_, "float literal is too long");
    Token token = make(TokenKind::Float, start);
    token.bits = value;
    token.is_single = digits == 8;
    return token;
  }

  Token decimal_float() {
    const size_t start = pos_;
    double value = 0;
    const auto result = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), value);
    if (result.ec != std::errc()) throw PtxError(line_, "float literal is malformed");
    pos_ = static_cast<size_t>(result.ptr - text_.data());
    Token token = make(TokenKind::Float, start);
    token.bits = std::bit_cast<uint64_t>(value);
    return token;
  }

  std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace linnet::vgpu
