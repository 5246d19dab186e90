// What a kind of device implements behind the public handles.
#pragma once

#include "linnet/device.h"
#include "runtime/cache/cache.h"

namespace linnet {

class Device::Impl : public std::enable_shared_from_this<Device::Impl> {
 public:
  virtual ~Impl() = default;
  virtual Op build(const Problem& problem, const BuildOptions& options) const = 0;
  virtual Buffer allocate(size_t bytes) const = 0;
  virtual void write(void* to, const void* from, size_t bytes) const = 0;
  virtual void read(void* to, const void* from, size_t bytes) const = 0;
  virtual void synchronise() const = 0;
  virtual int threads() const = 0;
  std::string name;
};

class Op::Impl {
 public:
  virtual ~Impl() = default;
  virtual void run(std::span<const Argument> arguments, const RunOptions& options) const = 0;
  virtual size_t workspace_bytes(std::span<const Argument> arguments) const = 0;
  virtual std::vector<ArgumentInfo> arguments() const = 0;
  virtual std::vector<KernelInfo> kernels() const = 0;
  std::shared_ptr<const Device::Impl> device;
  Problem problem;
  Direction direction = Direction::forward;
};

// The cache a device takes kernels from.
Cache::Options cache_options(const DeviceOptions& options);

std::shared_ptr<const Device::Impl> open_cpu(const DeviceOptions& options);
std::shared_ptr<const Device::Impl> open_gpu(const std::string& name, const DeviceOptions& options);

}  // namespace linnet
