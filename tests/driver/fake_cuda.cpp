// A CUDA driver that computes nothing and remembers everything: which calls came, in what order,
// what is still alive, and what was used wrongly. Built as a library, so that the runtime loads it
// as it loads any driver.
#include "tests/driver/fake_cuda.h"

#include <cstring>
#include <map>
#include <set>
#include <string>

namespace {

using Handle = void*;
using DevicePointer = unsigned long long;

struct State {
  FakeOptions options{.fail_at = -1, .major = 8, .minor = 0, .shared_bytes = 160 * 1024};
  int count = 0;  // calls that can fail, so far
  std::string calls, problems;
  int contexts = 0;  // retained
  std::set<Handle> streams, modules;
  std::map<Handle, std::string> functions;
  std::set<DevicePointer> memory;
  uintptr_t next = 0x1000;

  uintptr_t fresh() { return next += 0x1000; }
} state;

thread_local Handle current = nullptr;
const Handle kContext = reinterpret_cast<Handle>(0xc0);

void wrong(const std::string& what) { state.problems += what + "\n"; }

// Notes the call; its result.
int note(const char* name, const std::string& details = "") {
  state.calls += name + (details.empty() ? "" : " " + details) + "\n";
  return state.count++ == state.options.fail_at ? kFakeFailure : 0;
}

int note_in_context(const char* name, const std::string& details = "") {
  if (current != kContext || state.contexts == 0) wrong(std::string(name) + " without a context");
  return note(name, details);
}

template <class Set, class T>
void expect_alive(const char* name, const Set& set, const T& thing) {
  if (!set.contains(thing)) wrong(std::string(name) + " of something that is not there");
}

// Not the default stream: the runtime never launches there.
void expect_stream(const char* name, Handle stream) {
  if (stream != kCallersStream && stream != kOtherStream) expect_alive(name, state.streams, stream);
}

}  // namespace

extern "C" {

void fake_reset(const FakeOptions* options) {
  state = State();
  state.options = *options;
  current = nullptr;
}
const char* fake_calls() { return state.calls.c_str(); }
void fake_forget_calls() { state.calls.clear(); }
const char* fake_problems() { return state.problems.c_str(); }
int fake_alive() {
  return state.contexts +
         static_cast<int>(state.streams.size() + state.modules.size() + state.memory.size());
}

int cuInit(unsigned) { return note("cuInit"); }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return note("cuDriverGetVersion");
}
int cuGetErrorName(int result, const char** name) {
  *name = result == kFakeFailure ? "CUDA_ERROR_FAKE" : "CUDA_ERROR_OTHER";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "as the test wished";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return note("cuDeviceGetCount");
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return note("cuDeviceGet", std::to_string(ordinal));
}
int cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "Fake", size);
  return note("cuDeviceGetName");
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75   ? state.options.major
           : attribute == 76 ? state.options.minor
           : attribute == 97 ? state.options.shared_bytes
                             : 0;
  return note("cuDeviceGetAttribute", std::to_string(attribute));
}
int cuDevicePrimaryCtxRetain(Handle* context, int) {
  int result = note("cuDevicePrimaryCtxRetain");
  if (result == 0) {
    ++state.contexts;
    *context = kContext;
  }
  return result;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  if (--state.contexts < 0) wrong("cuDevicePrimaryCtxRelease_v2 once too often");
  return note("cuDevicePrimaryCtxRelease_v2");
}
int cuCtxSetCurrent(Handle context) {
  if (context != kContext) wrong("cuCtxSetCurrent of no context");
  int result = note("cuCtxSetCurrent");
  if (result == 0) current = context;
  return result;
}
int cuModuleLoadData(Handle* module, const void* image) {
  int result = note_in_context("cuModuleLoadData", std::string(static_cast<const char*>(image), 8));
  if (result == 0) state.modules.insert(*module = reinterpret_cast<Handle>(state.fresh()));
  return result;
}
int cuModuleUnload(Handle module) {
  if (state.modules.erase(module) == 0) wrong("cuModuleUnload of something that is not there");
  return note("cuModuleUnload");
}
int cuModuleGetFunction(Handle* function, Handle module, const char* name) {
  expect_alive("cuModuleGetFunction", state.modules, module);
  int result = note_in_context("cuModuleGetFunction", name);
  if (result == 0) state.functions[*function = reinterpret_cast<Handle>(state.fresh())] = name;
  return result;
}
int cuFuncSetAttribute(Handle function, int attribute, int value) {
  expect_alive("cuFuncSetAttribute", state.functions, function);
  return note_in_context("cuFuncSetAttribute",
                         std::to_string(attribute) + " " + std::to_string(value));
}
int cuFuncGetAttribute(int* value, int, Handle) {
  *value = 0;
  return note("cuFuncGetAttribute");
}
int cuMemAlloc_v2(DevicePointer* pointer, size_t) {
  int result = note_in_context("cuMemAlloc_v2");
  if (result == 0) state.memory.insert(*pointer = state.fresh());
  return result;
}
int cuMemFree_v2(DevicePointer pointer) {
  if (state.memory.erase(pointer) == 0) wrong("cuMemFree_v2 of something that is not there");
  return note_in_context("cuMemFree_v2");
}
int cuMemcpyHtoDAsync_v2(DevicePointer, const void*, size_t, Handle stream) {
  expect_stream("cuMemcpyHtoDAsync_v2", stream);
  return note_in_context("cuMemcpyHtoDAsync_v2");
}
int cuMemcpyDtoHAsync_v2(void*, DevicePointer, size_t, Handle stream) {
  expect_stream("cuMemcpyDtoHAsync_v2", stream);
  return note_in_context("cuMemcpyDtoHAsync_v2");
}
int cuStreamCreate(Handle* stream, unsigned) {
  int result = note_in_context("cuStreamCreate");
  if (result == 0) state.streams.insert(*stream = reinterpret_cast<Handle>(state.fresh()));
  return result;
}
int cuStreamDestroy_v2(Handle stream) {
  if (state.streams.erase(stream) == 0) wrong("cuStreamDestroy_v2 of something that is not there");
  return note("cuStreamDestroy_v2");
}
int cuStreamSynchronize(Handle stream) {
  expect_stream("cuStreamSynchronize", stream);
  return note_in_context("cuStreamSynchronize");
}
int cuLaunchKernel(Handle function, unsigned x, unsigned, unsigned, unsigned threads, unsigned,
                   unsigned, unsigned shared, Handle stream, void**, void**) {
  expect_alive("cuLaunchKernel", state.functions, function);
  expect_stream("cuLaunchKernel", stream);
  return note_in_context("cuLaunchKernel", state.functions[function] + " " + std::to_string(x) +
                                               " " + std::to_string(threads) + " " +
                                               std::to_string(shared));
}
int cuMemsetD32Async(DevicePointer, unsigned, size_t, Handle stream) {
  expect_stream("cuMemsetD32Async", stream);
  return note_in_context("cuMemsetD32Async");
}

}  // extern "C"
