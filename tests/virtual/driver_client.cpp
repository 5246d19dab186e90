#include "driver_client.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <stdexcept>

namespace linnet::vgpu::testing {
namespace {

DriverClient load() {
  void* library = dlopen(LINNET_VIRTUAL_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  DriverClient client{};
  const auto bind = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) throw std::runtime_error(std::string("libcuda.so.1 lacks ") + name);
  };
#define BIND(name) bind(#name, client.name)
  BIND(cuInit);
  BIND(cuDriverGetVersion);
  BIND(cuDeviceGet);
  BIND(cuDeviceGetCount);
  BIND(cuDeviceGetName);
  BIND(cuDeviceGetAttribute);
  BIND(cuDevicePrimaryCtxRetain);
  BIND(cuCtxSetCurrent);
  BIND(cuCtxSynchronize);
  BIND(cuModuleLoadData);
  BIND(cuModuleUnload);
  BIND(cuModuleGetFunction);
  BIND(cuModuleGetGlobal_v2);
  BIND(cuFuncGetAttribute);
  BIND(cuFuncSetAttribute);
  BIND(cuMemAlloc_v2);
  BIND(cuMemFree_v2);
  BIND(cuMemAllocAsync);
  BIND(cuMemFreeAsync);
  BIND(cuMemcpyHtoD_v2);
  BIND(cuMemcpyDtoH_v2);
  BIND(cuMemcpyDtoDAsync_v2);
  BIND(cuMemsetD32_v2);
  BIND(cuMemHostAlloc);
  BIND(cuMemFreeHost);
  BIND(cuPointerGetAttribute);
  BIND(cuStreamCreate);
  BIND(cuStreamDestroy_v2);
  BIND(cuStreamSynchronize);
  BIND(cuStreamBeginCapture_v2);
  BIND(cuStreamEndCapture);
  BIND(cuGraphInstantiateWithFlags);
  BIND(cuGraphLaunch);
  BIND(cuGraphDestroy);
  BIND(cuGraphExecDestroy);
  BIND(cuEventCreate);
  BIND(cuEventRecord);
  BIND(cuEventSynchronize);
  BIND(cuEventElapsedTime);
  BIND(cuEventDestroy_v2);
  BIND(cuLaunchKernel);
  BIND(cuGetErrorName);
  BIND(cuGetProcAddress_v2);
  BIND(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  BIND(linnet_virtual_last_error);
  BIND(linnet_virtual_findings);
  BIND(linnet_virtual_counts);
  BIND(linnet_virtual_set);
  BIND(linnet_virtual_reset);
#undef BIND
  return client;
}

}  // namespace

DriverClient& DriverClient::get() {
  static DriverClient client = [] {
    DriverClient loaded = load();
    Handle context = nullptr;
    // Whatever the environment says, these tests describe one device.
    loaded.linnet_virtual_set("arch", "sm_90");
    if (loaded.cuInit(0) || loaded.cuDevicePrimaryCtxRetain(&context, 0) ||
        loaded.cuCtxSetCurrent(context))
      throw std::runtime_error(loaded.linnet_virtual_last_error());
    return loaded;
  }();
  return client;
}

Session::Session(const std::string& ptx) {
  DriverClient& cuda = DriverClient::get();
  cuda.linnet_virtual_reset();
  const int result = cuda.cuModuleLoadData(&module_, ptx.c_str());
  REQUIRE_MESSAGE(result == 0, cuda.linnet_virtual_last_error());
}

Session::~Session() {
  DriverClient& cuda = DriverClient::get();
  cuda.linnet_virtual_reset();
  for (const DevicePointer address : allocations_) cuda.cuMemFree_v2(address);
  cuda.cuModuleUnload(module_);
}

DevicePointer Session::allocate(size_t bytes) {
  DevicePointer address = 0;
  REQUIRE(DriverClient::get().cuMemAlloc_v2(&address, bytes) == 0);
  allocations_.push_back(address);
  return address;
}

Handle Session::function(const std::string& name) {
  Handle found = nullptr;
  REQUIRE(DriverClient::get().cuModuleGetFunction(&found, module_, name.c_str()) == 0);
  return found;
}

int Session::launch(const std::string& name, unsigned grid, unsigned block,
                    std::vector<void*> params, unsigned shared) {
  DriverClient& cuda = DriverClient::get();
  const int result = cuda.cuLaunchKernel(function(name), grid, 1, 1, block, 1, 1, shared, nullptr,
                                         params.data(), nullptr);
  REQUIRE_MESSAGE(result == 0, cuda.linnet_virtual_last_error());
  return cuda.cuCtxSynchronize();
}

void Session::copy_in(DevicePointer to, const void* from, size_t bytes) {
  REQUIRE(DriverClient::get().cuMemcpyHtoD_v2(to, from, bytes) == 0);
}

void Session::copy_out(void* to, DevicePointer from, size_t bytes) {
  const int result = DriverClient::get().cuMemcpyDtoH_v2(to, from, bytes);
  REQUIRE_MESSAGE(result == 0, DriverClient::get().linnet_virtual_last_error());
}

}  // namespace linnet::vgpu::testing
