// Where ops run, and ops built for there: the C++ embedding API.
//
//   auto device = linnet::Device::open("cpu");
//   auto op = device.build({.op = "kda", .dtype = linnet::DType::bf16});
//   op.run({{"q", q}, {"k", k}, {"v", v}, {"g", g}, {"beta", beta}, {"scale", 0.088f}, {"o", o}});
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "linnet/pool.h"
#include "linnet/problem.h"
#include "linnet/schedule.h"

namespace linnet {

struct DeviceOptions {
  int threads = 0;             // 0: LINNET_THREADS, or one a core
  std::shared_ptr<Pool> pool;  // the caller's own threads, instead of ours
  // Directories of kernels compiled ahead (linnet/bundle.h), looked in before those of
  // LINNET_BUNDLE and the cache.
  std::vector<std::string> bundles;
};

struct BuildOptions {
  Direction direction = Direction::forward;
  // How; none: the schedule that was tuned for this device, the problem and each call's shape, or
  // the default (docs/autotune.md).
  std::optional<Schedule> schedule;
  int64_t chunk = 0;  // tokens of a chunk, with everything else as by default; 0: by the schedule
  // cpu: code for this processor (LLVM's name, e.g. "x86-64-v3") instead of the one it runs on.
  std::string target_cpu;
};

struct RunOptions {
  // Memory of at least workspace_bytes(arguments); none: the op keeps its own.
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  void* stream = nullptr;  // GPUs: a CUstream to launch on; none: the device's own
};

// What an op takes and gives.
struct ArgumentInfo {
  std::string name;
  std::string shape;  // "[B, T, H, K]"
  DType dtype;
  bool is_output, is_optional;
};

// A kernel of an op, for those who want to know.
struct KernelInfo {
  std::string what;         // it was asked for
  std::string key;          // of its entry in the cache
  bool from_cache = false;  // or compiled by this process
  int64_t chunk = 0;        // tokens
  int64_t value_block = 0;  // value channels of one call
  int64_t loops = 0;        // over chunks; on a GPU, launches
  int64_t bytes = 0;        // of code
  int64_t workspace = 0;    // bytes of one chunk and head
};

class Device;

// Several kernels that compute one problem. A handle: copies share. May be run by several threads
// at a time.
class Op {
 public:
  const Problem& problem() const;
  Direction direction() const;
  Device device() const;
  std::vector<ArgumentInfo> arguments() const;
  // Throws UserError that names the argument, what was expected and what came, before any work.
  void run(std::span<const Argument> arguments, const RunOptions& options = {}) const;
  void run(std::initializer_list<Argument> arguments, const RunOptions& options = {}) const {
    run(std::span(arguments.begin(), arguments.size()), options);
  }
  // Those loaded so far: some are when a call first needs them.
  std::vector<KernelInfo> kernels() const;
  // What run needs for these arguments (their memory is not looked at but for cu_seqlens).
  size_t workspace_bytes(std::span<const Argument> arguments) const;

  class Impl;
  explicit Op(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

// Memory of a device, freed with the last copy.
class Buffer {
 public:
  void* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }
  Buffer(std::shared_ptr<void> memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}

 private:
  std::shared_ptr<void> memory_;
  size_t bytes_;
};

class Device {
 public:
  // "cpu", "cuda:0", or "virtual:sm_90": the same kernels on the PTX executor. Throws UserError for
  // a name it does not know, DeviceError if the device is not there.
  static Device open(const std::string& name, const DeviceOptions& options = {});
  const std::string& name() const;
  int threads() const;
  // Takes kernels from the cache, or compiles them. Throws UserError for a problem that does not
  // fit its law.
  Op build(const Problem& problem, const BuildOptions& options = {}) const;
  Buffer allocate(size_t bytes) const;  // aligned to 64 bytes, not cleared
  // Between the caller's memory and the device's; done when they return.
  void write(void* to, const void* from, size_t bytes) const;
  void read(void* to, const void* from, size_t bytes) const;
  void synchronise() const;  // waits for everything that was launched on the device's own stream

  class Impl;
  explicit Device(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace linnet
