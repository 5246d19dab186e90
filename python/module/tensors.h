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

// The tensors of one call, all on the CPU or (for an op on a GPU) all on GPUs, and copies of those
// that do not lie as a kernel reads them.
class Tensors {
 public:
  explicit Tensors(bool for_gpu) : for_gpu_(for_gpu) {}
  // What is written is not copied: the kernel's own checks refuse it.
  Tensor read(std::string_view name, pybind11::handle object, bool is_output);
  bool on_cpu() const { return on_cpu_; }

 private:
  bool is_fit(std::string_view name, const Tensor& tensor) const;
  void check_device(std::string_view name, pybind11::handle object);

  bool for_gpu_, on_cpu_ = true, first_ = true;
  std::vector<pybind11::object> copies_;
};

}  // namespace linnet::python
