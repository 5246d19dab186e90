// mbarrier: init, arrive, expect_tx, test_wait, try_wait.
#include <fmt/format.h>

#include <algorithm>

#include "exec/cluster.h"
#include "exec/families.h"
#include "exec/memory_access.h"
#include "exec/report.h"
#include "exec/swizzle.h"

namespace linnet::vgpu {

uint64_t shared_offset(uint64_t address) {
  return (address & kWindowMask) == kSharedWindow ? address - kSharedWindow : address;
}

Mbarrier& find_mbarrier(Warp& warp, int lane, uint64_t address) {
  Cta& owner = block_of(warp, lane, shared_offset(address));
  const auto found = owner.mbarriers.find(offset_bits(address));
  if (found == owner.mbarriers.end())
    fault(warp, FindingKind::InvalidAddress, lane, address, "no mbarrier was initialised here");
  return found->second;
}

void arrive_mbarrier(Warp& warp, int lane, uint64_t address, uint32_t count) {
  Mbarrier& barrier = find_mbarrier(warp, lane, address);
  Cta& owner = block_of(warp, lane, shared_offset(address));
  auto& clock = barrier.clock;
  clock.resize(warp.clock.size(), 0);
  // Clocks are those of one block's warps: another's says nothing here.
  for (size_t i = 0; i < clock.size() && &owner == &warp.cta; ++i)
    clock[i] = std::max(clock[i], warp.clock[i]);
  ++owner.progress;
  barrier.pending -= std::min(barrier.pending, count);
  barrier.complete_if_done();
  ++warp.cta.progress;
}

namespace {

// A state token: the phase it belongs to above, the pending count below.
uint64_t token(const Mbarrier& barrier) { return barrier.phase << 32 | barrier.pending; }

// The object's word is written so that reading it as data is no "uninitialised" finding.
void touch_word(Warp& warp, uint32_t mask, const uint64_t* addresses) {
  LaneAccess access;
  access.mask = mask;
  access.bytes = 8;
  access.kind = Access::Write;
  access.strong = true;
  for (int lane = 0; lane < kLanes; ++lane) access.address[lane] = shared_offset(addresses[lane]);
  resolve_shared(warp, access);
}

void initialise(Warp& warp, const Op& op, uint32_t mask) {
  uint64_t addresses[kLanes];
  gather_addresses(warp, op, addresses);
  touch_word(warp, mask, addresses);
  active_lanes(mask, [&](int lane) {
    Mbarrier barrier;
    barrier.expected = barrier.pending = warp.src<uint32_t>(op.b)[lane];
    warp.cta.mbarriers[static_cast<uint32_t>(shared_offset(addresses[lane]))] = barrier;
  });
}

void invalidate(Warp& warp, const Op& op, uint32_t mask) {
  uint64_t addresses[kLanes];
  gather_addresses(warp, op, addresses);
  active_lanes(mask, [&](int lane) {
    find_mbarrier(warp, lane, addresses[lane]);
    warp.cta.mbarriers.erase(static_cast<uint32_t>(shared_offset(addresses[lane])));
  });
}

enum ArriveFlags : uint8_t { kExpectTx = 1, kDrop = 2 };

void arrive(Warp& warp, const Op& op, uint32_t mask) {
  uint64_t addresses[kLanes];
  gather_addresses(warp, op, addresses);
  const uint32_t* count = op.b == kNoSlot ? nullptr : warp.src<uint32_t>(op.b);
  uint64_t* dst = op.dst == kNoSlot ? nullptr : warp.dst<uint64_t>(op.dst);
  active_lanes(mask, [&](int lane) {
    Mbarrier& barrier = find_mbarrier(warp, lane, addresses[lane]);
    if (dst) dst[lane] = token(barrier);
    uint32_t arrivals = count ? count[lane] : 1;
    if (op.flags & kExpectTx) {
      barrier.transactions += count[lane];
      arrivals = 1;
    }
    if (op.flags & kDrop) barrier.expected -= std::min(barrier.expected, arrivals);
    arrive_mbarrier(warp, lane, addresses[lane], arrivals);
  });
  ++warp.clock[warp.index];
}

void transact(Warp& warp, const Op& op, uint32_t mask) {
  uint64_t addresses[kLanes];
  gather_addresses(warp, op, addresses);
  const uint32_t* bytes = warp.src<uint32_t>(op.b);
  active_lanes(mask, [&](int lane) {
    Mbarrier& barrier = find_mbarrier(warp, lane, addresses[lane]);
    barrier.transactions += op.flags ? -int64_t{bytes[lane]} : int64_t{bytes[lane]};
    barrier.complete_if_done();
  });
  ++warp.cta.progress;
}

// Bulk copies of this barrier arrive now: whoever reads their destination without looking here
// first still finds the old bytes.
void land_copies(Warp& warp, int lane, Mbarrier& barrier) {
  const std::vector<BulkCopy> copies = std::move(barrier.copies);
  barrier.copies.clear();
  for (const BulkCopy& copy : copies) {
    const auto bytes = static_cast<uint32_t>(copy.data.size());
    for (uint32_t at = 0; at < bytes; at += 16)
      std::copy_n(copy.data.begin() + at, 16,
                  warp.cta.shared.data.get() + swizzled(copy.shared_address + at, copy.span));
    if (warp.launch.settings.checks && copy.remote) {
      warp.cta.shadow.access_remote(Access::Write, copy.shared_address, bytes);
    } else if (warp.launch.settings.checks) {
      std::vector<uint32_t> issued = barrier.clock;
      issued.resize(warp.clock.size(), 0);
      if (auto hazard = warp.cta.shadow.end_copy(copy.shared_address, bytes, copy.warp, issued))
        report_shared_hazard(warp, *hazard, lane, copy.shared_address, Access::Write);
    }
    barrier.transactions -= bytes;
  }
  if (!copies.empty()) {
    barrier.complete_if_done();
    ++warp.cta.progress;
  }
}

enum WaitFlags : uint8_t { kParity = 1, kTries = 2 };

void wait(Warp& warp, const Op& op, uint32_t mask) {
  uint64_t addresses[kLanes];
  gather_addresses(warp, op, addresses);
  uint32_t done = 0;
  active_lanes(mask, [&](int lane) {
    Mbarrier& barrier = find_mbarrier(warp, lane, addresses[lane]);
    land_copies(warp, lane, barrier);
    const bool over = op.flags & kParity
                          ? (barrier.phase & 1) != (warp.src<uint32_t>(op.b)[lane] & 1)
                          : barrier.phase != warp.src<uint64_t>(op.b)[lane] >> 32;
    if (!over) return;
    done |= 1u << lane;
    for (size_t i = 0; i < barrier.phase_clock.size(); ++i)
      warp.clock[i] = std::max(warp.clock[i], barrier.phase_clock[i]);
  });
  warp.set_pred(op.dst, mask, done);
  // Somebody else must run for the answer to change.
  if (done != mask) warp.yield();
}

void pending_count(Warp& warp, const Op& op, uint32_t mask) {
  const uint64_t* a = warp.src<uint64_t>(op.a);
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int i) { return static_cast<uint32_t>(a[i]); });
}

Space space_of(const OpBuilder& b) { return b.has("space") ? Space::Shared : Space::Generic; }

void decode_arrive(OpBuilder& b) {
  // The token may be left out: "mbarrier.arrive.shared.b64 _, [a]" or without the first operand.
  const bool has_token = b.operand(0).kind != OperandKind::Memory;
  const size_t at = has_token ? 1 : 0;
  if (has_token && b.operand(0).kind != OperandKind::Sink) b.op.dst = b.dst(0, Type::B64);
  b.address(b.operand(at), space_of(b));
  if (b.operands() > at + 1) b.op.b = b.src(at + 1, Type::U32);
  if (b.get("variant") == "expect_tx") {
    b.op.flags |= kExpectTx;
    if (b.op.b == kNoSlot) b.fail("expect_tx needs a byte count");
  }
  if (b.get("op") == "arrive_drop") b.op.flags |= kDrop;
  b.op.run = arrive;
}

void decode_mbarrier(OpBuilder& b) {
  const std::string_view what = b.get("op");
  b.op.kind = OpClass::Barrier;
  if (what == "arrive" || what == "arrive_drop") return decode_arrive(b);
  if (what == "pending_count") {
    b.op.dst = b.dst(0, Type::U32);
    b.op.a = b.src(1, Type::B64);
    b.op.run = pending_count;
    return;
  }
  if (what == "test_wait" || what == "try_wait") {
    b.op.dst = b.pred_dst(b.operand(0));
    b.address(b.operand(1), space_of(b));
    b.op.flags =
        static_cast<uint8_t>((b.has("parity") ? kParity : 0) | (what == "try_wait" ? kTries : 0));
    b.op.b = b.src(2, b.has("parity") ? Type::U32 : Type::B64);
    b.op.run = wait;
    return;
  }
  b.address(b.operand(0), space_of(b));
  if (b.operands() > 1) b.op.b = b.src(1, Type::U32);
  b.op.flags = what == "complete_tx";
  b.op.run = what == "init" ? initialise : what == "inval" ? invalidate : transact;
}

constexpr DecodeRow kRows[] = {{"mbarrier", decode_mbarrier}};

}  // namespace

std::span<const DecodeRow> mbarrier_family() { return kRows; }

}  // namespace linnet::vgpu
