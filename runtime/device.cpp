#include "linnet/device.h"

#include <fmt/format.h>

#include "runtime/device_impl.h"

namespace linnet {

const Problem& Op::problem() const { return impl_->problem; }
Direction Op::direction() const { return impl_->direction; }
Device Op::device() const { return Device(impl_->device); }
std::vector<ArgumentInfo> Op::arguments() const { return impl_->arguments(); }
void Op::run(std::span<const Argument> arguments, const RunOptions& options) const {
  impl_->run(arguments, options);
}
std::vector<KernelInfo> Op::kernels() const { return impl_->kernels(); }
size_t Op::workspace_bytes(std::span<const Argument> arguments) const {
  return impl_->workspace_bytes(arguments);
}

Cache::Options cache_options(const DeviceOptions& options) {
  Cache::Options cache;
  cache.bundles.insert(cache.bundles.begin(), options.bundles.begin(), options.bundles.end());
  return cache;
}

Device Device::open(const std::string& name, const DeviceOptions& options) {
  if (name == "cpu") return Device(open_cpu(options));
  if (name.starts_with("cuda:") || name.starts_with("virtual:"))
    return Device(open_gpu(name, options));
  throw UserError(
      fmt::format("device: expected cpu, cuda:<number> or virtual:sm_<arch>, got '{}'", name));
}
const std::string& Device::name() const { return impl_->name; }
int Device::threads() const { return impl_->threads(); }
Op Device::build(const Problem& problem, const BuildOptions& options) const {
  return impl_->build(problem, options);
}
Buffer Device::allocate(size_t bytes) const { return impl_->allocate(bytes); }
void Device::write(void* to, const void* from, size_t bytes) const {
  impl_->write(to, from, bytes);
}
void Device::read(void* to, const void* from, size_t bytes) const { impl_->read(to, from, bytes); }
void Device::synchronise() const { impl_->synchronise(); }

}  // namespace linnet
