// A reading position in a token list, with the few checks every parsing function needs.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "ptx/lexer.h"

namespace linnet::vgpu {

class Cursor {
 public:
  explicit Cursor(const std::vector<Token>& tokens) : tokens_(tokens) {}

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() {
    const Token& token = peek();
    if (pos_ + 1 < tokens_.size()) ++pos_;
    return token;
  }
  int line() const { return peek().line; }
  bool at_end() const { return peek().kind == TokenKind::End; }

  bool at(char punctuation, size_t ahead = 0) const {
    const Token& token = peek(ahead);
    return token.kind == TokenKind::Punctuation && token.text[0] == punctuation;
  }
  bool at_dotted(std::string_view word) const {
    return peek().kind == TokenKind::Dotted && peek().text == word;
  }
  bool accept(char punctuation) {
    if (!at(punctuation)) return false;
    next();
    return true;
  }
  bool accept_dotted(std::string_view word) {
    if (!at_dotted(word)) return false;
    next();
    return true;
  }
  void expect(char punctuation, std::string_view where) {
    if (!accept(punctuation))
      fail(fmt::format("expected '{}' {}, found '{}'", punctuation, where, peek().text));
  }
  std::string_view identifier(std::string_view what) {
    if (peek().kind != TokenKind::Identifier)
      fail(fmt::format("expected {}, found '{}'", what, peek().text));
    return next().text;
  }
  // An integer with optional sign; `limit` guards against absurd sizes in damaged text.
  int64_t integer(std::string_view what, int64_t limit = INT64_MAX) {
    bool negative = false;
    while (at('-') || at('+')) negative ^= next().text[0] == '-';
    if (peek().kind != TokenKind::Integer)
      fail(fmt::format("expected {}, found '{}'", what, peek().text));
    const uint64_t bits = next().bits;
    if (bits > static_cast<uint64_t>(limit) && limit != INT64_MAX)
      fail(fmt::format("{} {} is out of range", what, bits));
    return static_cast<int64_t>(negative ? 0 - bits : bits);
  }
  [[noreturn]] void fail(const std::string& what) const { throw PtxError(line(), what); }

 private:
  const std::vector<Token>& tokens_;
  size_t pos_ = 0;
};

}  // namespace linnet::vgpu
