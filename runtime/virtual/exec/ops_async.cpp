// cp.async with groups, and cp.async.bulk: data lands only where the program waits for it.
#include <fmt/format.h>

#include <algorithm>

#include "exec/bulk.h"
#include "exec/families.h"
#include "exec/memory_access.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

// ---- cp.async ----

enum CopyFlags : uint8_t { kHasSize = 1, kHasIgnore = 2 };

// op.a/op.imm: shared address; op.b: global address (64-bit); op.c: source bytes or ignore
// predicate.
void copy(Warp& warp, const Op& op, uint32_t mask) {
  LaneAccess source;
  source.mask = 0;
  uint32_t taken[kLanes];
  uint64_t shared[kLanes];
  gather_addresses(warp, op, shared);
  const uint64_t* global = warp.src<uint64_t>(op.b);
  active_lanes(mask, [&](int lane) {
    taken[lane] = op.width;
    if (op.flags & kHasSize)
      taken[lane] = std::min<uint32_t>(warp.src<uint32_t>(op.c)[lane], op.width);
    if (op.flags & kHasIgnore)
      taken[lane] = lane_in(warp.pred(op.c), lane) != op.negate_c ? 0 : op.width;
    source.address[lane] = global[lane];
    if (taken[lane]) source.mask |= 1u << lane;
    if (taken[lane] && taken[lane] < op.width && (global[lane] & (op.width - 1u)))
      fault(warp, FindingKind::Misaligned, lane, global[lane],
            fmt::format("cp.async of {} bytes needs that alignment", op.width));
  });
  // Full copies are checked together; short ones touch only the bytes they take.
  uint32_t full = 0;
  active_lanes(source.mask, [&](int lane) { full |= taken[lane] == op.width ? 1u << lane : 0u; });
  const uint32_t some = source.mask & ~full;
  source.mask = full;
  source.bytes = op.width;
  if (full) resolve_global(warp, source);
  active_lanes(some, [&](int lane) {
    for (uint32_t at = 0; at < taken[lane]; ++at) {
      LaneAccess byte;
      byte.mask = 1u << lane;
      byte.bytes = 1;
      byte.address[lane] = global[lane] + at;
      resolve_global(warp, byte);
    }
  });
  const uint32_t size = warp.launch.shared_bytes();
  active_lanes(mask, [&](int lane) {
    const uint64_t to = shared_offset(shared[lane]);
    if (to > size || size - to < op.width)
      fault(warp, FindingKind::SharedBounds, lane, to,
            fmt::format("cp.async of {} bytes to offset {} of {} bytes of shared memory", op.width,
                        to, size));
    if (to & (op.width - 1u))
      fault(warp, FindingKind::Misaligned, lane, to,
            fmt::format("cp.async of {} bytes needs that alignment", op.width));
    PendingCopy pending;
    pending.shared_address = static_cast<uint32_t>(to);
    pending.bytes = op.width;
    std::copy_n(reinterpret_cast<const uint8_t*>(global[lane]), taken[lane], pending.data.begin());
    if (warp.launch.settings.checks)
      if (auto hazard =
              warp.cta.shadow.begin_copy(pending.shared_address, op.width, warp.index, warp.clock))
        report_shared_hazard(warp, *hazard, lane, pending.shared_address, Access::Write);
    warp.async.lanes[static_cast<size_t>(lane)].open.push_back(pending);
  });
}

void land(Warp& warp, int lane, const std::vector<PendingCopy>& copies) {
  for (const PendingCopy& pending : copies) {
    std::copy_n(pending.data.begin(), pending.bytes,
                warp.cta.shared.data.get() + pending.shared_address);
    if (!warp.launch.settings.checks) continue;
    if (auto hazard =
            warp.cta.shadow.end_copy(pending.shared_address, pending.bytes, warp.index, warp.clock))
      report_shared_hazard(warp, *hazard, lane, pending.shared_address, Access::Write);
  }
  ++warp.cta.progress;
}

void commit(Warp& warp, const Op&, uint32_t mask) {
  active_lanes(mask, [&](int lane) {
    auto& lanes = warp.async.lanes[static_cast<size_t>(lane)];
    lanes.groups.push_back(std::move(lanes.open));
    lanes.open.clear();
  });
}

void wait_group(Warp& warp, const Op& op, uint32_t mask) {
  const auto keep = static_cast<size_t>(op.imm);
  active_lanes(mask, [&](int lane) {
    auto& groups = warp.async.lanes[static_cast<size_t>(lane)].groups;
    if (groups.size() <= keep) return;
    const size_t done = groups.size() - keep;
    for (size_t i = 0; i < done; ++i) land(warp, lane, groups[i]);
    groups.erase(groups.begin(), groups.begin() + static_cast<long>(done));
  });
}

void land_everything(Warp& warp, int lane) {
  auto& lanes = warp.async.lanes[static_cast<size_t>(lane)];
  for (const auto& group : lanes.groups) land(warp, lane, group);
  land(warp, lane, lanes.open);
  lanes.groups.clear();
  lanes.open.clear();
}

void wait_all(Warp& warp, const Op&, uint32_t mask) {
  active_lanes(mask, [&](int lane) { land_everything(warp, lane); });
}

// The copies of a thread land together with its arrival: the phase cannot end before it.
void arrive_after_copies(Warp& warp, const Op& op, uint32_t mask) {
  uint64_t addresses[kLanes];
  gather_addresses(warp, op, addresses);
  active_lanes(mask, [&](int lane) {
    land_everything(warp, lane);
    // Without .noinc the arrival was first added to the count, so it changes nothing.
    arrive_mbarrier(warp, lane, addresses[lane], op.flags ? 1 : 0);
  });
  ++warp.clock[warp.index];
}

void decode_copy(OpBuilder& b) {
  b.address(b.operand(0), Space::Shared);
  const uint64_t bytes = b.immediate(2);
  if (bytes != 4 && bytes != 8 && bytes != 16) b.fail("cp.async copies 4, 8 or 16 bytes");
  if (b.get("cache") == "cg" && bytes != 16) b.fail("cp.async.cg copies 16 bytes");
  b.op.width = static_cast<uint8_t>(bytes);
  b.op.b = b.address_value(b.operand(1));
  const size_t extras = b.operands() - 3 - (b.has("hint") ? 1 : 0);
  if (extras == 1) {
    const Operand& extra = b.operand(3);
    const bool is_pred =
        extra.kind == OperandKind::Register && b.function().register_type(extra.reg) == Type::Pred;
    b.op.flags = is_pred ? kHasIgnore : kHasSize;
    b.op.c = is_pred ? b.pred_src(extra, b.op.negate_c) : b.src(extra, Type::U32);
  } else if (extras > 1) {
    b.fail("too many operands");
  }
  b.op.run = copy;
  b.use.async = AsyncRole::Copy;
}

// ---- cp.async.bulk ----

void check_bulk_alignment(Warp& warp, int lane, uint64_t shared, uint64_t global, uint32_t bytes) {
  if (bytes % 16 || shared % 16 || global % 16)
    fault(warp, FindingKind::Misaligned, lane,
          bytes % 16    ? bytes
          : shared % 16 ? shared
                        : global,
          "bulk copies need addresses and a size that are multiples of 16");
}

void touch_global(Warp& warp, int lane, uint64_t global, uint32_t bytes, Access kind) {
  for (uint32_t at = 0; at < bytes; at += 16) {
    LaneAccess access;
    access.mask = 1u << lane;
    access.bytes = 16;
    access.kind = kind;
    access.address[lane] = global + at;
    resolve_global(warp, access);
  }
}

// op.a: shared, op.b: global (or shared) source, op.c: bytes, op.d: mbarrier.
void bulk_to_shared(Warp& warp, const Op& op, uint32_t mask) {
  uint64_t shared[kLanes];
  gather_addresses(warp, op, shared);
  active_lanes(mask, [&](int lane) {
    const uint64_t from = warp.src<uint64_t>(op.b)[lane];
    const uint64_t to = shared_offset(shared[lane]);
    const uint32_t bytes = warp.src<uint32_t>(op.c)[lane];
    check_bulk_alignment(warp, lane, to, from, bytes);
    const uint8_t* source = nullptr;
    if (op.flags) {
      const uint32_t offset = check_bulk_range(warp, lane, shared_offset(from), bytes);
      if (warp.launch.settings.checks)
        if (auto hazard =
                warp.cta.shadow.access(Access::Read, offset, bytes, warp.index, warp.clock))
          report_shared_hazard(warp, *hazard, lane, offset, Access::Read);
      source = warp.cta.shared.data.get() + offset;
    } else {
      touch_global(warp, lane, from, bytes, Access::Read);
      source = reinterpret_cast<const uint8_t*>(from);
    }
    begin_bulk(warp, lane, to, shared_offset(warp.src<uint64_t>(op.d)[lane]),
               {source, source + bytes}, 0);
  });
  ++warp.cta.progress;
}

// op.a: shared source, op.b: global destination.
void bulk_to_global(Warp& warp, const Op& op, uint32_t mask) {
  uint64_t shared[kLanes];
  gather_addresses(warp, op, shared);
  active_lanes(mask, [&](int lane) {
    const uint64_t to = warp.src<uint64_t>(op.b)[lane];
    const uint32_t bytes = warp.src<uint32_t>(op.c)[lane];
    const uint64_t source = shared_offset(shared[lane]);
    check_bulk_alignment(warp, lane, source, to, bytes);
    const uint32_t from = check_bulk_range(warp, lane, source, bytes);
    if (warp.launch.settings.checks)
      if (auto hazard = warp.cta.shadow.access(Access::Read, from, bytes, warp.index, warp.clock))
        report_shared_hazard(warp, *hazard, lane, from, Access::Read);
    touch_global(warp, lane, to, bytes, Access::Write);
    std::copy_n(warp.cta.shared.data.get() + from, bytes, reinterpret_cast<uint8_t*>(to));
  });
}

void nothing(Warp&, const Op&, uint32_t) {}

void decode_bulk(OpBuilder& b) {
  if (b.has("op") || b.has("prefetch")) {
    b.op.run = nothing;  // stores are done when issued; prefetches are hints
    return;
  }
  const bool to_shared = b.get("dst").starts_with("shared");
  b.op.flags = to_shared && b.get("src") != "global";  // from this block to another of the cluster
  b.address(b.operand(to_shared ? 0 : 1), Space::Shared);
  b.op.b = b.address_value(b.operand(to_shared ? 1 : 0));
  b.op.c = b.src(2, Type::U32);
  if (to_shared) b.op.d = b.address_value(b.operand(3));
  b.op.run = to_shared ? bulk_to_shared : bulk_to_global;
}

void decode_cp(OpBuilder& b) {
  b.op.kind = OpClass::AsyncCopy;
  if (b.has("tensor")) return decode_tensor_copy(b);
  if (b.has("bulk")) return decode_bulk(b);
  const std::string_view what = b.get("op");
  if (what.empty()) return decode_copy(b);
  if (what == "commit_group") {
    b.op.run = commit;
    b.use.async = AsyncRole::Commit;
  } else if (what == "wait_all") {
    b.op.run = wait_all;
    b.use.async = AsyncRole::Wait;
  } else if (what == "wait_group") {
    b.op.imm = static_cast<int64_t>(b.immediate(0));
    b.op.run = wait_group;
    b.use.async = AsyncRole::Wait;
  } else {
    b.address(b.operand(0), b.has("space") ? Space::Shared : Space::Generic);
    b.op.flags = b.has("noinc");
    b.op.run = arrive_after_copies;
  }
}

constexpr DecodeRow kRows[] = {{"cp", decode_cp}};

}  // namespace

uint32_t check_bulk_range(Warp& warp, int lane, uint64_t shared, uint32_t bytes) {
  const uint32_t size = warp.launch.shared_bytes(), offset = offset_bits(shared);
  block_of(warp, lane, shared);
  if (offset > size || size - offset < bytes)
    fault(warp, FindingKind::SharedBounds, lane, shared,
          fmt::format("bulk copy of {} bytes at offset {} of {} bytes of shared memory", bytes,
                      offset, size));
  return offset;
}

void begin_bulk(Warp& warp, int lane, uint64_t destination, uint64_t barrier_address,
                std::vector<uint8_t> data, uint32_t span) {
  Cta& owner = block_of(warp, lane, destination);
  const auto bytes = static_cast<uint32_t>(data.size());
  if (&owner != &block_of(warp, lane, barrier_address))
    fault(warp, FindingKind::InvalidAddress, lane, barrier_address,
          "a bulk copy and its mbarrier must lie in the same block");
  BulkCopy pending;
  pending.shared_address = check_bulk_range(warp, lane, destination, bytes);
  // Pieces change places within lines of 128 bytes.
  if (span) check_bulk_range(warp, lane, destination, (bytes + 127) / 128 * 128);
  pending.warp = warp.index;
  pending.span = span;
  pending.remote = &owner != &warp.cta;
  pending.data = std::move(data);
  Mbarrier& barrier = find_mbarrier(warp, lane, barrier_address);
  if (!pending.remote) {
    if (warp.launch.settings.checks)
      if (auto hazard =
              warp.cta.shadow.begin_copy(pending.shared_address, bytes, warp.index, warp.clock))
        report_shared_hazard(warp, *hazard, lane, pending.shared_address, Access::Write);
    barrier.clock.resize(warp.clock.size(), 0);
    for (size_t i = 0; i < warp.clock.size(); ++i)
      barrier.clock[i] = std::max(barrier.clock[i], warp.clock[i]);
  }
  barrier.copies.push_back(std::move(pending));
  ++owner.progress;
}

std::span<const DecodeRow> async_family() { return kRows; }

}  // namespace linnet::vgpu
