// The wall between C callers and this library: no exception passes it, every failure has a code.
#pragma once

#include "driver/state.h"

namespace linnet::vgpu::driver {

// Translates the exception being handled; remembers its text and logs it.
CUresult translate_exception(const char* function) noexcept;
CUresult fault_code(const Finding& finding);

template <class F>
CUresult guarded(const char* function, F body) noexcept {
  try {
    const std::lock_guard<std::recursive_mutex> lock(State::get().mutex);
    body(State::get());
    return CUDA_SUCCESS;
  } catch (...) {
    return translate_exception(function);
  }
}

// The same for calls that need cuInit to have been called.
template <class F>
CUresult guarded_device(const char* function, F body) noexcept {
  return guarded(function, [&](State& state) {
    if (!state.initialised())
      throw DriverError(CUDA_ERROR_NOT_INITIALIZED, "cuInit has not been called");
    body(state);
  });
}

// And for calls that need a current context, and report what earlier launches did wrong.
template <class F>
CUresult guarded_context(const char* function, F body) noexcept {
  return guarded(function, [&](State& state) {
    state.current();
    body(state);
  });
}

}  // namespace linnet::vgpu::driver
