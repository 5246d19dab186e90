#include "linnet/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace linnet {

int64_t size_of(DType type) {
  static constexpr int64_t bytes[] = {4, 2, 2, 4, 8};
  auto index = static_cast<size_t>(type);
  return index < std::size(bytes) ? bytes[index] : 1;
}

const char* name_of(DType type) {
  static constexpr const char* names[] = {"f32", "bf16", "f16", "i32", "i64"};
  auto index = static_cast<size_t>(type);
  return index < std::size(names) ? names[index] : "an unknown format";
}

Tensor Tensor::dense(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  if (shape.size() > kMaxRank)
    throw UserError(fmt::format("shape: expected at most {} axes, got {}", kMaxRank, shape.size()));
  Tensor tensor{.data = data, .dtype = dtype, .rank = static_cast<int>(shape.size())};
  std::copy(shape.begin(), shape.end(), tensor.shape.begin());
  int64_t stride = 1;
  for (int i = tensor.rank; i-- > 0; stride *= tensor.shape[i]) tensor.strides[i] = stride;
  return tensor;
}

std::string Tensor::describe() const {
  return fmt::format("{} [{}]", name_of(dtype),
                     fmt::join(shape.begin(), shape.begin() + std::clamp(rank, 0, kMaxRank), ", "));
}

}  // namespace linnet
