// Device and host memory: allocation, copies, fills and questions about pointers.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "driver/boundary.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::driver;

namespace {

enum class Side : uint8_t { Host, Device, Either };

// A device range must lie within one allocation; host pointers are the caller's business.
void check_range(const State& state, uint64_t address, size_t bytes, Side side, const char* name) {
  if (bytes == 0) return;
  Region region;
  const bool known = state.memory->find(address, region);
  if (!known && (side == Side::Device || state.memory->in_arena(address)))
    invalid_value(fmt::format("{} {:#x} is not device memory", name, address));
  if (known && region.kind != RegionKind::Host && !region.holds(address, bytes))
    invalid_value(fmt::format("{} {:#x}, {} bytes, runs over the end of {}", name, address, bytes,
                              region.describe()));
}

void copy(State& state, CUstream stream, uint64_t to, Side to_side, uint64_t from, Side from_side,
          size_t bytes) {
  state.check_failure();
  check_range(state, to, bytes, to_side, "destination");
  check_range(state, from, bytes, from_side, "source");
  state.submit(stream, NodeKind::Memcpy, [&state, to, from, bytes] {
    if (bytes == 0) return;
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    state.memory->copy_written(to, from, bytes);
  });
}

uint64_t bits(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

template <class T>
void fill(State& state, CUstream stream, CUdeviceptr to, size_t pitch, T value, size_t width,
          size_t height) {
  state.check_failure();
  if (to % sizeof(T)) invalid_value("the address is not aligned to the element");
  if (height && width)
    check_range(state, to, pitch * (height - 1) + width * sizeof(T), Side::Either, "destination");
  state.submit(stream, NodeKind::Memset, [&state, to, pitch, value, width, height] {
    for (size_t row = 0; row < height; ++row) {
      std::fill_n(reinterpret_cast<T*>(to + row * pitch), width, value);
      state.memory->mark_written(to + row * pitch, width * sizeof(T));
    }
  });
}

// The start of a 2D or 3D operand: its base plus the offsets along each axis.
struct Operand {
  uint64_t address;
  Side side;
  size_t pitch;
  size_t slice;
};

Operand operand_of(CUmemorytype type, const void* host, CUdeviceptr device, size_t x, size_t y,
                   size_t z, size_t pitch, size_t height) {
  if (type == CU_MEMORYTYPE_ARRAY) throw DriverError(CUDA_ERROR_NOT_SUPPORTED, "CUDA arrays");
  const uint64_t base = type == CU_MEMORYTYPE_HOST ? bits(host) : device;
  const Side side = type == CU_MEMORYTYPE_HOST     ? Side::Host
                    : type == CU_MEMORYTYPE_DEVICE ? Side::Device
                                                   : Side::Either;
  return {base + x + y * pitch + z * pitch * height, side, pitch, pitch * height};
}

void copy_rows(State& state, CUstream stream, const Operand& to, const Operand& from, size_t width,
               size_t height, size_t depth) {
  for (size_t z = 0; z < depth; ++z)
    for (size_t y = 0; y < height; ++y)
      copy(state, stream, to.address + z * to.slice + y * to.pitch, to.side,
           from.address + z * from.slice + y * from.pitch, from.side, width);
}

CUresult copy_2d(const char* name, const CUDA_MEMCPY2D* p, CUstream stream) {
  return guarded_context(name, [&](State& state) {
    required(p, "copy");
    const Operand to = operand_of(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstXInBytes,
                                  p->dstY, 0, p->dstPitch ? p->dstPitch : p->WidthInBytes, 1);
    const Operand from = operand_of(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcXInBytes,
                                    p->srcY, 0, p->srcPitch ? p->srcPitch : p->WidthInBytes, 1);
    copy_rows(state, stream, to, from, p->WidthInBytes, p->Height, 1);
  });
}

CUresult copy_3d(const char* name, const CUDA_MEMCPY3D* p, CUstream stream) {
  return guarded_context(name, [&](State& state) {
    required(p, "copy");
    const Operand to = operand_of(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstXInBytes,
                                  p->dstY, p->dstZ, p->dstPitch ? p->dstPitch : p->WidthInBytes,
                                  p->dstHeight ? p->dstHeight : p->Height);
    const Operand from = operand_of(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcXInBytes,
                                    p->srcY, p->srcZ, p->srcPitch ? p->srcPitch : p->WidthInBytes,
                                    p->srcHeight ? p->srcHeight : p->Height);
    copy_rows(state, stream, to, from, p->WidthInBytes, p->Height, p->Depth);
  });
}

uint64_t allocate(State& state, size_t bytes, const char* label) {
  if (bytes == 0) invalid_value("an allocation of 0 bytes");
  const uint64_t address = state.memory->allocate(bytes, RegionKind::Device, label);
  if (!address)
    throw DriverError(CUDA_ERROR_OUT_OF_MEMORY, fmt::format("no room for {} bytes", bytes));
  return address;
}

void pointer_attribute(State& state, void* data, int attribute, CUdeviceptr pointer) {
  Region region;
  const bool known = state.memory->find(pointer, region);
  const auto put = [&](auto value) { std::memcpy(data, &value, sizeof value); };
  switch (attribute) {
    case 1:  // context
      return known ? put(&state.primary_context)
                   : throw DriverError(CUDA_ERROR_INVALID_VALUE, "not a device pointer");
    case 2:  // memory type
      if (!known) throw DriverError(CUDA_ERROR_INVALID_VALUE, "not a device pointer");
      return put(static_cast<unsigned>(region.kind == RegionKind::Host ? CU_MEMORYTYPE_HOST
                                                                       : CU_MEMORYTYPE_DEVICE));
    case 3:  // device pointer
    case 4:  // host pointer
      if (!known || (attribute == 4 && region.kind != RegionKind::Host))
        throw DriverError(CUDA_ERROR_INVALID_VALUE, "the pointer has no such form");
      return put(pointer);
    case 6:
      return put(0);  // sync memops
    case 7:
      return put(uint64_t{known ? region.id : 0});  // buffer id
    case 8:
      return put(0);  // managed
    case 9:
      return put(known ? 0 : -2);  // device ordinal
    case 11:
      return put(known ? region.base : 0);  // range start
    case 12:
      return put(known ? region.bytes : 0);  // range size
    case 13:
      return put(known ? 1 : 0);  // mapped
    default:
      invalid_value("unknown pointer attribute " + std::to_string(attribute));
  }
}

}  // namespace

VGPU_API CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return guarded_context("cuMemAlloc", [&](State& state) {
    required(address, "address") = allocate(state, bytes, "cuMemAlloc");
  });
}

VGPU_API CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width,
                                     size_t height, unsigned) {
  return guarded_context("cuMemAllocPitch", [&](State& state) {
    required(pitch, "pitch") = (width + 511) / 512 * 512;
    required(address, "address") = allocate(state, *pitch * height, "cuMemAllocPitch");
  });
}

VGPU_API CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned) {
  return guarded_context("cuMemAllocManaged", [&](State& state) {
    required(address, "address") = allocate(state, bytes, "cuMemAllocManaged");
    // The host may write it at any time, unseen.
    state.memory->mark_written(*address, bytes);
  });
}

VGPU_API CUresult cuMemFree_v2(CUdeviceptr address) {
  return guarded_context("cuMemFree", [&](State& state) {
    if (address && !state.memory->release(address))
      invalid_value(fmt::format("{:#x} is not the start of an allocation", address));
  });
}

VGPU_API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return guarded_context("cuMemGetInfo", [&](State& state) {
    if (free) *free = state.memory->capacity() - state.memory->used();
    if (total) *total = state.memory->capacity();
  });
}

VGPU_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  return guarded_context("cuMemGetAddressRange", [&](State& state) {
    Region region;
    if (!state.memory->find(pointer, region))
      throw DriverError(CUDA_ERROR_NOT_FOUND, "the address belongs to no allocation");
    if (base) *base = region.base;
    if (bytes) *bytes = region.bytes;
  });
}

VGPU_API CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  return guarded_context("cuMemHostAlloc", [&](State& state) {
    void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!memory) throw std::bad_alloc();
    state.memory->register_host(bits(memory), bytes, "cuMemHostAlloc");
    required(pointer, "pointer") = memory;
  });
}

VGPU_API CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  return cuMemHostAlloc(pointer, bytes, 0);
}

VGPU_API CUresult cuMemFreeHost(void* pointer) {
  return guarded_context("cuMemFreeHost", [&](State& state) {
    if (!state.memory->unregister_host(bits(pointer)))
      invalid_value("the pointer is not from cuMemHostAlloc");
    std::free(pointer);
  });
}

VGPU_API CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned) {
  return guarded_context("cuMemHostRegister", [&](State& state) {
    Region region;
    if (state.memory->find(bits(&required(static_cast<char*>(pointer), "pointer")), region))
      throw DriverError(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "already registered");
    state.memory->register_host(bits(pointer), bytes, "cuMemHostRegister");
  });
}

VGPU_API CUresult cuMemHostUnregister(void* pointer) {
  return guarded_context("cuMemHostUnregister", [&](State& state) {
    if (!state.memory->unregister_host(bits(pointer)))
      throw DriverError(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "not registered");
  });
}

VGPU_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer, unsigned) {
  return guarded_context("cuMemHostGetDevicePointer", [&](State& state) {
    Region region;
    if (!state.memory->find(bits(pointer), region)) invalid_value("the memory is not registered");
    required(address, "address") = bits(pointer);
  });
}

VGPU_API CUresult cuMemHostGetFlags(unsigned* flags, void*) {
  return guarded_context("cuMemHostGetFlags", [&](State&) { required(flags, "flags") = 2; });
}

VGPU_API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return guarded_context("cuMemcpy", [&](State& state) {
    copy(state, nullptr, to, Side::Either, from, Side::Either, bytes);
  });
}
VGPU_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return guarded_context("cuMemcpyAsync", [&](State& state) {
    copy(state, stream, to, Side::Either, from, Side::Either, bytes);
  });
}
VGPU_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return guarded_context("cuMemcpyHtoD", [&](State& state) {
    copy(state, nullptr, to, Side::Device, bits(from), Side::Host, bytes);
  });
}
VGPU_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                                       CUstream stream) {
  return guarded_context("cuMemcpyHtoDAsync", [&](State& state) {
    copy(state, stream, to, Side::Device, bits(from), Side::Host, bytes);
  });
}
VGPU_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return guarded_context("cuMemcpyDtoH", [&](State& state) {
    copy(state, nullptr, bits(to), Side::Host, from, Side::Device, bytes);
  });
}
VGPU_API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return guarded_context("cuMemcpyDtoHAsync", [&](State& state) {
    copy(state, stream, bits(to), Side::Host, from, Side::Device, bytes);
  });
}
VGPU_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return guarded_context("cuMemcpyDtoD", [&](State& state) {
    copy(state, nullptr, to, Side::Device, from, Side::Device, bytes);
  });
}
VGPU_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                       CUstream stream) {
  return guarded_context("cuMemcpyDtoDAsync", [&](State& state) {
    copy(state, stream, to, Side::Device, from, Side::Device, bytes);
  });
}
VGPU_API CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* p) {
  return copy_2d("cuMemcpy2D", p, nullptr);
}
VGPU_API CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* p) {
  return copy_2d("cuMemcpy2DUnaligned", p, nullptr);
}
VGPU_API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* p, CUstream stream) {
  return copy_2d("cuMemcpy2DAsync", p, stream);
}
VGPU_API CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* p) {
  return copy_3d("cuMemcpy3D", p, nullptr);
}
VGPU_API CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* p, CUstream stream) {
  return copy_3d("cuMemcpy3DAsync", p, stream);
}

// cuMemsetD8 ... cuMemsetD2D32Async: one width a line.
#define VGPU_MEMSET(bits_, type)                                                              \
  VGPU_API CUresult cuMemsetD##bits_##_v2(CUdeviceptr to, type value, size_t count) {         \
    return guarded_context("cuMemsetD" #bits_, [&](State& state) {                            \
      fill<type>(state, nullptr, to, 0, value, count, 1);                                     \
    });                                                                                       \
  }                                                                                           \
  VGPU_API CUresult cuMemsetD##bits_##Async(CUdeviceptr to, type value, size_t count,         \
                                            CUstream stream) {                                \
    return guarded_context("cuMemsetD" #bits_ "Async", [&](State& state) {                    \
      fill<type>(state, stream, to, 0, value, count, 1);                                      \
    });                                                                                       \
  }                                                                                           \
  VGPU_API CUresult cuMemsetD2D##bits_##_v2(CUdeviceptr to, size_t pitch, type value,         \
                                            size_t width, size_t height) {                    \
    return guarded_context("cuMemsetD2D" #bits_, [&](State& state) {                          \
      fill<type>(state, nullptr, to, pitch, value, width, height);                            \
    });                                                                                       \
  }                                                                                           \
  VGPU_API CUresult cuMemsetD2D##bits_##Async(CUdeviceptr to, size_t pitch, type value,       \
                                              size_t width, size_t height, CUstream stream) { \
    return guarded_context("cuMemsetD2D" #bits_ "Async", [&](State& state) {                  \
      fill<type>(state, stream, to, pitch, value, width, height);                             \
    });                                                                                       \
  }

VGPU_MEMSET(8, unsigned char)
VGPU_MEMSET(16, unsigned short)
VGPU_MEMSET(32, unsigned int)

VGPU_API CUresult cuPointerGetAttribute(void* data, int attribute, CUdeviceptr pointer) {
  return guarded_device("cuPointerGetAttribute", [&](State& state) {
    pointer_attribute(state, &required(static_cast<char*>(data), "data"), attribute, pointer);
  });
}

VGPU_API CUresult cuPointerGetAttributes(unsigned count, int* attributes, void** data,
                                         CUdeviceptr pointer) {
  return guarded_device("cuPointerGetAttributes", [&](State& state) {
    Region region;
    const bool known = state.memory->find(pointer, region);
    for (unsigned i = 0; i < count; ++i) {
      // Unlike the single form, unknown pointers give zeros here.
      if (known)
        pointer_attribute(state, data[i], attributes[i], pointer);
      else
        std::memset(data[i], 0, attributes[i] == 9 || attributes[i] == 2 ? 4 : 8);
    }
  });
}
