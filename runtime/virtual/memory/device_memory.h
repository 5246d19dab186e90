// The memory of the virtual device: one reserved range of host addresses, allocations in it, and a
// shadow that remembers for every byte whether and by whom it was written.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace linnet::vgpu {

enum class RegionKind : uint8_t { Device, Module, Host };

// A range of addresses that kernels may touch, or may no longer touch once it is freed.
struct Region {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint32_t id = 0;
  RegionKind kind = RegionKind::Device;
  bool freed = false;
  std::string label;

  bool holds(uint64_t address, uint64_t size) const {
    return address >= base && address - base <= bytes && bytes - (address - base) >= size;
  }
  std::string describe() const;
};

// Regions sorted by address; a launch keeps one snapshot for its whole run.
class RegionTable {
 public:
  explicit RegionTable(std::vector<Region> regions) : regions_(std::move(regions)) {}
  // The region with the largest base not above `address`, or null.
  const Region* below(uint64_t address) const;
  const std::vector<Region>& all() const { return regions_; }

 private:
  std::vector<Region> regions_;
};

// Shadow of sixteen bytes of device memory; checks/global_shadow.cpp explains the packed entries.
struct ShadowCell {
  uint64_t write = 0;        // the last CTA that wrote, 0: the host
  uint64_t read = 0;         // the last CTA that read
  uint32_t read_touch = 0;   // launch and the bytes it read so far, whichever CTA did
  uint32_t write_touch = 0;  // the same of bytes written
  uint16_t written = 0;      // bytes that hold data
  uint8_t write_fences = 0;  // fences the writer had executed then
  uint8_t read_fences = 0;
};

class DeviceMemory {
 public:
  static constexpr uint64_t kCellBytes = 16;

  explicit DeviceMemory(uint64_t capacity);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // 0 when there is no room.
  uint64_t allocate(uint64_t bytes, RegionKind kind, std::string label);
  // False when `address` is not the start of a live allocation.
  bool release(uint64_t address);
  // Host memory that kernels may use under its own address.
  void register_host(uint64_t address, uint64_t bytes, std::string label);
  bool unregister_host(uint64_t address);

  // The live region holding the address; false when there is none.
  bool find(uint64_t address, Region& region) const;
  std::shared_ptr<const RegionTable> snapshot() const;

  void mark_written(uint64_t address, uint64_t bytes);
  void copy_written(uint64_t to, uint64_t from, uint64_t bytes);

  bool in_arena(uint64_t address) const { return address - base_ < capacity_; }
  ShadowCell* shadow(uint64_t address) const { return shadow_ + (address - base_) / kCellBytes; }
  uint64_t capacity() const { return capacity_; }
  uint64_t used() const;

 private:
  void reuse_quarantine(uint64_t needed);
  void reset_shadow(uint64_t address, uint64_t bytes);

  uint64_t base_ = 0;
  uint64_t capacity_ = 0;
  ShadowCell* shadow_ = nullptr;
  mutable std::mutex mutex_;
  std::map<uint64_t, Region> regions_;        // live and quarantined
  std::map<uint64_t, uint64_t> free_ranges_;  // base -> bytes
  std::vector<uint64_t> quarantine_;          // freed regions, oldest first
  uint64_t quarantined_bytes_ = 0;
  uint64_t used_ = 0;
  uint32_t next_id_ = 1;
  mutable std::shared_ptr<const RegionTable> snapshot_;
};

}  // namespace linnet::vgpu
