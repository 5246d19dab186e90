// A GPU, real or virtual, with the things it owns: modules, memory, a stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"

namespace linnet::cuda {

class Device {
 public:
  // "cuda:0", or "virtual:sm_90": the PTX executor, named for the architecture it plays. A process
  // has at most one virtual device. Throws UserError for another name, DeviceError if it is not
  // there.
  static std::shared_ptr<Device> open(const std::string& name);
  ~Device();

  const Driver& driver() const { return driver_; }
  const std::string& arch() const { return arch_; }  // "sm_90"
  int handle() const { return device_; }             // the driver's number of it
  int processors() const { return processors_; }     // multiprocessors
  int max_shared_bytes() const { return max_shared_bytes_; }
  Handle stream() const { return stream_; }
  void make_current() const;  // in this thread
  // For destructors, on whatever thread: nothing can be done about what goes wrong.
  template <class F>
  void release(const F& give_back) const {
    driver_.cuCtxSetCurrent(context_);
    give_back(driver_);
  }
  void synchronise() const;

 private:
  explicit Device(const std::filesystem::path& library) : driver_(library) {}
  Device(const std::filesystem::path& library, int ordinal, const std::string& virtual_arch);
  Driver driver_;
  int device_ = 0;
  Handle context_ = nullptr, stream_ = nullptr;
  std::string arch_;
  int max_shared_bytes_ = 0, processors_ = 0;
};

class Buffer {
 public:
  Buffer(std::shared_ptr<Device> device, size_t bytes);
  Buffer(Buffer&& other) noexcept;
  ~Buffer();

  DevicePointer address() const { return address_; }
  size_t bytes() const { return bytes_; }
  void copy_from(const void* host, size_t bytes);
  void copy_to(void* host, size_t bytes) const;  // waits for it

 private:
  std::shared_ptr<Device> device_;
  DevicePointer address_ = 0;
  size_t bytes_ = 0;
};

class Module {
 public:
  // From PTX or a cubin.
  Module(std::shared_ptr<Device> device, const std::string& image);
  Module(Module&& other) noexcept;
  ~Module();

  Device& device() const { return *device_; }
  Handle function(const std::string& name) const;

 private:
  std::shared_ptr<Device> device_;
  Handle module_ = nullptr;
};

// A kernel of a module, allowed the shared memory it asks for. Throws DeviceError if the device has
// not as much.
Handle prepare(const Module& module, const std::string& kernel, int shared_bytes);

// Launches a kernel; `parameters` point to its arguments. Throws DeviceError that names kernel and
// grid.
void launch(const Device& device, Handle function, const std::string& kernel, long long blocks,
            unsigned threads, int shared_bytes, Handle stream, void** parameters);
void launch(const Module& module, const std::string& kernel, long long blocks, unsigned threads,
            int shared_bytes, std::vector<void*> parameters);

}  // namespace linnet::cuda
