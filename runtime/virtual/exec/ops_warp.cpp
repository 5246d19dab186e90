// Communication within a warp: shuffles, votes, matches, reductions, elect and bar.warp.sync.
#include <fmt/format.h>

#include <algorithm>

#include "exec/cta.h"
#include "exec/families.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

// All `.sync` instructions begin so: wait for the members, complain about wrong masks.
bool begin_sync(Warp& warp, const Op& op, uint32_t& mask, Slot members_slot, bool exited_matters) {
  const uint32_t* per_lane = warp.src<uint32_t>(members_slot);
  const uint32_t members = per_lane[std::countr_zero(mask)];
  const uint32_t executing = mask;
  if (!warp.gather(op, mask, members)) return false;
  if (!warp.launch.settings.checks) return true;
  const int lane = std::countr_zero(executing);
  if (executing & ~members)
    report(warp, FindingKind::BadSyncMask, std::countr_zero(executing & ~members), members,
           fmt::format("a lane executes the instruction but is not in its member mask {:#010x}",
                       members));
  else if (exited_matters && (members & ~warp.live & warp.existing))
    report(warp, FindingKind::BadSyncMask, lane, members,
           fmt::format("member mask {:#010x} names lanes {:#010x} that have exited", members,
                       members & ~warp.live & warp.existing));
  else if (exited_matters && (members & ~warp.existing))
    report(warp, FindingKind::BadSyncMask, lane, members,
           fmt::format("member mask {:#010x} names lanes that do not exist", members));
  return true;
}

enum Shuffle : uint8_t { kUp, kDown, kButterfly, kIndex };
constexpr std::string_view kShuffles[] = {"up", "down", "bfly", "idx"};

void shuffle(Warp& warp, const Op& op, uint32_t mask) {
  if (!begin_sync(warp, op, mask, op.d, true)) return;
  const uint32_t* a = warp.src<uint32_t>(op.a);
  const uint32_t* b = warp.src<uint32_t>(op.b);
  const uint32_t* c = warp.src<uint32_t>(op.c);
  alignas(64) uint32_t values[kLanes];
  uint32_t in_range = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int clamp = static_cast<int>(c[lane] & 31);
    const int segment = static_cast<int>(c[lane] >> 8 & 31);
    const int distance = static_cast<int>(b[lane] & 31);
    const int top = (lane & segment) | (clamp & ~segment);
    int from = 0;
    bool inside = false;
    switch (op.flags) {
      case kUp:
        from = lane - distance;
        inside = from >= top;
        break;
      case kDown:
        from = lane + distance;
        inside = from <= top;
        break;
      case kButterfly:
        from = lane ^ distance;
        inside = from <= top;
        break;
      default:
        from = (lane & segment) | (distance & ~segment);
        inside = from <= top;
        break;
    }
    values[lane] = a[inside ? from & 31 : lane];
    in_range |= static_cast<uint32_t>(inside) << lane;
  }
  blend(warp.dst<uint32_t>(op.dst), values, mask);
  if (op.dst2 != kNoSlot) warp.set_pred(op.dst2, mask, in_range);
}

void decode_shuffle(OpBuilder& b) {
  b.op.kind = OpClass::WarpSync;
  const Operand& target = b.operand(0);
  const bool pair = target.kind == OperandKind::Pair;
  b.op.dst = b.dst(pair ? target.elements[0] : target, 4);
  if (pair) b.op.dst2 = b.pred_dst(target.elements[1]);
  b.op.a = b.src(1, Type::B32);
  b.op.b = b.src(2, Type::B32);
  b.op.c = b.src(3, Type::B32);
  b.op.d = b.src(4, Type::B32);
  for (uint8_t i = 0; i < std::size(kShuffles); ++i)
    if (kShuffles[i] == b.get("mode")) b.op.flags = i;
  b.op.run = shuffle;
}

enum Vote : uint8_t { kAll, kAny, kUniform, kBallot };
constexpr std::string_view kVotes[] = {"all", "any", "uni", "ballot"};

void vote(Warp& warp, const Op& op, uint32_t mask) {
  if (!begin_sync(warp, op, mask, op.d, true)) return;
  const uint32_t members = warp.src<uint32_t>(op.d)[std::countr_zero(mask)] & mask;
  const uint32_t value = (warp.pred(op.a) ^ (op.negate_c ? kAllLanes : 0)) & members;
  if (op.flags == kBallot) {
    each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int) { return value; });
    return;
  }
  const bool all = value == members;
  const bool result = op.flags == kAll ? all : op.flags == kAny ? value != 0 : all || value == 0;
  warp.set_pred(op.dst, mask, result ? kAllLanes : 0);
}

void decode_vote(OpBuilder& b) {
  b.op.kind = OpClass::WarpSync;
  for (uint8_t i = 0; i < std::size(kVotes); ++i)
    if (kVotes[i] == b.get("mode")) b.op.flags = i;
  b.op.dst = b.op.flags == kBallot ? b.dst(0, Type::B32) : b.pred_dst(b.operand(0));
  b.op.a = b.pred_src(b.operand(1), b.op.negate_c);
  b.op.d = b.src(2, Type::B32);
  b.op.run = vote;
}

template <class T>
void match(Warp& warp, const Op& op, uint32_t mask) {
  if (!begin_sync(warp, op, mask, op.d, true)) return;
  const T* a = warp.src<T>(op.a);
  alignas(64) uint32_t equal[kLanes] = {};
  active_lanes(mask, [&](int lane) {
    active_lanes(mask, [&](int other) { equal[lane] |= a[lane] == a[other] ? 1u << other : 0u; });
  });
  if (op.flags) {  // all
    const bool same = equal[std::countr_zero(mask)] == mask;
    if (op.dst2 != kNoSlot) warp.set_pred(op.dst2, mask, same ? kAllLanes : 0);
    for (uint32_t& value : equal) value = same ? mask : 0;
  }
  blend(warp.dst<uint32_t>(op.dst), equal, mask);
}

void decode_match(OpBuilder& b) {
  b.op.kind = OpClass::WarpSync;
  const Operand& target = b.operand(0);
  const bool pair = target.kind == OperandKind::Pair;
  b.op.flags = b.get("mode") == "all";
  if (pair && !b.op.flags) b.fail("match.any has one destination");
  b.op.dst = b.dst(pair ? target.elements[0] : target, 4);
  if (pair) b.op.dst2 = b.pred_dst(target.elements[1]);
  b.op.a = b.src(1, b.type());
  b.op.d = b.src(2, Type::B32);
  b.op.run = type_bytes(b.type()) == 8 ? match<uint64_t> : match<uint32_t>;
}

void active_mask(Warp& warp, const Op& op, uint32_t mask) {
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int) { return mask; });
}

void decode_activemask(OpBuilder& b) {
  b.op.kind = OpClass::WarpSync;
  b.op.dst = b.dst(0, Type::B32);
  b.op.run = active_mask;
}

enum Reduction : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor, kSignedReduction = 8 };
constexpr std::string_view kReductions[] = {"add", "min", "max", "and", "or", "xor"};

uint32_t reduce_pair(uint8_t flags, uint32_t a, uint32_t b) {
  const bool is_signed_value = flags & kSignedReduction;
  const bool less = is_signed_value ? static_cast<int32_t>(a) < static_cast<int32_t>(b) : a < b;
  switch (flags & 7) {
    case kAdd:
      return a + b;
    case kMin:
      return less ? a : b;
    case kMax:
      return less ? b : a;
    case kAnd:
      return a & b;
    case kOr:
      return a | b;
    default:
      return a ^ b;
  }
}

void reduce(Warp& warp, const Op& op, uint32_t mask) {
  if (!begin_sync(warp, op, mask, op.d, true)) return;
  const uint32_t* a = warp.src<uint32_t>(op.a);
  uint32_t result = a[std::countr_zero(mask)];
  active_lanes(mask & (mask - 1),
               [&](int lane) { result = reduce_pair(op.flags, result, a[lane]); });
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int) { return result; });
}

void decode_redux(OpBuilder& b) {
  b.op.kind = OpClass::WarpSync;
  b.op.dst = b.dst(0, Type::B32);
  b.op.a = b.src(1, Type::B32);
  b.op.d = b.src(2, Type::B32);
  for (uint8_t i = 0; i < std::size(kReductions); ++i)
    if (kReductions[i] == b.get("op")) b.op.flags = i;
  if (b.type() == Type::S32) b.op.flags |= kSignedReduction;
  b.op.run = reduce;
}

void elect(Warp& warp, const Op& op, uint32_t mask) {
  if (!begin_sync(warp, op, mask, op.d, true)) return;
  const auto leader = static_cast<uint32_t>(std::countr_zero(mask));
  each_lane(warp.dst<uint32_t>(op.dst), mask, [=](int) { return leader; });
  warp.set_pred(op.dst2, mask, 1u << leader);
}

void decode_elect(OpBuilder& b) {
  b.op.kind = OpClass::WarpSync;
  const Operand& target = b.operand(0);
  if (target.kind != OperandKind::Pair) b.fail("destination must be d|p");
  b.op.dst = b.dst(target.elements[0], 4);
  b.op.dst2 = b.pred_dst(target.elements[1]);
  b.op.d = b.src(1, Type::B32);
  b.op.run = elect;
}

constexpr DecodeRow kRows[] = {
    {"shfl", decode_shuffle},          {"vote", decode_vote},   {"match", decode_match},
    {"activemask", decode_activemask}, {"redux", decode_redux}, {"elect", decode_elect},
};

}  // namespace

std::span<const DecodeRow> warp_family() { return kRows; }

void sync_warp(Warp& warp, const Op& op, uint32_t mask) { begin_sync(warp, op, mask, op.d, false); }

}  // namespace linnet::vgpu
