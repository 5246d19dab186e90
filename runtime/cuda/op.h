// An op on a GPU: a module, and the launches that compute the op.
#pragma once

#include <mutex>

#include "linnet/compiler.h"
#include "runtime/binding.h"
#include "runtime/cuda/device.h"
#include "runtime/device_impl.h"

namespace linnet {

class CudaOp : public Op::Impl {
 public:
  CudaOp(CudaProgram program, const std::string& image, std::shared_ptr<cuda::Device> device);

  void run(std::span<const Argument> arguments, const RunOptions& options) const override;
  size_t workspace_bytes(std::span<const Argument> arguments) const override;
  std::vector<ArgumentInfo> arguments() const override;
  std::vector<KernelInfo> kernels() const override { return {info}; }

  KernelInfo info;

 private:
  friend class CudaCall;
  Binding::Rules rules() const {
    return {program_.arguments, program_.chunk, problem, direction, /*on_gpu=*/true};
  }

  CudaProgram program_;
  std::shared_ptr<cuda::Device> gpu_;
  cuda::Module module_;
  std::vector<cuda::Handle> functions_;
  // The workspace of calls that bring none. Calls on the device's own stream come one after
  // another.
  mutable std::mutex mutex_;
  mutable std::unique_ptr<cuda::Buffer> own_;
};

}  // namespace linnet
