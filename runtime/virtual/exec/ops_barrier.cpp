// bar and barrier: CTA barriers with ids, counts and reductions; bar.warp.sync.
#include <fmt/format.h>

#include <algorithm>

#include "exec/cluster.h"
#include "exec/families.h"
#include "exec/memory_access.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

enum Flags : uint16_t { kWaits = 1, kAligned = 2, kReduces = 4, kNegated = 8 };

// op.a: id, op.b: thread count or none, op.c: predicate of a reduction.
void barrier(Warp& warp, const Op& op, uint32_t mask) {
  const int lane = std::countr_zero(mask);
  BarrierArrival arrival;
  arrival.id = warp.src<uint32_t>(op.a)[lane];
  if (arrival.id > 15)
    fault(warp, FindingKind::IllegalInstruction, lane, arrival.id, "barrier ids go from 0 to 15");
  if (op.b != kNoSlot) {
    arrival.count = warp.src<uint32_t>(op.b)[lane];
    if (arrival.count == 0 || arrival.count % kLanes)
      fault(warp, FindingKind::IllegalInstruction, lane, arrival.count,
            fmt::format("barrier count {} is not a multiple of the warp size", arrival.count));
  }
  arrival.waits = op.aux & kWaits;
  arrival.aligned = op.aux & kAligned;
  if (op.aux & kReduces) arrival.predicate = warp.pred(op.c) ^ (op.aux & kNegated ? kAllLanes : 0);
  warp.cta.arrive(warp, op, mask, arrival);
}

void arrive_at_cluster(Warp& warp, const Op&, uint32_t mask) {
  warp.cluster_phase = warp.cta.cluster.phase();
  ++warp.cta.progress;
  warp.cta.cluster.arrive(static_cast<uint32_t>(std::popcount(mask)));
}

void wait_for_cluster(Warp& warp, const Op& op, uint32_t mask) {
  if (warp.cta.cluster.phase() == warp.cluster_phase) warp.wait_for_cluster(op, mask);
}

void decode_barrier(OpBuilder& b) {
  b.op.kind = OpClass::Barrier;
  if (b.has("cluster")) {
    b.op.run = b.get("op") == "arrive" ? arrive_at_cluster : wait_for_cluster;
    return;
  }
  if (b.has("warp")) {
    b.op.d = b.src(0, Type::B32);
    b.op.run = sync_warp;
    return;
  }
  const std::string_view what = b.get("op");
  const bool aligned = b.in.form.opcode() == "bar" || b.has("aligned");
  b.op.aux = static_cast<uint16_t>((what == "arrive" ? 0 : kWaits) | (aligned ? kAligned : 0));
  size_t next = 0;
  if (what == "red") {
    b.op.aux |= kReduces;
    const std::string_view reduction = b.get("red");
    b.op.flags = static_cast<uint8_t>(reduction[0]);  // 'p', 'a' or 'o': see Cta::try_release
    b.op.dst = reduction == "popc" ? b.dst(0, Type::U32) : b.pred_dst(b.operand(0));
    next = 1;
    bool negated = false;
    b.op.c = b.pred_src(b.operand(b.operands() - 1), negated);
    if (negated) b.op.aux |= kNegated;
  }
  const size_t end = b.operands() - (what == "red" ? 1 : 0);
  b.op.a = b.src(next, Type::U32);
  if (next + 1 < end) b.op.b = b.src(next + 1, Type::U32);
  b.op.run = barrier;
}

constexpr DecodeRow kRows[] = {{"bar", decode_barrier}, {"barrier", decode_barrier}};

}  // namespace

std::span<const DecodeRow> barrier_family() { return kRows; }

}  // namespace linnet::vgpu
