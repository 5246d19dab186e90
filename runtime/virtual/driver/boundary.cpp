#include "driver/boundary.h"

#include <fmt/format.h>

#include <cstdio>

#include "ptx/types.h"

namespace linnet::vgpu::driver {
namespace {

CUresult remember(const char* function, CUresult code, const std::string& text) {
  State& state = State::get();
  const std::lock_guard<std::recursive_mutex> lock(state.mutex);
  state.last_error = fmt::format("{}: {}", function, text);
  if (state.settings.log) std::fprintf(stderr, "[virtual gpu] %s\n", state.last_error.c_str());
  return code;
}

}  // namespace

CUresult fault_code(const Finding& finding) {
  switch (finding.kind) {
    case FindingKind::Misaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case FindingKind::OutOfBounds:
    case FindingKind::UseAfterFree:
    case FindingKind::SharedBounds:
    case FindingKind::LocalBounds:
    case FindingKind::InvalidAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case FindingKind::Assert:
      return CUDA_ERROR_ASSERT;
    case FindingKind::Deadlock:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case FindingKind::IllegalInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

CUresult translate_exception(const char* function) noexcept {
  try {
    try {
      throw;
    } catch (const DriverError& error) {
      return remember(function, error.code(), error.what());
    } catch (const KernelFault& error) {
      return remember(function, fault_code(error.finding()), error.what());
    } catch (const PtxError& error) {
      return remember(function, CUDA_ERROR_INVALID_PTX, error.what());
    } catch (const std::bad_alloc&) {
      return remember(function, CUDA_ERROR_OUT_OF_MEMORY, "out of memory");
    } catch (const std::exception& error) {
      return remember(function, CUDA_ERROR_UNKNOWN, error.what());
    }
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

}  // namespace linnet::vgpu::driver
