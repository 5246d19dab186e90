// What a kind of device implements behind the public handles.
#pragma once

#include "linnet/device.h"

namespace linnet {

class Op::Impl {
 public:
  virtual ~Impl() = default;
  virtual void run(std::span<const Argument> arguments, const RunOptions& options) const = 0;
  virtual size_t workspace_bytes(std::span<const Argument> arguments) const = 0;
  virtual std::vector<ArgumentInfo> arguments() const = 0;
  Problem problem;
  Direction direction = Direction::forward;
};

class Device::Impl {
 public:
  virtual ~Impl() = default;
  virtual Op build(const Problem& problem, const BuildOptions& options) const = 0;
  virtual Buffer allocate(size_t bytes) const = 0;
  virtual int threads() const = 0;
  std::string name;
};

std::shared_ptr<const Device::Impl> open_cpu(const DeviceOptions& options);

}  // namespace linnet
