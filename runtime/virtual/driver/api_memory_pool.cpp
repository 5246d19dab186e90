// Stream-ordered allocation and memory pools.
#include <cstring>

#include "driver/boundary.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::driver;

namespace {

MemoryPool& known_pool(State& state, CUmemoryPool pool) {
  if (pool == &state.default_pool) return *pool;
  return checked(state.pools, pool, "memory pool");
}

uint64_t allocate_from(State& state, MemoryPool& pool, size_t bytes) {
  if (bytes == 0) invalid_value("an allocation of 0 bytes");
  const uint64_t address = state.memory->allocate(bytes, RegionKind::Device, "cuMemAllocAsync");
  if (!address) throw DriverError(CUDA_ERROR_OUT_OF_MEMORY, "no room in the pool");
  state.pool_of[address] = &pool;
  pool.used += bytes;
  pool.used_high = std::max(pool.used_high, pool.used);
  return address;
}

// 4: release threshold; 5, 6: reserved now and at most; 7, 8: used now and at most; 1 - 3: reuse
// flags.
void get_attribute(const MemoryPool& pool, int attribute, void* value) {
  const auto put = [&](auto number) { std::memcpy(value, &number, sizeof number); };
  const auto flag = pool.flags.find(attribute);
  switch (attribute) {
    case 1:
    case 2:
    case 3:
      return put(flag == pool.flags.end() ? 1 : flag->second);
    case 4:
      return put(pool.release_threshold);
    case 5:
    case 7:
      return put(pool.used);
    case 6:
    case 8:
      return put(pool.used_high);
    default:
      invalid_value("unknown pool attribute " + std::to_string(attribute));
  }
}

}  // namespace

VGPU_API CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return guarded_context("cuMemAllocAsync", [&](State& state) {
    state.stream(stream);
    required(address, "address") = allocate_from(state, *state.current_pool, bytes);
  });
}

VGPU_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                          CUstream stream) {
  return guarded_context("cuMemAllocFromPoolAsync", [&](State& state) {
    state.stream(stream);
    required(address, "address") = allocate_from(state, known_pool(state, pool), bytes);
  });
}

VGPU_API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return guarded_context("cuMemFreeAsync", [&](State& state) {
    if (!address) return;
    if (state.stream(stream).capture)
      throw DriverError(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "freeing during capture");
    Region region;
    if (!state.memory->find(address, region) || !state.memory->release(address))
      invalid_value("the address is not the start of an allocation");
    const auto owner = state.pool_of.find(address);
    if (owner == state.pool_of.end()) return;
    owner->second->used -= region.bytes;
    state.pool_of.erase(owner);
  });
}

VGPU_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice) {
  return guarded_device("cuDeviceGetDefaultMemPool",
                        [&](State& state) { required(pool, "pool") = &state.default_pool; });
}

VGPU_API CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice) {
  return guarded_device("cuDeviceGetMemPool",
                        [&](State& state) { required(pool, "pool") = state.current_pool; });
}

VGPU_API CUresult cuDeviceSetMemPool(CUdevice, CUmemoryPool pool) {
  return guarded_device("cuDeviceSetMemPool",
                        [&](State& state) { state.current_pool = &known_pool(state, pool); });
}

VGPU_API CUresult cuMemPoolCreate(CUmemoryPool* pool, const void*) {
  return guarded_device("cuMemPoolCreate", [&](State& state) {
    required(pool, "pool") = new MemoryPool;
    state.pools.insert(*pool);
  });
}

VGPU_API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return guarded_device("cuMemPoolDestroy", [&](State& state) {
    checked(state.pools, pool, "memory pool");
    if (state.current_pool == pool) state.current_pool = &state.default_pool;
    std::erase_if(state.pool_of, [&](const auto& entry) { return entry.second == pool; });
    state.pools.erase(pool);
    delete pool;
  });
}

VGPU_API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void* value) {
  return guarded_device("cuMemPoolSetAttribute", [&](State& state) {
    MemoryPool& target = known_pool(state, pool);
    required(static_cast<char*>(value), "value");
    if (attribute >= 1 && attribute <= 3)
      target.flags[attribute] = *static_cast<int*>(value);
    else if (attribute == 4)
      target.release_threshold = *static_cast<uint64_t*>(value);
    else if (attribute == 6 || attribute == 8)
      target.used_high = target.used;
    else
      invalid_value("the attribute cannot be set");
  });
}

VGPU_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void* value) {
  return guarded_device("cuMemPoolGetAttribute", [&](State& state) {
    get_attribute(known_pool(state, pool), attribute,
                  &required(static_cast<char*>(value), "value"));
  });
}

VGPU_API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  return guarded_device("cuMemPoolTrimTo", [&](State& state) { known_pool(state, pool); });
}

VGPU_API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const void*, size_t) {
  return guarded_device("cuMemPoolSetAccess", [&](State& state) { known_pool(state, pool); });
}
