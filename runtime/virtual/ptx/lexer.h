// Splits PTX text into tokens; comments are dropped and every token keeps its line.
#pragma once

#include <string_view>
#include <vector>

#include "ptx/types.h"

namespace linnet::vgpu {

enum class TokenKind : uint8_t { Identifier, Dotted, Integer, Float, String, Punctuation, End };

// Dotted tokens are directives and modifiers; their text excludes the dot.
struct Token {
  TokenKind kind = TokenKind::End;
  bool glued = false;  // no space in front: tells "%tid.x" from "%tid .x"
  int line = 0;
  std::string_view text;
  uint64_t bits = 0;       // Integer: its value; Float: the f64 bit pattern
  bool is_single = false;  // Float written as 0f........: `bits` holds the f32 pattern
};

std::vector<Token> tokenize(std::string_view source);

}  // namespace linnet::vgpu
