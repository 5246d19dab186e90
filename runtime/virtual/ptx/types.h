// The scalar types of PTX and the error every stage of loading a module reports.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace linnet::vgpu {

enum class Type : uint8_t {
  None,
  Pred,
  B8,
  B16,
  B32,
  B64,
  B128,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  F16,
  BF16,
  F32,
  F64,
  F16x2,
  BF16x2,
  U16x2,
  S16x2,
  TF32,
  E4M3,
  E5M2,
  E4M3x2,
  E5M2x2,
};

// Type named by a modifier without its dot ("u32"); Type::None when the word is no type.
Type type_from_name(std::string_view name);
std::string_view type_name(Type type);
// Bytes one value takes in a register or in memory; 0 for predicates.
int type_bytes(Type type);
bool is_signed(Type type);
bool is_float(Type type);

// A module that cannot be loaded: the text, and the line of the PTX it is about.
class PtxError : public std::runtime_error {
 public:
  PtxError(int line, const std::string& what)
      : std::runtime_error("PTX line " + std::to_string(line) + ": " + what), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

}  // namespace linnet::vgpu
