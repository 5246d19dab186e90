// Checks of global memory against its shadow: uninitialised reads and races between CTAs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "checks/hazard.h"
#include "counts/counters.h"
#include "memory/device_memory.h"

namespace linnet::vgpu {

// Two CTAs of one launch race when both touch a byte, one writes, and nothing orders them. An order
// is assumed when the earlier CTA executed a fence or a release after its access and the later one
// an atomic or acquire before: exact happens-before would need a clock a CTA.
class GlobalShadow {
 public:
  GlobalShadow(const DeviceMemory& memory, uint32_t ctas, uint16_t launch)
      : memory_(memory),
        launch_(launch),
        fences_(new std::atomic<uint8_t>[ctas]()),
        acquires_(new std::atomic<uint8_t>[ctas]()) {}

  // `bytes` is a mask of the bytes of the 16-byte cell at `cell_address`, which is in the arena.
  // The first access of the launch to the cell is counted in `touches`.
  std::optional<Hazard> access_cell(Access kind, uint64_t cell_address, uint32_t bytes,
                                    uint32_t cta, FirstTouches& touches);
  void fence(uint32_t cta) { fences_[cta].fetch_add(1, std::memory_order_relaxed); }
  void acquire(uint32_t cta) { acquires_[cta].store(1, std::memory_order_relaxed); }

 private:
  bool races(uint64_t entry, uint8_t fences_then, uint32_t bytes, uint32_t cta) const;

  const DeviceMemory& memory_;
  uint16_t launch_;
  std::unique_ptr<std::atomic<uint8_t>[]> fences_;
  std::unique_ptr<std::atomic<uint8_t>[]> acquires_;
};

}  // namespace linnet::vgpu
