#include "driver/state.h"

#include <fmt/format.h>

namespace linnet::vgpu::driver {

State& State::get() {
  // Never destroyed: programs call into the driver from their own exit handlers.
  static State* state = new State;
  return *state;
}

void State::initialise() {
  if (initialised()) return;
  profile = find_profile(settings.arch);
  if (!profile)
    throw DriverError(
        CUDA_ERROR_NO_DEVICE,
        fmt::format("LINNET_VIRTUAL_ARCH names no device profile: '{}'", settings.arch));
  memory = std::make_unique<DeviceMemory>(profile->memory_bytes);
  primary_context.primary = true;
  primary_context.id = next_id++;
  default_stream.id = next_id++;
}

Context& State::primary() { return primary_context; }

Context& State::current() {
  if (!initialised()) throw DriverError(CUDA_ERROR_NOT_INITIALIZED, "cuInit has not been called");
  auto& stack = context_stack();
  if (stack.empty() || !stack.back())
    throw DriverError(CUDA_ERROR_INVALID_CONTEXT, "no context is current on this thread");
  return *stack.back();
}

Stream& State::stream(CUstream handle) {
  // 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD
  if (reinterpret_cast<uintptr_t>(handle) <= 2) return default_stream;
  return checked(streams, handle, "stream");
}

void State::submit(CUstream handle, NodeKind kind, std::function<void()> work) {
  Stream& target = stream(handle);
  if (!target.capture) return work();
  auto node = std::make_shared<GraphNode>();
  node->kind = kind;
  node->run = std::move(work);
  target.capture->nodes.push_back(std::move(node));
}

void State::check_failure() {
  if (failure != CUDA_SUCCESS) throw DriverError(failure, failure_text);
}

void State::fail(CUresult code, const std::string& text) {
  if (failure != CUDA_SUCCESS) return;
  failure = code;
  failure_text = text;
}

void State::reset() {
  failure = CUDA_SUCCESS;
  failure_text.clear();
  last_error.clear();
  findings.clear();
  reports.clear();
}

std::vector<Context*>& context_stack() {
  // Never destroyed: a program may let go of its contexts after this thread's objects are gone.
  thread_local auto* stack = new std::vector<Context*>;
  return *stack;
}

void invalid_value(const std::string& what) { throw DriverError(CUDA_ERROR_INVALID_VALUE, what); }

}  // namespace linnet::vgpu::driver
