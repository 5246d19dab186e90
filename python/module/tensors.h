// Torch tensors as Linnet sees them: pointer, format, sizes and strides, read through the tensor's
// own methods.
#pragma once

#include <pybind11/pybind11.h>

#include <string_view>
#include <vector>

#include "linnet/tensor.h"

namespace linnet::python {

// The text of a Python string; lives as long as the string.
std::string_view text_of(pybind11::handle string);

// The tensors of one call, and copies of those whose last axis is not dense.
class Tensors {
 public:
  Tensor read(std::string_view name, pybind11::handle object);

 private:
  std::vector<pybind11::object> copies_;
};

}  // namespace linnet::python
