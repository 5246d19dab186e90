#include "memory/device_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace linnet::vgpu {
namespace {

constexpr uint64_t kAlignment = 512;
// Space left behind every allocation, so that running over its end is seen.
constexpr uint64_t kRedZone = 512;
// Freed memory is kept out of use this long, so that using it is seen.
constexpr uint64_t kQuarantineBytes = uint64_t{256} << 20;

uint64_t footprint(uint64_t bytes) {
  return (bytes + kRedZone + kAlignment - 1) / kAlignment * kAlignment;
}

void* reserve(uint64_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

}  // namespace

std::string Region::describe() const {
  const char* what = kind == RegionKind::Host     ? "host memory"
                     : kind == RegionKind::Module ? "module variable"
                                                  : "allocation";
  return fmt::format("{} #{}{}{} [{:#x}, +{} bytes]", what, id, label.empty() ? "" : " ", label,
                     base, bytes);
}

const Region* RegionTable::below(uint64_t address) const {
  const auto above =
      std::upper_bound(regions_.begin(), regions_.end(), address,
                       [](uint64_t value, const Region& region) { return value < region.base; });
  return above == regions_.begin() ? nullptr : &*(above - 1);
}

DeviceMemory::DeviceMemory(uint64_t capacity) {
  // Halve the reservation until the host grants it (limits on virtual memory are common in CI).
  for (capacity_ = capacity; capacity_ >= (uint64_t{64} << 20); capacity_ /= 2) {
    void* data = reserve(capacity_);
    void* shadow = data ? reserve(capacity_ / kCellBytes * sizeof(ShadowCell)) : nullptr;
    if (shadow) {
      base_ = reinterpret_cast<uint64_t>(data);
      shadow_ = static_cast<ShadowCell*>(shadow);
      free_ranges_[base_] = capacity_;
      return;
    }
    if (data) munmap(data, capacity_);
  }
  throw std::bad_alloc();
}

DeviceMemory::~DeviceMemory() {
  munmap(reinterpret_cast<void*>(base_), capacity_);
  munmap(shadow_, capacity_ / kCellBytes * sizeof(ShadowCell));
}

uint64_t DeviceMemory::allocate(uint64_t bytes, RegionKind kind, std::string label) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > capacity_) return 0;
  const uint64_t needed = footprint(bytes);
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (auto range = free_ranges_.begin(); range != free_ranges_.end(); ++range) {
      if (range->second < needed) continue;
      const uint64_t address = range->first;
      const uint64_t rest = range->second - needed;
      free_ranges_.erase(range);
      if (rest) free_ranges_[address + needed] = rest;
      reset_shadow(address, needed);
      regions_[address] = {address, bytes, next_id_++, kind, false, std::move(label)};
      used_ += bytes;
      snapshot_.reset();
      return address;
    }
    reuse_quarantine(~uint64_t{0});
  }
  return 0;
}

bool DeviceMemory::release(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = regions_.find(address);
  if (found == regions_.end() || found->second.freed || found->second.kind == RegionKind::Host)
    return false;
  found->second.freed = true;
  used_ -= found->second.bytes;
  quarantine_.push_back(address);
  quarantined_bytes_ += footprint(found->second.bytes);
  snapshot_.reset();
  if (quarantined_bytes_ > kQuarantineBytes)
    reuse_quarantine(quarantined_bytes_ - kQuarantineBytes / 2);
  return true;
}

// Gives the oldest freed regions back to the allocator, joining neighbours.
void DeviceMemory::reuse_quarantine(uint64_t needed) {
  uint64_t given = 0;
  size_t count = 0;
  for (; count < quarantine_.size() && given < needed; ++count) {
    const uint64_t address = quarantine_[count];
    uint64_t start = address;
    uint64_t bytes = footprint(regions_[address].bytes);
    given += bytes;
    madvise(reinterpret_cast<void*>(address), bytes, MADV_DONTNEED);
    regions_.erase(address);
    const auto next = free_ranges_.find(start + bytes);
    if (next != free_ranges_.end()) {
      bytes += next->second;
      free_ranges_.erase(next);
    }
    auto previous = free_ranges_.lower_bound(start);
    if (previous != free_ranges_.begin() && (--previous)->first + previous->second == start) {
      start = previous->first;
      bytes += previous->second;
    }
    free_ranges_[start] = bytes;
  }
  quarantine_.erase(quarantine_.begin(), quarantine_.begin() + static_cast<long>(count));
  quarantined_bytes_ -= std::min(quarantined_bytes_, given);
  snapshot_.reset();
}

void DeviceMemory::register_host(uint64_t address, uint64_t bytes, std::string label) {
  const std::lock_guard<std::mutex> lock(mutex_);
  regions_[address] = {address, bytes, next_id_++, RegionKind::Host, false, std::move(label)};
  snapshot_.reset();
}

bool DeviceMemory::unregister_host(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = regions_.find(address);
  if (found == regions_.end() || found->second.kind != RegionKind::Host) return false;
  regions_.erase(found);
  snapshot_.reset();
  return true;
}

bool DeviceMemory::find(uint64_t address, Region& region) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto above = regions_.upper_bound(address);
  if (above == regions_.begin()) return false;
  --above;
  // One past the end still belongs to the allocation for pointer queries of empty ranges only.
  if (above->second.freed || address - above->first >= std::max<uint64_t>(above->second.bytes, 1))
    return false;
  region = above->second;
  return true;
}

std::shared_ptr<const RegionTable> DeviceMemory::snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!snapshot_) {
    std::vector<Region> regions;
    regions.reserve(regions_.size());
    for (const auto& [address, region] : regions_) regions.push_back(region);
    snapshot_ = std::make_shared<const RegionTable>(std::move(regions));
  }
  return snapshot_;
}

void DeviceMemory::mark_written(uint64_t address, uint64_t bytes) {
  if (!in_arena(address)) return;
  for (uint64_t at = address, end = address + bytes; at < end;) {
    const uint64_t cell_end = std::min(end, at / kCellBytes * kCellBytes + kCellBytes);
    const uint32_t mask = ((1u << (cell_end - at)) - 1) << (at % kCellBytes);
    ShadowCell& cell = *shadow(at);
    cell.written = static_cast<uint16_t>(cell.written | mask);
    at = cell_end;
  }
}

// A copy of uninitialised bytes is not an error, but the copy is as uninitialised as its source.
void DeviceMemory::copy_written(uint64_t to, uint64_t from, uint64_t bytes) {
  if (!in_arena(to)) return;
  if (!in_arena(from) || to % kCellBytes || from % kCellBytes) return mark_written(to, bytes);
  const uint64_t cells = bytes / kCellBytes;
  for (uint64_t i = 0; i < cells; ++i) shadow(to)[i].written = shadow(from)[i].written;
  mark_written(to + cells * kCellBytes, bytes % kCellBytes);
}

void DeviceMemory::reset_shadow(uint64_t address, uint64_t bytes) {
  const auto first = reinterpret_cast<uint64_t>(shadow(address));
  const uint64_t size = bytes / kCellBytes * sizeof(ShadowCell);
  // Whole pages are dropped (they read as zero again); the edges are cleared by hand.
  const uint64_t page = 4096;
  const uint64_t from = (first + page - 1) / page * page;
  const uint64_t to = (first + size) / page * page;
  if (to > from + 64 * page) {
    madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
    std::fill_n(reinterpret_cast<uint8_t*>(first), from - first, uint8_t{0});
    std::fill_n(reinterpret_cast<uint8_t*>(to), first + size - to, uint8_t{0});
  } else {
    std::fill_n(reinterpret_cast<uint8_t*>(first), size, uint8_t{0});
  }
}

uint64_t DeviceMemory::used() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_;
}

}  // namespace linnet::vgpu
