#include "runtime/cuda/device.h"

#include <fmt/format.h>

#include <charconv>
#include <mutex>
#include <utility>

#include "linnet/error.h"
#include "runtime/environment.h"

namespace linnet::cuda {

namespace {

std::filesystem::path library_for(bool is_virtual) {
  if (auto chosen = environment::get(environment::cuda_driver)) return *chosen;
  if (is_virtual)
    for (const auto& folder : own_folders())
      for (const char* where : {"virtual", "../lib/virtual"})
        if (auto path = folder / where / "libcuda.so.1"; std::filesystem::exists(path)) return path;
  return "libcuda.so.1";
}

}  // namespace

std::shared_ptr<Device> Device::open(const std::string& name) {
  static std::mutex mutex;
  static std::weak_ptr<Device> opened;
  static std::string opened_name, played;
  std::lock_guard lock(mutex);
  if (auto device = opened.lock(); device && opened_name == name) return device;
  bool is_virtual = name.starts_with("virtual:sm_");
  if (!is_virtual && !name.starts_with("cuda:"))
    throw UserError(
        fmt::format("device: expected cuda:<number> or virtual:sm_<arch>, got '{}'", name));
  std::string rest = name.substr(name.find(':') + 1);
  if (is_virtual && !played.empty() && played != rest)
    throw DeviceError(fmt::format(
        "device: this process already plays {}, so {} needs a process of its own", played, name));
  int ordinal = 0;
  if (!is_virtual) {
    auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), ordinal);
    if (error != std::errc() || end != rest.data() + rest.size() || ordinal < 0)
      throw UserError(fmt::format("device: expected cuda:<number>, got '{}'", name));
  }
  std::shared_ptr<Device> device(
      new Device(library_for(is_virtual), ordinal, is_virtual ? rest : ""));
  if (is_virtual) played = rest;
  opened = device;
  opened_name = name;
  return device;
}

// Delegates, so that the destructor gives back what there is already if the rest fails.
Device::Device(const std::filesystem::path& library, int ordinal, const std::string& virtual_arch)
    : Device(library) {
  if (!virtual_arch.empty()) {
    if (!driver_.virtual_set)
      throw DeviceError(
          fmt::format("device: expected the virtual GPU's library, got {}", library.string()));
    driver_.virtual_set("arch", virtual_arch.c_str());  // refused once it runs; compared below
  }
  driver_.check(driver_.cuInit(0), "cuInit");
  int count = 0;
  driver_.check(driver_.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (ordinal >= count)
    throw DeviceError(fmt::format("device: expected a number below {}, the GPUs there are; got {}",
                                  count, ordinal));
  driver_.check(driver_.cuDeviceGet(&device_, ordinal), "cuDeviceGet");
  int major = 0, minor = 0;
  auto attribute = [&](int& value, int which) {
    driver_.check(driver_.cuDeviceGetAttribute(&value, which, device_), "cuDeviceGetAttribute");
  };
  attribute(major, kComputeCapabilityMajor);
  attribute(minor, kComputeCapabilityMinor);
  attribute(max_shared_bytes_, kMaxSharedBytesPerBlockOptin);
  attribute(processors_, kProcessors);
  arch_ = fmt::format("sm_{}{}", major, minor);
  if (!virtual_arch.empty() && arch_ != virtual_arch)
    throw DeviceError(fmt::format("device: expected a virtual GPU that plays {}, it plays {}",
                                  virtual_arch, arch_));
  driver_.check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  driver_.check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  driver_.check(driver_.cuStreamCreate(&stream_, /*non-blocking*/ 1), "cuStreamCreate");
}

Device::~Device() {
  if (stream_) release([&](const Driver& driver) { driver.cuStreamDestroy_v2(stream_); });
  if (context_) driver_.cuDevicePrimaryCtxRelease_v2(device_);
}

void Device::make_current() const {
  driver_.check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

void Device::synchronise() const {
  make_current();
  driver_.check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

Buffer::Buffer(std::shared_ptr<Device> device, size_t bytes)
    : device_(std::move(device)), bytes_(bytes) {
  device_->make_current();
  device_->driver().check(device_->driver().cuMemAlloc_v2(&address_, std::max<size_t>(bytes, 16)),
                          fmt::format("allocating {} bytes", bytes));
}
Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::move(other.device_)),
      address_(std::exchange(other.address_, 0)),
      bytes_(other.bytes_) {}
Buffer::~Buffer() {
  if (address_) device_->release([&](const Driver& driver) { driver.cuMemFree_v2(address_); });
}

void Buffer::copy_from(const void* host, size_t bytes) {
  if (bytes == 0) return;
  const Driver& driver = device_->driver();
  device_->make_current();
  driver.check(driver.cuMemcpyHtoDAsync_v2(address_, host, bytes, device_->stream()),
               fmt::format("copying {} bytes to the device", bytes));
  device_->synchronise();
}
void Buffer::copy_to(void* host, size_t bytes) const {
  if (bytes == 0) return;
  const Driver& driver = device_->driver();
  device_->make_current();
  driver.check(driver.cuMemcpyDtoHAsync_v2(host, address_, bytes, device_->stream()),
               fmt::format("copying {} bytes from the device", bytes));
  device_->synchronise();
}

Module::Module(std::shared_ptr<Device> device, const std::string& image)
    : device_(std::move(device)) {
  device_->make_current();
  device_->driver().check(device_->driver().cuModuleLoadData(&module_, image.c_str()),
                          "loading a module");
}
Module::Module(Module&& other) noexcept
    : device_(std::move(other.device_)), module_(std::exchange(other.module_, nullptr)) {}
Module::~Module() {
  if (module_) device_->release([&](const Driver& driver) { driver.cuModuleUnload(module_); });
}

Handle Module::function(const std::string& name) const {
  Handle function = nullptr;
  device_->driver().check(device_->driver().cuModuleGetFunction(&function, module_, name.c_str()),
                          fmt::format("kernel {}", name));
  return function;
}

Handle prepare(const Module& module, const std::string& kernel, int shared_bytes) {
  Device& device = module.device();
  if (shared_bytes > device.max_shared_bytes())
    throw DeviceError(fmt::format("{}: expected at most {} bytes of shared memory on {}, needs {}",
                                  kernel, device.max_shared_bytes(), device.arch(), shared_bytes));
  Handle function = module.function(kernel);
  device.driver().check(
      device.driver().cuFuncSetAttribute(function, kFunctionMaxDynamicSharedBytes, shared_bytes),
      kernel);
  return function;
}

void launch(const Device& device, Handle function, const std::string& kernel, long long blocks,
            unsigned threads, int shared_bytes, Handle stream, void** parameters) {
  if (blocks == 0) return;
  if (blocks > 0x7fffffff)
    throw UserError(fmt::format("{}: expected at most 2^31 - 1 blocks, needs {}", kernel, blocks));
  int result =
      device.driver().cuLaunchKernel(function, static_cast<unsigned>(blocks), 1, 1, threads, 1, 1,
                                     shared_bytes, stream, parameters, nullptr);
  if (result != 0)
    device.driver().check(result,
                          fmt::format("{} on {} blocks of {} threads", kernel, blocks, threads));
}

void launch(const Module& module, const std::string& kernel, long long blocks, unsigned threads,
            int shared_bytes, std::vector<void*> parameters) {
  launch(module.device(), prepare(module, kernel, shared_bytes), kernel, blocks, threads,
         shared_bytes, module.device().stream(), parameters.data());
}

}  // namespace linnet::cuda
