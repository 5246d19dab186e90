#include "exec/memory_access.h"

#include <fmt/format.h>

#include <algorithm>

#include "exec/cluster.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

const char* verb(Access kind) {
  return kind == Access::Read ? "read" : kind == Access::Write ? "write" : "atomic";
}

[[noreturn]] void fault_global(const Warp& warp, const LaneAccess& access, int lane) {
  const uint64_t address = access.address[lane];
  const Region* region = warp.launch.regions->below(address);
  const std::string what = fmt::format("{} of {} bytes", verb(access.kind), access.bytes);
  if (!region)
    fault(warp, FindingKind::InvalidAddress, lane, address,
          fmt::format("{} at an address that belongs to no allocation", what));
  if (region->freed && region->holds(address, access.bytes))
    fault(warp, FindingKind::UseAfterFree, lane, address,
          fmt::format("{} in freed {}", what, region->describe()));
  const uint64_t end = region->base + region->bytes;
  if (address >= end)
    fault(warp, FindingKind::OutOfBounds, lane, address,
          fmt::format("{} {} bytes behind the end of {}", what, address - end, region->describe()));
  fault(warp, FindingKind::OutOfBounds, lane, address,
        fmt::format("{} runs over the end of {}", what, region->describe()));
}

void check_alignment(const Warp& warp, const LaneAccess& access) {
  uint64_t all = 0;
  for (int lane = 0; lane < kLanes; ++lane) all |= access.address[lane];
  if ((all & (access.bytes - 1)) == 0) return;
  active_lanes(access.mask, [&](int lane) {
    if (access.address[lane] & (access.bytes - 1))
      fault(warp, FindingKind::Misaligned, lane, access.address[lane],
            fmt::format("{} of {} bytes needs that alignment", verb(access.kind), access.bytes));
  });
}

void check_bounds(Warp& warp, const LaneAccess& access) {
  uint64_t low = access.address[0], high = access.address[0];
  for (int lane = 1; lane < kLanes; ++lane) {
    low = std::min(low, access.address[lane]);
    high = std::max(high, access.address[lane]);
  }
  const Region* known = warp.last_region;
  if (known && known->holds(low, high - low + access.bytes)) return;
  active_lanes(access.mask, [&](int lane) {
    const Region* region = warp.launch.regions->below(access.address[lane]);
    if (!region || region->freed || !region->holds(access.address[lane], access.bytes))
      fault_global(warp, access, lane);
    warp.last_region = region;
  });
}

// Calls f(lane, cell, byte mask) for the cells of 16 bytes the lanes touch; neighbouring lanes that
// share a cell are joined into one call.
template <class F>
void for_lane_cells(const LaneAccess& access, F f) {
  uint64_t cell = ~uint64_t{0};
  uint32_t bytes = 0;
  int owner = 0;
  const uint32_t ones = access.bytes >= 16 ? 0xffffu : (1u << access.bytes) - 1;
  active_lanes(access.mask, [&](int lane) {
    for (uint32_t part = 0; part < access.bytes; part += 16) {
      const uint64_t at = access.address[lane] + part;
      if (at / 16 != cell) {
        if (bytes) f(owner, cell, bytes);
        cell = at / 16;
        bytes = 0;
        owner = lane;
      }
      bytes |= ones << (at % 16);
    }
  });
  if (bytes) f(owner, cell, bytes);
}

// Which of the lanes joined into one cell touched the bytes that are wrong; `first` begins them.
int lane_of_bytes(const LaneAccess& access, int first, uint64_t cell, uint32_t bytes) {
  const uint32_t ones = access.bytes >= 16 ? 0xffffu : (1u << access.bytes) - 1;
  for (int lane = first; lane < kLanes; ++lane) {
    const uint64_t address = access.address[lane];
    const bool touches = address / 16 == cell && (ones << (address % 16) & bytes);
    if (touches && lane_in(access.mask, lane)) return lane;
  }
  return first;
}

std::string hazard_text(const Hazard& hazard, Access kind, const char* whose) {
  switch (hazard.kind) {
    case FindingKind::Uninitialised:
      return fmt::format("{} of memory that nothing has written", verb(kind));
    case FindingKind::AsyncHazard:
      return fmt::format(
          "{} of the destination of an asynchronous copy that has not been waited for", verb(kind));
    default:
      return fmt::format("{} races with a {} by {} {}: nothing orders them", verb(kind),
                         verb(hazard.earlier), whose, hazard.other);
  }
}

void check_global_shadow(Warp& warp, const LaneAccess& access) {
  GlobalShadow& shadow = *warp.launch.shadow;
  const uint32_t cta = warp.cta.linear;
  if (access.strong) {
    shadow.acquire(cta);
    if (access.kind == Access::Read) return;
  }
  const Access kind = access.strong ? Access::Atomic : access.kind;
  for_lane_cells(access, [&](int lane, uint64_t cell, uint32_t bytes) {
    if (!warp.launch.memory->in_arena(cell * 16)) return;
    const auto hazard = shadow.access_cell(kind, cell * 16, bytes, cta, warp.cta.counters.touches);
    if (!hazard) return;
    // A strong plain store needs no earlier contents.
    if (hazard->kind == FindingKind::Uninitialised && access.kind == Access::Write) return;
    const int culprit = lane_of_bytes(access, lane, cell, hazard->bytes);
    report(warp, hazard->kind, culprit, access.address[culprit],
           hazard_text(*hazard, access.kind, "block"));
  });
}

MemoryCount& count_of(Warp& warp) {
  const size_t op = warp.code->first_counter + static_cast<size_t>(warp.current_pc());
  return warp.cta.counters.memory[op];
}

void count_global(Warp& warp, const LaneAccess& access) {
  MemoryCount& count = count_of(warp);
  const auto lanes = static_cast<uint64_t>(std::popcount(access.mask));
  count.lanes += lanes;
  count.bytes += lanes * access.bytes;
  count.units += count_sectors(access.address, access.bytes, access.mask);
  count.minimum += (lanes * access.bytes + 31) / 32;
}

}  // namespace

void gather_addresses(const Warp& warp, const Op& op, uint64_t* addresses) {
  const auto offset = static_cast<uint64_t>(op.imm);
  if (op.aux == 8) {
    const uint64_t* base = warp.src<uint64_t>(op.a);
    for (int lane = 0; lane < kLanes; ++lane) addresses[lane] = base[lane] + offset;
  } else {
    const uint32_t* base = warp.src<uint32_t>(op.a);
    for (int lane = 0; lane < kLanes; ++lane)
      addresses[lane] = base[lane] + static_cast<uint32_t>(offset);
  }
}

void LaneAccess::fill_inactive() {
  if (mask == kAllLanes) return;
  const uint64_t known = address[std::countr_zero(mask)];
  for (int lane = 0; lane < kLanes; ++lane)
    address[lane] = lane_in(mask, lane) ? address[lane] : known;
}

void resolve_global(Warp& warp, LaneAccess& access) {
  access.fill_inactive();
  check_alignment(warp, access);
  check_bounds(warp, access);
  if (warp.launch.shadow) check_global_shadow(warp, access);
  if (warp.launch.settings.counts) count_global(warp, access);
  if (access.kind != Access::Read) ++warp.cta.progress;
  for (int lane = 0; lane < kLanes; ++lane)
    access.host[lane] = reinterpret_cast<uint8_t*>(access.address[lane]);
}

void report_shared_hazard(Warp& warp, const Hazard& hazard, int lane, uint32_t address,
                          Access kind) {
  report(warp, hazard.kind, lane, address, hazard_text(hazard, kind, "warp"));
}

// Shared memory of other blocks of the cluster: bounds and contents are checked, races are not.
void resolve_remote(Warp& warp, LaneAccess& access) {
  const uint32_t size = warp.launch.shared_bytes();
  active_lanes(access.mask, [&](int lane) {
    Cta& owner = block_of(warp, lane, access.address[lane]);
    const uint32_t offset = offset_bits(access.address[lane]);
    if (offset > size || size - offset < access.bytes)
      fault(warp, FindingKind::SharedBounds, lane, access.address[lane],
            fmt::format("{} of {} bytes at offset {} of {} bytes of block {}'s shared memory",
                        verb(access.kind), access.bytes, offset, size, owner.rank));
    if (warp.launch.settings.checks) {
      const bool known = owner.shadow.access_remote(access.kind, offset, access.bytes);
      if (!known)
        report(warp, FindingKind::Uninitialised, lane, access.address[lane],
               fmt::format("{} of shared memory of block {} that nothing has written",
                           verb(access.kind), owner.rank));
    }
    if (access.kind != Access::Read) ++owner.progress;
    access.host[lane] = owner.shared.data.get() + offset;
  });
  const uint8_t* any = access.host[std::countr_zero(access.mask)];
  for (int lane = 0; lane < kLanes; ++lane)
    if (!lane_in(access.mask, lane)) access.host[lane] = const_cast<uint8_t*>(any);
}

void resolve_shared(Warp& warp, LaneAccess& access) {
  access.fill_inactive();
  check_alignment(warp, access);
  if (warp.cta.cluster.size() > 1) {
    uint32_t numbers = 0;
    for (int lane = 0; lane < kLanes; ++lane) numbers |= rank_bits(access.address[lane]);
    if (numbers) return resolve_remote(warp, access);
  }
  const uint32_t size = warp.launch.shared_bytes();
  uint64_t high = 0;
  for (int lane = 0; lane < kLanes; ++lane) high = std::max(high, access.address[lane]);
  const bool inside = high <= size && size - high >= access.bytes;
  active_lanes(inside ? 0 : access.mask, [&](int lane) {
    if (access.address[lane] > size || size - access.address[lane] < access.bytes)
      fault(warp, FindingKind::SharedBounds, lane, access.address[lane],
            fmt::format("{} of {} bytes at offset {} of {} bytes of shared memory",
                        verb(access.kind), access.bytes, access.address[lane], size));
  });
  if (warp.launch.settings.checks) {
    const Access kind =
        access.strong && access.kind == Access::Write ? Access::Atomic : access.kind;
    const uint32_t step = warp.clock[warp.index];
    for_lane_cells(access, [&](int lane, uint64_t cell, uint32_t bytes) {
      if (warp.cta.shadow.access_alone(kind, static_cast<uint32_t>(cell), bytes, warp.index, step))
        return;
      const auto hazard = warp.cta.shadow.access_cell(kind, static_cast<uint32_t>(cell), bytes,
                                                      warp.index, warp.clock);
      if (!hazard) return;
      const bool excused = access.strong && (hazard->kind == FindingKind::SharedRace ||
                                             access.kind == Access::Write);
      if (excused) return;
      const int culprit = lane_of_bytes(access, lane, cell, hazard->bytes);
      report_shared_hazard(warp, *hazard, culprit, static_cast<uint32_t>(access.address[culprit]),
                           access.kind);
    });
  }
  if (warp.launch.settings.counts) {
    MemoryCount& count = count_of(warp);
    const Wavefronts waves = count_wavefronts(access.address, access.bytes, access.mask);
    const auto lanes = static_cast<uint64_t>(std::popcount(access.mask));
    count.lanes += lanes;
    count.bytes += lanes * access.bytes;
    count.units += waves.count;
    count.minimum += waves.minimum;
  }
  if (access.kind != Access::Read) ++warp.cta.progress;
  for (int lane = 0; lane < kLanes; ++lane)
    access.host[lane] = warp.cta.shared.data.get() + static_cast<uint32_t>(access.address[lane]);
}

void resolve_local(Warp& warp, LaneAccess& access) {
  access.fill_inactive();
  check_alignment(warp, access);
  const uint32_t size = warp.local_capacity();
  const bool checks = warp.launch.settings.checks;
  active_lanes(access.mask, [&](int lane) {
    const uint64_t address = access.address[lane];
    if (address > size || size - address < access.bytes)
      fault(warp, FindingKind::LocalBounds, lane, address,
            fmt::format("{} of {} bytes at offset {} of {} bytes of local memory",
                        verb(access.kind), access.bytes, address, size));
    access.host[lane] = warp.local(lane) + address;
    if (!checks) return;
    uint8_t* written = warp.local_written(lane) + address;
    if (access.kind != Access::Read)
      std::fill_n(written, access.bytes, uint8_t{1});
    else if (std::find(written, written + access.bytes, 0) != written + access.bytes)
      report(warp, FindingKind::Uninitialised, lane, address,
             "read of local memory that nothing has written");
  });
  if (!warp.launch.settings.counts) return;
  // The hardware interleaves the lanes' words, so equal offsets lie side by side.
  MemoryCount& count = count_of(warp);
  const auto lanes = static_cast<uint64_t>(std::popcount(access.mask));
  LaneAccess spread = access;
  for (int lane = 0; lane < kLanes; ++lane)
    spread.address[lane] = access.address[lane] / 4 * 128 + static_cast<uint64_t>(lane) * 4;
  const uint32_t words = std::max(1u, access.bytes / 4);
  count.lanes += lanes;
  count.bytes += lanes * access.bytes;
  count.units += uint64_t{count_sectors(spread.address, 4, access.mask)} * words;
  count.minimum += (lanes * access.bytes + 31) / 32;
}

// Kernel parameters are one block for all lanes; those of functions belong to a lane's frame.
void resolve_param(Warp& warp, const Op& op, LaneAccess& access) {
  const bool kernel = warp.code->is_entry && access.kind == Access::Read && op.flags != 'f';
  const uint64_t size = kernel ? warp.launch.params.size() : uint64_t{warp.code->param_bytes};
  active_lanes(access.mask, [&](int lane) {
    const uint64_t address = access.address[lane];
    if (address > size || size - address < access.bytes)
      fault(warp, FindingKind::InvalidAddress, lane, address,
            fmt::format("{} of {} bytes at offset {} of {} bytes of parameters", verb(access.kind),
                        access.bytes, address, size));
    access.host[lane] = kernel ? warp.launch.params.data() + address : warp.params(lane) + address;
  });
}

void resolve(Warp& warp, const Op& op, Space space, LaneAccess& access) {
  switch (space) {
    case Space::Global:
    case Space::Const:
      return resolve_global(warp, access);
    case Space::Shared:
      return resolve_shared(warp, access);
    case Space::Local:
      return resolve_local(warp, access);
    case Space::Param:
      return resolve_param(warp, op, access);
    case Space::Generic:
      break;
  }
  // Each window is resolved for its own lanes; nearly always there is one.
  const uint32_t all = access.mask;
  for (uint32_t rest = all; rest;) {
    const uint64_t window = access.address[std::countr_zero(rest)] & kWindowMask;
    LaneAccess part = access;
    part.mask = 0;
    active_lanes(rest, [&](int lane) {
      if ((access.address[lane] & kWindowMask) == window) part.mask |= 1u << lane;
    });
    rest &= ~part.mask;
    for (int lane = 0; lane < kLanes; ++lane) part.address[lane] -= window;
    if (window == kSharedWindow)
      resolve_shared(warp, part);
    else if (window == kLocalWindow)
      resolve_local(warp, part);
    else if (window == kParamWindow)
      resolve_param(warp, op, part);
    else if (window == 0)
      resolve_global(warp, part);
    else
      fault_global(warp, access, std::countr_zero(part.mask));
    active_lanes(part.mask, [&](int lane) { access.host[lane] = part.host[lane]; });
  }
}

}  // namespace linnet::vgpu
