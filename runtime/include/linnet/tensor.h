// The caller's memory as an op sees it: a pointer, a number format, sizes and strides. Owns
// nothing.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "linnet/error.h"

namespace linnet {

enum class DType { f32, bf16, f16, i32, i64 };
int64_t size_of(DType type);  // bytes
const char* name_of(DType type);

struct Tensor {
  static constexpr int kMaxRank = 4;
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{}, strides{};  // strides in elements

  // Row-major, without gaps.
  static Tensor dense(void* data, DType dtype, std::initializer_list<int64_t> shape);
  // Memory that is only read.
  static Tensor dense(const void* data, DType dtype, std::initializer_list<int64_t> shape) {
    return dense(const_cast<void*>(data), dtype, shape);
  }
  std::string describe() const;  // "bf16 [1, 4096, 8, 128]"
};

// One argument of a call, by the name the law gives it.
struct Argument {
  Argument(std::string_view name, const Tensor& tensor) : name(name), tensor(tensor) {}
  // A number, such as `scale`.
  Argument(std::string_view name, float number) : name(name), number(number), is_number(true) {}
  std::string_view name;
  Tensor tensor;
  float number = 0;
  bool is_number = false;
};

}  // namespace linnet
