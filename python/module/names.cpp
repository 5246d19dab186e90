#include "python/module/names.h"

#include <utility>

namespace linnet::python {

namespace {

constexpr std::pair<const char*, DType> kTypes[] = {{"float32", DType::f32},
                                                    {"bfloat16", DType::bf16},
                                                    {"float16", DType::f16},
                                                    {"int32", DType::i32},
                                                    {"int64", DType::i64}};
constexpr std::pair<const char*, Gate> kGates[] = {
    {"pre", Gate::pre}, {"softplus", Gate::softplus}, {"bounded", Gate::bounded}};
constexpr std::pair<const char*, Beta> kBetas[] = {
    {"plain", Beta::plain}, {"sigmoid", Beta::sigmoid}, {"twice_sigmoid", Beta::twice_sigmoid}};
constexpr std::pair<const char*, Direction> kDirections[] = {{"forward", Direction::forward},
                                                             {"backward", Direction::backward},
                                                             {"decode", Direction::decode}};

template <typename T, size_t n>
T find(const std::pair<const char*, T> (&table)[n], const std::string& argument,
       const std::string& name) {
  std::string known;
  for (const auto& [word, value] : table) {
    if (name == word) return value;
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  throw UserError(argument + ": expected one of " + known + "; got '" + name + "'");
}

}  // namespace

DType dtype_of(const std::string& argument, const std::string& name) {
  return find(kTypes, argument, name);
}

const char* torch_name(DType type) {
  for (const auto& [word, value] : kTypes)
    if (value == type) return word;
  return "?";
}

Gate gate_of(const std::string& name) { return find(kGates, "gate", name); }
Beta beta_of(const std::string& name) { return find(kBetas, "beta", name); }
Direction direction_of(const std::string& name) { return find(kDirections, "direction", name); }

const char* name_of(Direction direction) {
  for (const auto& [word, value] : kDirections)
    if (value == direction) return word;
  return "?";
}

std::string describe(const Tensor& tensor) {
  std::string sizes;
  for (int i = 0; i < tensor.rank; ++i) sizes += (i ? ", " : "") + std::to_string(tensor.shape[i]);
  return std::string(torch_name(tensor.dtype)) + " [" + sizes + "]";
}

}  // namespace linnet::python
