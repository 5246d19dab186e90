// cuInit and the queries of the device's properties.
#include <cstdio>
#include <cstring>

#include "driver/boundary.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::driver;

namespace {

constexpr int kDriverVersion = 13000;

struct AttributeRow {
  int id;
  int (*value)(const DeviceProfile& profile);
};

#define CONSTANT(id, number) {id, [](const DeviceProfile&) { return number; }}
#define FIELD(id, field) {id, [](const DeviceProfile& profile) { return profile.field; }}

constexpr AttributeRow kAttributes[] = {
    CONSTANT(1, 1024),  // max threads per block
    CONSTANT(2, 1024),  // max block dim x, y, z
    CONSTANT(3, 1024),
    CONSTANT(4, 64),
    CONSTANT(5, 0x7fffffff),  // max grid dim x, y, z
    CONSTANT(6, 65535),
    CONSTANT(7, 65535),
    FIELD(8, shared_per_block),
    CONSTANT(9, 65536),        // constant memory
    CONSTANT(10, 32),          // warp size
    CONSTANT(11, 0x7fffffff),  // max pitch
    FIELD(12, registers_per_block),
    FIELD(13, clock_khz),
    CONSTANT(14, 512),  // texture alignment
    CONSTANT(15, 1),    // copies overlap kernels
    FIELD(16, sm_count),
    CONSTANT(17, 0),  // no execution timeout
    CONSTANT(18, 0),  // not integrated
    CONSTANT(19, 1),  // can map host memory
    CONSTANT(20, 0),  // compute mode: default
    CONSTANT(31, 1),  // concurrent kernels
    CONSTANT(32, 1),  // ECC
    CONSTANT(33, 0),  // PCI bus, device
    CONSTANT(34, 0),
    CONSTANT(35, 0),  // TCC
    FIELD(36, memory_clock_khz),
    FIELD(37, memory_bus_bits),
    FIELD(38, l2_bytes),
    FIELD(39, threads_per_sm),
    CONSTANT(40, 1),  // copy engines
    CONSTANT(41, 1),  // unified addressing
    CONSTANT(50, 0),  // PCI domain
    FIELD(75, major),
    FIELD(76, minor),
    CONSTANT(78, 1),  // stream priorities
    CONSTANT(79, 1),  // global L1 cache
    CONSTANT(80, 1),  // local L1 cache
    FIELD(81, shared_per_sm),
    FIELD(82, registers_per_sm),
    CONSTANT(83, 1),  // managed memory
    CONSTANT(84, 0),  // multi-GPU board
    CONSTANT(85, 0),
    CONSTANT(86, 0),  // host native atomics
    CONSTANT(87, 2),  // single to double ratio
    CONSTANT(88, 0),  // pageable memory access
    CONSTANT(89, 1),  // concurrent managed access
    CONSTANT(90, 1),  // compute preemption
    CONSTANT(91, 1),  // host pointers of registered memory are valid
    CONSTANT(95, 1),  // cooperative launch
    FIELD(97, shared_per_block_optin),
    CONSTANT(99, 1),  // host registration
    CONSTANT(100, 0),
    CONSTANT(101, 0),
    CONSTANT(102, 0),  // virtual memory management
    FIELD(106, blocks_per_sm),
    CONSTANT(107, 0),  // compression
    CONSTANT(108, 0),  // persisting L2
    CONSTANT(109, 0),  // access policy window
    FIELD(111, shared_reserved),
    CONSTANT(115, 1),  // memory pools
    FIELD(120, cluster_launch),
};

void check_device(CUdevice device) {
  if (device != 0) throw DriverError(CUDA_ERROR_INVALID_DEVICE, "there is one device, number 0");
}

constexpr char kPciBusId[] = "0000:00:00.0";

}  // namespace

VGPU_API CUresult cuInit(unsigned flags) {
  return guarded("cuInit", [&](State& state) {
    if (flags) invalid_value("flags must be 0");
    state.initialise();
  });
}

VGPU_API CUresult cuDriverGetVersion(int* version) {
  return guarded("cuDriverGetVersion",
                 [&](State&) { required(version, "version") = kDriverVersion; });
}

VGPU_API CUresult cuDeviceGetCount(int* count) {
  return guarded_device("cuDeviceGetCount", [&](State&) { required(count, "count") = 1; });
}

VGPU_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return guarded_device("cuDeviceGet", [&](State&) {
    check_device(ordinal);
    required(device, "device") = 0;
  });
}

VGPU_API CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return guarded_device("cuDeviceGetName", [&](State& state) {
    check_device(device);
    required(name, "name");
    if (length > 0)
      std::snprintf(name, static_cast<size_t>(length), "%s", state.profile->name.c_str());
  });
}

VGPU_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return guarded_device("cuDeviceGetUuid", [&](State& state) {
    check_device(device);
    std::memset(&required(uuid, "uuid"), 0, sizeof *uuid);
    std::snprintf(uuid->bytes, sizeof uuid->bytes, "linnet-%s", state.profile->arch.c_str());
  });
}

VGPU_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid(uuid, device);
}

VGPU_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return guarded_device("cuDeviceTotalMem", [&](State& state) {
    check_device(device);
    required(bytes, "bytes") = state.memory->capacity();
  });
}

VGPU_API CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  return guarded_device("cuDeviceGetAttribute", [&](State& state) {
    check_device(device);
    required(value, "value");
    if (attribute < 1 || attribute > 160)
      invalid_value("unknown device attribute " + std::to_string(attribute));
    *value = 0;  // what the table does not list is a feature the device does not have
    for (const AttributeRow& row : kAttributes)
      if (row.id == attribute) *value = row.value(*state.profile);
  });
}

VGPU_API CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return guarded_device("cuDeviceComputeCapability", [&](State& state) {
    check_device(device);
    required(major, "major") = state.profile->major;
    required(minor, "minor") = state.profile->minor;
  });
}

VGPU_API CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return guarded_device("cuDeviceGetPCIBusId", [&](State&) {
    check_device(device);
    std::snprintf(&required(text, "pciBusId"), static_cast<size_t>(length), "%s", kPciBusId);
  });
}

VGPU_API CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  return guarded_device("cuDeviceGetByPCIBusId", [&](State&) {
    if (std::strcmp(&required(text, "pciBusId"), kPciBusId) != 0)
      throw DriverError(CUDA_ERROR_INVALID_DEVICE, "no device at that bus id");
    required(device, "device") = 0;
  });
}

VGPU_API CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return guarded_device("cuDeviceCanAccessPeer", [&](State&) {
    check_device(device);
    check_device(peer);
    required(can, "canAccessPeer") = 0;
  });
}
