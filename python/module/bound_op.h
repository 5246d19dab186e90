// An op as Python calls it: arguments by name, on the CPU, on a GPU, or copied to one.
#pragma once

#include <pybind11/pybind11.h>

#include "linnet/device.h"
#include "python/module/tensors.h"

namespace linnet::python {

class BoundOp {
 public:
  explicit BoundOp(Op op);

  // Arguments by name: tensors, or numbers. For tensors on a GPU `stream` is a CUstream, and
  // `workspace` memory there of workspace_bytes. The GIL is free while the kernels run.
  void run(const pybind11::dict& given, uintptr_t stream, uintptr_t workspace,
           size_t workspace_bytes) const;
  size_t workspace_bytes(const pybind11::dict& given) const;

  const std::vector<ArgumentInfo>& arguments() const { return infos_; }
  // Whether there is an argument of that name. A law's input that a kernel has no use for is none.
  bool takes(std::string_view name) const { return info_of(name) != nullptr; }
  const Op& op() const { return op_; }
  bool on_gpu() const { return on_gpu_; }

 private:
  std::vector<Argument> read(const pybind11::dict& given, Tensors& tensors) const;
  const ArgumentInfo* info_of(std::string_view name) const;
  void check(std::string_view name, const Tensor& tensor, const ArgumentInfo& info) const;
  void run_staged(std::vector<Argument>& arguments) const;

  Op op_;
  bool on_gpu_;
  std::vector<ArgumentInfo> infos_;
};

}  // namespace linnet::python
