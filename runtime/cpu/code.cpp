#include "runtime/cpu/code.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "linnet/error.h"

namespace linnet {

bool allow_matrix_unit() {
#ifdef __x86_64__
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
#else
  return false;
#endif
}

Code::Code(std::string_view image) : bytes_(image.size()) {
  auto fail = [](const char* call) {
    throw DeviceError(
        fmt::format("cpu: no memory for code: {} failed: {}", call, std::strerror(errno)));
  };
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) fail("mmap");
  std::memcpy(memory_, image.data(), bytes_);
  __builtin___clear_cache(static_cast<char*>(memory_), static_cast<char*>(memory_) + bytes_);
  if (mprotect(memory_, bytes_, PROT_READ | PROT_EXEC) != 0) {
    munmap(memory_, bytes_);
    fail("mprotect");
  }
}

Code::~Code() { munmap(memory_, bytes_); }

}  // namespace linnet
