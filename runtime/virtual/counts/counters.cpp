#include "counts/counters.h"

#include <algorithm>

#include "exec/lanes.h"

namespace linnet::vgpu {
void Counters::reset(uint32_t ops) {
  issued.assign(ops, 0);
  memory.assign(ops, MemoryCount{});
  touches = {};
  block_clocks = 0;
}

void Counters::add(const Counters& other) {
  touches.read += other.touches.read;
  touches.written += other.touches.written;
  block_clocks = std::max(block_clocks, other.block_clocks);
  for (size_t i = 0; i < issued.size(); ++i) {
    issued[i] += other.issued[i];
    memory[i].add(other.memory[i]);
  }
}

uint32_t count_sectors(const uint64_t* addresses, uint32_t bytes, uint32_t mask) {
  uint64_t sectors[kLanes * 2];
  int count = 0;
  bool sorted = true;
  active_lanes(mask, [&](int lane) {
    // An aligned access of up to 32 bytes stays within one sector.
    const uint64_t sector = addresses[lane] / 32;
    if (count && sectors[count - 1] == sector) return;
    sorted &= !count || sectors[count - 1] < sector;
    sectors[count++] = sector;
    const uint64_t last = (addresses[lane] + bytes - 1) / 32;
    if (last != sector) sectors[count++] = last;
  });
  if (sorted) return static_cast<uint32_t>(count);
  std::sort(sectors, sectors + count);
  return static_cast<uint32_t>(std::unique(sectors, sectors + count) - sectors);
}

namespace {

// The most distinct units any bank has to serve for the lanes of one group.
uint32_t worst_bank(const uint64_t* addresses, uint32_t unit, uint32_t banks, uint32_t lanes) {
  uint32_t seen = 0;
  bool clash = false;
  uint64_t previous = ~uint64_t{0};
  active_lanes(lanes, [&](int lane) {
    const uint64_t word = addresses[lane] / unit;
    const uint32_t bank = 1u << (word & (banks - 1));
    clash |= (seen & bank) && word != previous;
    seen |= bank;
    previous = word;
  });
  if (!clash) return 1;
  uint32_t known[kLanes][kLanes];  // distinct units, by bank
  uint8_t depth[kLanes] = {};
  uint8_t worst = 1;
  active_lanes(lanes, [&](int lane) {
    const auto word = static_cast<uint32_t>(addresses[lane] / unit);
    const size_t bank = word & (banks - 1);
    uint8_t at = 0;
    while (at < depth[bank] && known[bank][at] != word) ++at;
    if (at < depth[bank]) return;
    known[bank][depth[bank]++] = word;
    worst = std::max(worst, depth[bank]);
  });
  return worst;
}

}  // namespace

Wavefronts count_wavefronts(const uint64_t* addresses, uint32_t bytes, uint32_t mask) {
  // Wide accesses are served by half (8 bytes) or quarter (16 bytes) warps, whose lanes then occupy
  // two or four neighbouring banks each.
  const uint32_t unit = std::clamp(bytes, 4u, 16u);
  const uint32_t group = 128 / unit;
  const uint32_t passes = bytes > 16 ? bytes / 16 : 1;
  Wavefronts total;
  for (uint32_t first = 0; first < kLanes; first += group) {
    const uint32_t lanes = mask & (group == 32 ? kAllLanes : ((1u << group) - 1) << first);
    if (!lanes) continue;
    total.count += worst_bank(addresses, unit, group, lanes) * passes;
    total.minimum += passes;
  }
  return total;
}

}  // namespace linnet::vgpu
