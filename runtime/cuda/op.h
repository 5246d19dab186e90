// An op on a GPU: a module, and the launches that compute the op.
#pragma once

#include <functional>
#include <map>
#include <mutex>

#include "linnet/compiler.h"
#include "runtime/binding.h"
#include "runtime/cuda/device.h"
#include "runtime/device_impl.h"
#include "runtime/tuning/table.h"

namespace linnet {

// Kernels that can be launched.
struct LoadedProgram {
  LoadedProgram(CudaProgram program, const std::string& image, KernelInfo about,
                std::shared_ptr<cuda::Device> device);
  CudaProgram program;
  KernelInfo info;
  cuda::Module module;
  std::vector<cuda::Handle> functions;
};

using ProgramLoader = std::function<std::shared_ptr<const LoadedProgram>(const CudaRequest&)>;

class CudaOp : public Op::Impl {
 public:
  // Loads the kernels of the common case; others when a call first needs them. A schedule that does
  // not fit is a line in the log, and the request's own is taken, unless `insist`.
  CudaOp(const CudaRequest& request, const Schedules& schedules, bool insist, ProgramLoader load,
         std::shared_ptr<cuda::Device> device);

  void run(std::span<const Argument> arguments, const RunOptions& options) const override;
  size_t workspace_bytes(std::span<const Argument> arguments) const override;
  std::vector<ArgumentInfo> arguments() const override;
  std::vector<KernelInfo> kernels() const override;

 private:
  friend class CudaCall;
  Binding::Rules rules() const {
    return {main_->program.arguments, request_.schedule.chunk, problem, direction, /*on_gpu=*/true};
  }
  // The kernels for a call's shape. All of an op add their sums in the same order. While a stream
  // is captured nothing may be loaded: then what is there is taken.
  std::shared_ptr<const LoadedProgram> program_for(const Binding& binding, bool may_load) const;
  std::shared_ptr<const LoadedProgram> load(const Schedule& schedule) const;

  CudaRequest request_;  // with the schedule that always fits
  Schedules schedules_;
  bool insist_;
  ProgramLoader load_;
  std::shared_ptr<cuda::Device> gpu_;
  std::shared_ptr<const LoadedProgram> main_;
  mutable std::vector<std::pair<Schedule, std::shared_ptr<const LoadedProgram>>> programs_;
  // Workspaces of calls that bring none. Calls on one stream come one after another; those on
  // several do not.
  mutable std::mutex mutex_;
  mutable std::map<cuda::Handle, std::unique_ptr<cuda::Buffer>> own_;
};

}  // namespace linnet
