#include "runtime/cpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>

#include "linnet/error.h"

namespace linnet {

Buffer allocate_on_host(size_t bytes) {
  // Rows of one head lie far apart, so with small pages nearly each of them waits for the page
  // tables.
  constexpr size_t kLine = 64, kPage = 4096, kLargePage = 2 << 20;
  bool large = bytes >= 2 * kLargePage;
  // The same rows of several tensors are used together: if all started at a page they would fall
  // into the same few sets of the caches.
  static std::atomic<size_t> count = 0;
  size_t start = large ? count++ % 16 * 17 * kLine : 0;
  size_t alignment = large ? kLargePage : bytes >= kPage ? kPage : kLine;
  size_t whole = (start + bytes + kLine + alignment - 1) / alignment * alignment;
  std::shared_ptr<void> memory(std::aligned_alloc(alignment, whole), std::free);
  if (!memory) throw DeviceError(fmt::format("cpu: no memory for {} bytes", bytes));
  // Advice: where it is not taken, pages stay small.
  if (large) madvise(memory.get(), whole, MADV_HUGEPAGE);
  return {std::shared_ptr<void>(memory, static_cast<char*>(memory.get()) + start), bytes};
}

}  // namespace linnet
