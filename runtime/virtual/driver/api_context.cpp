// Contexts, primary and plain, and the texts of error codes.
#include "driver/boundary.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::driver;

namespace {

struct ErrorRow {
  CUresult code;
  const char* name;
  const char* text;
};

constexpr ErrorRow kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT",
     "the launch timed out and was terminated"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_ASSERT, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, "CUDA_ERROR_ILLEGAL_INSTRUCTION",
     "an illegal instruction was encountered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorRow* find_error(CUresult code) {
  for (const ErrorRow& row : kErrors)
    if (row.code == code) return &row;
  return nullptr;
}

CUresult create_context(const char* name, CUcontext* context, unsigned flags, CUdevice device) {
  return guarded_device(name, [&](State& state) {
    if (device != 0) throw DriverError(CUDA_ERROR_INVALID_DEVICE, "there is one device, number 0");
    auto* created = new Context;
    created->flags = flags;
    created->id = state.next_id++;
    state.contexts.insert(created);
    required(context, "context") = created;
    context_stack().push_back(created);
  });
}

Context& known_context(State& state, CUcontext context) {
  if (context == &state.primary_context) return *context;
  return checked(state.contexts, context, "context");
}

}  // namespace

VGPU_API CUresult cuGetErrorName(CUresult error, const char** text) {
  const ErrorRow* row = find_error(error);
  if (text) *text = row ? row->name : nullptr;
  return row && text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

VGPU_API CUresult cuGetErrorString(CUresult error, const char** text) {
  const ErrorRow* row = find_error(error);
  if (text) *text = row ? row->text : nullptr;
  return row && text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

VGPU_API CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return create_context("cuCtxCreate", context, flags, device);
}
VGPU_API CUresult cuCtxCreate_v3(CUcontext* context, void*, int, unsigned flags, CUdevice device) {
  return create_context("cuCtxCreate", context, flags, device);
}
VGPU_API CUresult cuCtxCreate_v4(CUcontext* context, void*, unsigned flags, CUdevice device) {
  return create_context("cuCtxCreate", context, flags, device);
}

VGPU_API CUresult cuCtxDestroy_v2(CUcontext context) {
  return guarded_device("cuCtxDestroy", [&](State& state) {
    checked(state.contexts, context, "context");
    state.contexts.erase(context);
    auto& stack = context_stack();
    if (!stack.empty() && stack.back() == context) stack.pop_back();
    for (Context*& entry : stack)
      if (entry == context) entry = nullptr;
    delete context;
  });
}

VGPU_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return guarded_device("cuCtxPushCurrent", [&](State& state) {
    context_stack().push_back(&known_context(state, context));
  });
}

VGPU_API CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return guarded_device("cuCtxPopCurrent", [&](State& state) {
    Context& top = state.current();
    if (context) *context = &top;
    context_stack().pop_back();
  });
}

VGPU_API CUresult cuCtxSetCurrent(CUcontext context) {
  return guarded_device("cuCtxSetCurrent", [&](State& state) {
    auto& stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(&known_context(state, context));
  });
}

VGPU_API CUresult cuCtxGetCurrent(CUcontext* context) {
  return guarded_device("cuCtxGetCurrent", [&](State&) {
    const auto& stack = context_stack();
    required(context, "context") = stack.empty() ? nullptr : stack.back();
  });
}

VGPU_API CUresult cuCtxGetDevice(CUdevice* device) {
  return guarded_context("cuCtxGetDevice", [&](State&) { required(device, "device") = 0; });
}

VGPU_API CUresult cuCtxGetFlags(unsigned* flags) {
  return guarded_context("cuCtxGetFlags",
                         [&](State& state) { required(flags, "flags") = state.current().flags; });
}

VGPU_API CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  return guarded_device("cuCtxGetId", [&](State& state) {
    required(id, "id") = (context ? known_context(state, context) : state.current()).id;
  });
}

VGPU_API CUresult cuCtxGetApiVersion(CUcontext, unsigned* version) {
  return guarded_device("cuCtxGetApiVersion",
                        [&](State&) { required(version, "version") = 13000; });
}

VGPU_API CUresult cuCtxSynchronize() {
  return guarded_context("cuCtxSynchronize", [](State& state) { state.check_failure(); });
}

VGPU_API CUresult cuCtxSetLimit(int limit, size_t value) {
  return guarded_context("cuCtxSetLimit",
                         [&](State& state) { state.current().limits[limit] = value; });
}

VGPU_API CUresult cuCtxGetLimit(size_t* value, int limit) {
  return guarded_context("cuCtxGetLimit", [&](State& state) {
    const auto& limits = state.current().limits;
    const auto found = limits.find(limit);
    // 0 is the stack, 1 the printf buffer, 2 the heap: their usual sizes
    const size_t usual = limit == 0 ? 1024 : limit == 1 ? 1u << 20 : limit == 2 ? 8u << 20 : 0;
    required(value, "value") = found == limits.end() ? usual : found->second;
  });
}

VGPU_API CUresult cuCtxGetCacheConfig(int* config) {
  return guarded_context("cuCtxGetCacheConfig", [&](State&) { required(config, "config") = 0; });
}
VGPU_API CUresult cuCtxSetCacheConfig(int) {
  return guarded_context("cuCtxSetCacheConfig", [](State&) {});
}

VGPU_API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return guarded_context("cuCtxGetStreamPriorityRange", [&](State&) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
  });
}

VGPU_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return guarded_device("cuDevicePrimaryCtxRetain", [&](State& state) {
    if (device != 0) throw DriverError(CUDA_ERROR_INVALID_DEVICE, "there is one device, number 0");
    ++state.primary_references;
    required(context, "context") = &state.primary();
  });
}

VGPU_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return guarded_device("cuDevicePrimaryCtxRelease", [](State& state) {
    if (state.primary_references == 0)
      throw DriverError(CUDA_ERROR_INVALID_CONTEXT, "the primary context is not retained");
    --state.primary_references;
  });
}

// Like a real reset it ends the failed state; memory of the process stays, as all contexts share
// it.
VGPU_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice) {
  return guarded_device("cuDevicePrimaryCtxReset", [](State& state) {
    state.failure = CUDA_SUCCESS;
    state.failure_text.clear();
  });
}

VGPU_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned flags) {
  return guarded_device("cuDevicePrimaryCtxSetFlags",
                        [&](State& state) { state.primary().flags = flags; });
}

VGPU_API CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  return guarded_device("cuDevicePrimaryCtxGetState", [&](State& state) {
    if (flags) *flags = state.primary().flags;
    if (active) *active = state.primary_references > 0;
  });
}
