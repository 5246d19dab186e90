// What a real driver does not have: settings, findings, counts and the text of the last error.
#include <algorithm>

#include "driver/boundary.h"
#include "linnet_virtual.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::driver;

namespace {

// Strings handed to C callers live until the thread asks for the next one.
const char* keep(std::string text) {
  thread_local std::string kept;
  kept = std::move(text);
  return kept.c_str();
}

}  // namespace

VGPU_API const char* linnet_virtual_last_error() {
  State& state = State::get();
  const std::lock_guard<std::recursive_mutex> lock(state.mutex);
  return keep(state.last_error);
}

VGPU_API const char* linnet_virtual_findings() {
  State& state = State::get();
  const std::lock_guard<std::recursive_mutex> lock(state.mutex);
  return keep(state.findings.json());
}

VGPU_API const char* linnet_virtual_counts() {
  State& state = State::get();
  const std::lock_guard<std::recursive_mutex> lock(state.mutex);
  std::string text = "[";
  for (const FinishedLaunch& launch : state.reports)
    text += (text.size() > 1 ? "," : "") + launch.json;
  return keep(text + "]");
}

VGPU_API int linnet_virtual_launches(linnet_virtual_launch* out, int capacity) {
  State& state = State::get();
  const std::lock_guard<std::recursive_mutex> lock(state.mutex);
  const size_t count = std::min(state.reports.size(), static_cast<size_t>(std::max(0, capacity)));
  for (size_t i = 0; i < count && out; ++i)
    out[i] = state.reports[state.reports.size() - count + i].record;
  return static_cast<int>(count);
}

VGPU_API int linnet_virtual_set(const char* name, const char* value) {
  return guarded("linnet_virtual_set", [&](State& state) {
    const std::string key = &required(name, "name");
    if (key == "arch" && state.initialised())
      throw DriverError(CUDA_ERROR_ILLEGAL_STATE, "the device already exists");
    if (!set_setting(state.settings, key, &required(value, "value")))
      invalid_value("unknown setting or value: " + key + " = " + value);
  });
}

VGPU_API void linnet_virtual_reset() {
  guarded("linnet_virtual_reset", [](State& state) { state.reset(); });
}
