// Memory between two pages that nobody may touch: compiled kernels, which no sanitizer sees, end
// with a signal when they read or write outside of it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

namespace linnet {

class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes) : page_(sysconf(_SC_PAGESIZE)) {
    bytes_ = (bytes + page_ - 1) / page_ * page_;
    void* all = mmap(nullptr, bytes_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(all) + page_;
    if (mprotect(memory_, bytes_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() { munmap(memory_ - page_, bytes_ + 2 * page_); }

  // Some bytes that begin after the first guard, or end before the last.
  void* place(size_t bytes, bool at_end) {
    if (bytes > bytes_) throw std::bad_alloc();
    return at_end ? memory_ + bytes_ - bytes : memory_;
  }

 private:
  size_t page_, bytes_;
  char* memory_;
};

}  // namespace linnet
