// cuGetProcAddress.
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "driver/boundary.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::driver;

namespace {

// Functions whose ABI changed: the symbol to give to callers built for a CUDA version.
struct VersionRow {
  const char* name;
  int since;
  const char* symbol;
};

constexpr VersionRow kVersions[] = {
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
};

void* own_symbol(const std::string& name) {
  static void* const self = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&own_symbol), &info);
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  return self ? dlsym(self, name.c_str()) : nullptr;
}

void* find_entry(const std::string& name, int version) {
  for (const VersionRow& row : kVersions)
    if (name == row.name && version >= row.since) return own_symbol(row.symbol);
  if (void* current = own_symbol(name + "_v2")) return current;
  return own_symbol(name);
}

}  // namespace

VGPU_API CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t,
                                      int* status) {
  if (!symbol || !function) return CUDA_ERROR_INVALID_VALUE;
  *function = find_entry(symbol, version);
  if (status) *status = *function ? 0 : 1;  // 1: symbol not found
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

VGPU_API CUresult cuGetProcAddress(const char* symbol, void** function, int version,
                                   uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

// Private tables of the real driver: there are none.
VGPU_API CUresult cuGetExportTable(const void** table, const CUuuid*) {
  if (table) *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
