#include "runtime/cpu/op.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cpu/call.h"
#include "runtime/cpu/memory.h"
#include "runtime/log.h"

namespace linnet {

CpuOp::CpuOp(const CpuRequest& request, const Schedules& schedules, bool insist, KernelLoader load,
             std::shared_ptr<Pool> pool)
    : request_(request),
      of_states_(request.schedule),
      schedules_(schedules),
      insist_(insist),
      load_(std::move(load)),
      pool_(std::move(pool)) {
  problem = request.problem;
  direction = request.direction;
  if (!insist) of_states_.chunk = std::min(of_states_.chunk, Schedule().chunk);
  CpuRequest common = request;
  common.schedule =
      schedule_for(direction == Direction::decode ? Length::short_ : Length::medium, 0);
  main_ = variant(common);
  for (const KernelArgument& a : main_->kernel.arguments)
    has_grouped_outputs_ |= a.is_output && a.key_heads;
}

std::shared_ptr<const LoadedKernel> CpuOp::variant(const CpuRequest& request) const {
  std::lock_guard lock(mutex_);
  for (const Variant& known : variants_)
    if (known.grouped == request.grouped && known.schedule == request.schedule) return known.kernel;
  auto kernel = load(request);
  variants_.push_back({request.schedule, request.grouped, kernel});
  return kernel;
}

std::shared_ptr<const LoadedKernel> CpuOp::load(const CpuRequest& request) const {
  try {
    auto kernel = load_(request);
    if (main_ && !std::ranges::equal(main_->kernel.arguments, kernel->kernel.arguments, {},
                                     &KernelArgument::name, &KernelArgument::name))
      throw InternalError("kernels of one op take their arguments in different orders");
    return kernel;
  } catch (const Error& error) {
    // Kernels of one schedule come in several forms; the caller's request is one of them.
    CpuRequest plain = request;
    plain.schedule = request_.schedule;
    plain.schedule.fuse_stages = request.schedule.fuse_stages;
    plain.schedule.sink_products = request.schedule.sink_products;
    if (!request.schedule.fuse_stages) plain.schedule.value_block = request.schedule.value_block;
    if (insist_ || plain.schedule == request.schedule) throw;
    log_info("the tuned schedule \"{}\" is ignored: {}", request.schedule.describe(), error.what());
    return load_(plain);
  }
}

const Schedule& CpuOp::schedule_for(Length length, int64_t states_every) const {
  const Schedule& tuned = schedules_.at({Width::many, length});
  return states_every % tuned.chunk == 0 ? tuned : of_states_;
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
  for (const Variant& variant : variants_)
    if (variant.kernel && variant.kernel != main_) infos.push_back(variant.kernel->info);
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
  std::optional<Buffer> memory;
  {
    std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      memory = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (!memory || memory->bytes() < bytes) memory = allocate_on_host(bytes);
  call.run(aligned(memory->data()));
  std::lock_guard lock(mutex_);
  spare_.push_back(std::move(*memory));
}

}  // namespace linnet
