#include "checks/global_shadow.h"

#include <algorithm>
#include <bit>

namespace linnet::vgpu {
namespace {

// An entry names the last accessor: CTA + 1 in bits 0-31, launch in 32-47, its bytes in 48-63.
uint32_t cta_of(uint64_t entry) { return static_cast<uint32_t>(entry) - 1; }
uint16_t launch_of(uint64_t entry) { return static_cast<uint16_t>(entry >> 32); }
uint32_t bytes_of(uint64_t entry) { return static_cast<uint32_t>(entry >> 48); }

uint64_t make_entry(uint32_t cta, uint16_t launch, uint32_t bytes) {
  return (uint64_t{cta} + 1) | uint64_t{launch} << 32 | uint64_t{bytes} << 48;
}

template <class T>
T load(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}
template <class T>
void store(T& word, T value) {
  __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}

// How many of `bytes` the launch has not touched before. CTAs on other threads may ask at the same
// moment: each byte is counted once.
uint64_t first_touches(uint32_t& word, uint16_t launch, uint32_t bytes) {
  uint32_t seen = load(word);
  for (;;) {
    const uint32_t known = seen >> 16 == launch ? seen & 0xffff : 0;
    const uint32_t fresh = bytes & ~known;
    if (!fresh) return 0;
    if (__atomic_compare_exchange_n(&word, &seen, uint32_t{launch} << 16 | known | bytes, true,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return static_cast<uint64_t>(std::popcount(fresh));
  }
}

}  // namespace

bool GlobalShadow::races(uint64_t entry, uint8_t fences_then, uint32_t bytes, uint32_t cta) const {
  if (launch_of(entry) != launch_ || cta_of(entry) == cta || static_cast<uint32_t>(entry) == 0 ||
      !(bytes_of(entry) & bytes))
    return false;
  const bool released = fences_[cta_of(entry)].load(std::memory_order_relaxed) != fences_then;
  const bool acquired = acquires_[cta].load(std::memory_order_relaxed) != 0;
  return !(released && acquired);
}

std::optional<Hazard> GlobalShadow::access_cell(Access kind, uint64_t cell_address, uint32_t bytes,
                                                uint32_t cta, FirstTouches& touches) {
  std::optional<Hazard> hazard;
  ShadowCell& cell = *memory_.shadow(cell_address);
  const uint64_t write = load(cell.write);
  const uint64_t read = load(cell.read);
  const uint16_t written = load(cell.written);
  const uint8_t fences = fences_[cta].load(std::memory_order_relaxed);
  if (kind != Access::Write && (written & bytes) != bytes)
    hazard = Hazard{FindingKind::Uninitialised, Access::Read, cta, bytes & ~written};
  if (kind != Access::Atomic && races(write, load(cell.write_fences), bytes, cta))
    hazard = Hazard{FindingKind::GlobalRace, Access::Write, cta_of(write), bytes_of(write) & bytes};
  if (kind == Access::Write && races(read, load(cell.read_fences), bytes, cta))
    hazard = Hazard{FindingKind::GlobalRace, Access::Read, cta_of(read), bytes_of(read) & bytes};
  if (kind == Access::Read) {
    const bool same = cta_of(read) == cta && launch_of(read) == launch_;
    touches.read += first_touches(cell.read_touch, launch_, bytes);
    store(cell.read, make_entry(cta, launch_, same ? bytes_of(read) | bytes : bytes));
    store(cell.read_fences, fences);
    return hazard;
  }
  // Other CTAs may be writing other bytes of the cell at this moment.
  if ((written & bytes) != bytes)
    __atomic_fetch_or(&cell.written, static_cast<uint16_t>(bytes), __ATOMIC_RELAXED);
  if (kind == Access::Write) {
    const bool same = cta_of(write) == cta && launch_of(write) == launch_;
    touches.written += first_touches(cell.write_touch, launch_, bytes);
    store(cell.write, make_entry(cta, launch_, same ? bytes_of(write) | bytes : bytes));
    store(cell.write_fences, fences);
  }
  return hazard;
}

}  // namespace linnet::vgpu
