#include "ptx/types.h"

#include <array>

namespace linnet::vgpu {
namespace {

struct TypeRow {
  Type type;
  std::string_view name;
  int bytes;
  bool is_signed;
  bool is_float;
};

constexpr std::array<TypeRow, 29> kTypes{{
    {Type::None, "", 0, false, false},        {Type::Pred, "pred", 0, false, false},
    {Type::B8, "b8", 1, false, false},        {Type::B16, "b16", 2, false, false},
    {Type::B32, "b32", 4, false, false},      {Type::B64, "b64", 8, false, false},
    {Type::B128, "b128", 16, false, false},   {Type::U8, "u8", 1, false, false},
    {Type::U16, "u16", 2, false, false},      {Type::U32, "u32", 4, false, false},
    {Type::U64, "u64", 8, false, false},      {Type::S8, "s8", 1, true, false},
    {Type::S16, "s16", 2, true, false},       {Type::S32, "s32", 4, true, false},
    {Type::S64, "s64", 8, true, false},       {Type::F16, "f16", 2, false, true},
    {Type::BF16, "bf16", 2, false, true},     {Type::F32, "f32", 4, false, true},
    {Type::F64, "f64", 8, false, true},       {Type::F16x2, "f16x2", 4, false, true},
    {Type::BF16x2, "bf16x2", 4, false, true}, {Type::U16x2, "u16x2", 4, false, false},
    {Type::S16x2, "s16x2", 4, true, false},   {Type::TF32, "tf32", 4, false, true},
    {Type::E4M3, "e4m3", 1, false, true},     {Type::E5M2, "e5m2", 1, false, true},
    {Type::E4M3x2, "e4m3x2", 2, false, true}, {Type::E5M2x2, "e5m2x2", 2, false, true},
}};

const TypeRow& row(Type type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

Type type_from_name(std::string_view name) {
  if (name.empty()) return Type::None;
  for (const TypeRow& candidate : kTypes)
    if (candidate.name == name) return candidate.type;
  return Type::None;
}

std::string_view type_name(Type type) { return row(type).name; }
int type_bytes(Type type) { return row(type).bytes; }
bool is_signed(Type type) { return row(type).is_signed; }
bool is_float(Type type) { return row(type).is_float; }

}  // namespace linnet::vgpu
