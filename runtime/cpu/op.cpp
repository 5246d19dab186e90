#include "runtime/cpu/op.h"

#include <fmt/format.h>

#include "runtime/cpu/call.h"

namespace linnet {

CpuOp::CpuOp(const CpuRequest& request, KernelLoader load, std::shared_ptr<Pool> pool,
             int64_t chunk_of_states)
    : request_(request),
      load_(std::move(load)),
      pool_(std::move(pool)),
      main_(load_(request)),
      chunk_of_states_(chunk_of_states) {
  problem = request.problem;
  direction = request.direction;
  for (const KernelArgument& a : main_->kernel.arguments)
    has_grouped_outputs_ |= a.is_output && a.key_heads;
}

std::shared_ptr<const LoadedKernel> CpuOp::variant(const CpuRequest& request) const {
  std::array<int64_t, 4> kind = {request.grouped, request.split, request.value_block,
                                 request.chunk};
  std::lock_guard lock(mutex_);
  auto& known = variants_[kind];
  if (!known) known = load_(request);
  return known;
}

std::vector<ArgumentInfo> CpuOp::arguments() const {
  std::vector<ArgumentInfo> infos;
  for (const KernelArgument& a : main_->kernel.arguments)
    infos.push_back({a.name, shape_text(a, problem), a.result, a.is_output, is_optional(a)});
  std::vector<ArgumentInfo> common = common_arguments(problem, direction);
  infos.insert(infos.end(), common.begin(), common.end());
  return infos;
}

std::vector<KernelInfo> CpuOp::kernels() const {
  std::lock_guard lock(mutex_);
  std::vector<KernelInfo> infos = {main_->info};
  for (const auto& [kind, kernel] : variants_)
    if (kernel) infos.push_back(kernel->info);
  return infos;
}

size_t CpuOp::workspace_bytes(std::span<const Argument> arguments) const {
  Binding binding(rules(), arguments);
  return CpuCall(*this, binding).workspace_bytes() + 64;
}

void CpuOp::run(std::span<const Argument> arguments, const RunOptions& options) const {
  Binding binding(rules(), arguments);
  CpuCall call(*this, binding);
  size_t bytes = call.workspace_bytes() + 64;
  auto aligned = [](void* memory) {
    return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory) + 63) / 64 * 64);
  };
  if (options.workspace) {
    if (options.workspace_bytes < bytes)
      throw UserError(fmt::format("workspace: expected at least {} bytes, got {}", bytes,
                                  options.workspace_bytes));
    return call.run(aligned(options.workspace));
  }
  std::vector<std::byte> memory;
  {
    std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      memory = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (memory.size() < bytes) memory = std::vector<std::byte>(bytes);
  call.run(aligned(memory.data()));
  std::lock_guard lock(mutex_);
  spare_.push_back(std::move(memory));
}

}  // namespace linnet
