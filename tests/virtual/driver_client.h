// The virtual libcuda.so.1 as a client sees it: loaded with dlopen, called through C functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace linnet::vgpu::testing {

using DevicePointer = unsigned long long;
using Handle = void*;

struct DriverClient {
  static DriverClient& get();  // initialised, with a current context

  int (*cuInit)(unsigned);
  int (*cuDriverGetVersion)(int*);
  int (*cuDeviceGet)(int*, int);
  int (*cuDeviceGetCount)(int*);
  int (*cuDeviceGetName)(char*, int, int);
  int (*cuDeviceGetAttribute)(int*, int, int);
  int (*cuDevicePrimaryCtxRetain)(Handle*, int);
  int (*cuCtxSetCurrent)(Handle);
  int (*cuCtxSynchronize)();
  int (*cuModuleLoadData)(Handle*, const void*);
  int (*cuModuleUnload)(Handle);
  int (*cuModuleGetFunction)(Handle*, Handle, const char*);
  int (*cuModuleGetGlobal_v2)(DevicePointer*, size_t*, Handle, const char*);
  int (*cuFuncGetAttribute)(int*, int, Handle);
  int (*cuFuncSetAttribute)(Handle, int, int);
  int (*cuMemAlloc_v2)(DevicePointer*, size_t);
  int (*cuMemFree_v2)(DevicePointer);
  int (*cuMemAllocAsync)(DevicePointer*, size_t, Handle);
  int (*cuMemFreeAsync)(DevicePointer, Handle);
  int (*cuMemcpyHtoD_v2)(DevicePointer, const void*, size_t);
  int (*cuMemcpyDtoH_v2)(void*, DevicePointer, size_t);
  int (*cuMemcpyDtoDAsync_v2)(DevicePointer, DevicePointer, size_t, Handle);
  int (*cuMemsetD32_v2)(DevicePointer, unsigned, size_t);
  int (*cuMemHostAlloc)(void**, size_t, unsigned);
  int (*cuMemFreeHost)(void*);
  int (*cuPointerGetAttribute)(void*, int, DevicePointer);
  int (*cuStreamCreate)(Handle*, unsigned);
  int (*cuStreamDestroy_v2)(Handle);
  int (*cuStreamSynchronize)(Handle);
  int (*cuStreamBeginCapture_v2)(Handle, int);
  int (*cuStreamEndCapture)(Handle, Handle*);
  int (*cuGraphInstantiateWithFlags)(Handle*, Handle, unsigned long long);
  int (*cuGraphLaunch)(Handle, Handle);
  int (*cuGraphDestroy)(Handle);
  int (*cuGraphExecDestroy)(Handle);
  int (*cuEventCreate)(Handle*, unsigned);
  int (*cuEventRecord)(Handle, Handle);
  int (*cuEventSynchronize)(Handle);
  int (*cuEventElapsedTime)(float*, Handle, Handle);
  int (*cuEventDestroy_v2)(Handle);
  int (*cuLaunchKernel)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, Handle, void**, void**);
  int (*cuGetErrorName)(int, const char**);
  int (*cuGetProcAddress_v2)(const char*, void**, int, uint64_t, int*);
  int (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int*, Handle, int, size_t);
  const char* (*linnet_virtual_last_error)();
  const char* (*linnet_virtual_findings)();
  const char* (*linnet_virtual_counts)();
  int (*linnet_virtual_set)(const char*, const char*);
  void (*linnet_virtual_reset)();
};

// A module compiled by NVRTC and its buffers, freed at the end of a test.
class Session {
 public:
  explicit Session(const std::string& ptx);
  ~Session();

  template <class T>
  DevicePointer upload(const std::vector<T>& values) {
    const DevicePointer address = allocate(values.size() * sizeof(T));
    copy_in(address, values.data(), values.size() * sizeof(T));
    return address;
  }
  template <class T>
  std::vector<T> download(DevicePointer address, size_t count) {
    std::vector<T> values(count);
    copy_out(values.data(), address, count * sizeof(T));
    return values;
  }
  DevicePointer allocate(size_t bytes);
  Handle function(const std::string& name);
  // The result of the synchronisation after the launch.
  int launch(const std::string& name, unsigned grid, unsigned block, std::vector<void*> params,
             unsigned shared = 0);

 private:
  void copy_in(DevicePointer to, const void* from, size_t bytes);
  void copy_out(void* to, DevicePointer from, size_t bytes);
  Handle module_ = nullptr;
  std::vector<DevicePointer> allocations_;
};

}  // namespace linnet::vgpu::testing
