// An op on the CPU: kernels in memory, and how their work is divided.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <mutex>
#include <vector>

#include "runtime/binding.h"
#include "runtime/cpu/code.h"
#include "runtime/cpu/processor.h"
#include "runtime/device_impl.h"
#include "runtime/tuning/table.h"

namespace linnet {

// A kernel that can be called.
struct LoadedKernel {
  explicit LoadedKernel(CpuKernel from, KernelInfo about = {})
      : kernel(std::move(from)), info(std::move(about)), code(kernel.code) {
    info.chunk = kernel.chunk;
    info.value_block = kernel.value_block;
    info.loops = static_cast<int64_t>(kernel.entries.size());
    info.bytes = static_cast<int64_t>(kernel.code.size());
    info.workspace = (kernel.kept_floats + kernel.passed_floats) * 4;
    std::vector<std::string> missing;
    for (const std::string& feature : kernel.needs)
      if (!Processor::host().has(feature)) missing.push_back(feature);
    if (kernel.uses_matrix_unit && !allow_matrix_unit()) missing.push_back("amx_bf16");
    lacking = fmt::format("{}", fmt::join(missing, ", "));
    for (const auto& entry : kernel.entries) functions.push_back(code.at(entry.offset));
    kernel.code.clear();
  }
  CpuKernel kernel;
  KernelInfo info;
  Code code;
  std::vector<Code::Function> functions;
  std::string lacking;  // what it needs of a processor and this one does not have
};

using KernelLoader = std::function<std::shared_ptr<const LoadedKernel>(const CpuRequest&)>;

class CpuOp : public Op::Impl {
 public:
  // Loads the kernel of the common case; others when a call first needs them. A schedule that does
  // not fit is a line in the log, and the request's own is taken, unless `insist`.
  CpuOp(const CpuRequest& request, const Schedules& schedules, bool insist, KernelLoader load,
        std::shared_ptr<Pool> pool);

  void run(std::span<const Argument> arguments, const RunOptions& options) const override;
  size_t workspace_bytes(std::span<const Argument> arguments) const override;
  std::vector<ArgumentInfo> arguments() const override;
  std::vector<KernelInfo> kernels() const override;

 private:
  friend class CpuCall;
  Binding::Rules rules() const {
    return {main_->kernel.arguments, of_states_.chunk, problem, direction};
  }
  // How a sequence is run: by its own length only, so that its results are the same in any batch.
  const Schedule& schedule_for(Length length, int64_t states_every) const;
  std::shared_ptr<const LoadedKernel> variant(const CpuRequest& request) const;
  std::shared_ptr<const LoadedKernel> load(const CpuRequest& request) const;

  CpuRequest request_;  // with the schedule that always fits
  Schedule of_states_;  // of calls that want states between chunks the tuned one does not end at
  Schedules schedules_;
  bool insist_ = false;
  KernelLoader load_;
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<const LoadedKernel> main_;
  bool has_grouped_outputs_ = false;
  struct Variant {
    Schedule schedule;
    bool grouped;
    std::shared_ptr<const LoadedKernel> kernel;
  };
  mutable std::vector<Variant> variants_;
  // Memory of calls that bring none, kept for the next.
  mutable std::mutex mutex_;
  mutable std::vector<Buffer> spare_;
};

}  // namespace linnet
