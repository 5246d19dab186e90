// An op as Python calls it: arguments by name, on the CPU, on a GPU, or copied to one.
#pragma once

#include <pybind11/pybind11.h>

#include "linnet/device.h"
#include "python/module/tensors.h"

namespace linnet::python {

class BoundOp {
 public:
  explicit BoundOp(Op op);

  // Arguments by name: tensors, or numbers. `stream` is a CUstream for tensors on a GPU. The GIL is
  // free while the kernels run.
  void run(const pybind11::dict& given, uintptr_t stream) const;

  const std::vector<ArgumentInfo>& arguments() const { return infos_; }
  const Op& op() const { return op_; }

 private:
  const ArgumentInfo* info_of(std::string_view name) const;
  void check(std::string_view name, const Tensor& tensor, const ArgumentInfo& info) const;
  void run_staged(std::vector<Argument>& arguments) const;

  Op op_;
  bool on_gpu_;
  std::vector<ArgumentInfo> infos_;
};

}  // namespace linnet::python
