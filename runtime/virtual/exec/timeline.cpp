#include "exec/timeline.h"

#include <algorithm>

namespace linnet::vgpu {
namespace {

// Clocks published tests of these GPUs agree on; what differs between them is in the profile.
constexpr uint32_t kArithmetic = 4, kMufuLatency = 20, kShuffle = 24, kBarrier = 20, kBranch = 8;
constexpr double kSchedulers = 4;

bool is_access(OpClass kind) {
  switch (kind) {
    case OpClass::GlobalLoad:
    case OpClass::GlobalStore:
    case OpClass::SharedLoad:
    case OpClass::SharedStore:
    case OpClass::Local:
    case OpClass::Generic:
    case OpClass::Atomic:
    case OpClass::AsyncCopy:
    case OpClass::Matrix:
      return true;
    default:
      return false;
  }
}

}  // namespace

Timeline::Timeline(const DeviceProfile& profile, uint32_t warps)
    : profile_(profile), share_(std::max(1.0, warps / kSchedulers)), all_warps_(warps) {
  const double clock = profile.clock_khz * 1e3;
  tensor_flop_clock_ = profile.tensor_bf16_tflops * 1e12 * profile.mma_sync_percent / 100 /
                       (clock * profile.sm_count * kSchedulers);
}

Timeline::Cost Timeline::cost_of(const Op& op, const OpUse& use, uint64_t waves) const {
  const auto memory = [&](int latency) {
    return Cost{kMemory, static_cast<double>(waves) * all_warps_, static_cast<uint32_t>(latency)};
  };
  switch (op.kind) {
    case OpClass::Float:
    case OpClass::Half:
      return {kFloat, 128.0 / profile_.fp32_lanes * share_, kArithmetic};
    case OpClass::Integer:
    case OpClass::Compare:
    case OpClass::Convert:
      return {kInteger, 128.0 / profile_.integer_lanes * share_, kArithmetic};
    case OpClass::Mufu:
      return {kMufu, 8 * share_, kMufuLatency};
    case OpClass::Mma:
      return {kTensor, use.flop_as_bf16 / tensor_flop_clock_ * share_,
              static_cast<uint32_t>(profile_.latency_mma)};
    case OpClass::GlobalLoad:
    case OpClass::Generic:
    case OpClass::Local:
    case OpClass::Atomic:
      return memory(profile_.latency_global);
    case OpClass::AsyncCopy:
    case OpClass::GlobalStore:
    case OpClass::SharedStore:
      return memory(kArithmetic);
    case OpClass::SharedLoad:
    case OpClass::Matrix:
      return memory(profile_.latency_shared);
    case OpClass::WarpSync:
      return {kIssue, share_, kShuffle};
    default:
      return {kIssue, share_, kArithmetic};
  }
}

void Timeline::begin_block(uint64_t time) {
  floor_ = std::max(floor_, time);
  base_ = floor_;
  busy_.fill(0);
}

void Timeline::resume(uint64_t time) {
  begin_block(time + kBarrier);
  end_ = std::max(end_, floor_);
}

void Timeline::wait_for_copies(size_t keep) {
  while (groups_.size() > keep) {
    floor_ = std::max(floor_, groups_.front());
    groups_.pop_front();
  }
}

void Timeline::step(const Code& code, int pc, std::vector<uint64_t>& ready, uint64_t waves) {
  const Op& op = code.ops[static_cast<size_t>(pc)];
  if (ready.size() < code.frame_bytes / 64 + 1) ready.resize(code.frame_bytes / 64 + 1, 0);
  const OpUse& use = code.uses[static_cast<size_t>(pc)];
  const uint32_t* slots = code.used.data() + use.first;
  uint64_t start = floor_;
  for (uint32_t i = 0; i < use.reads; ++i) start = std::max(start, ready[slots[i]]);
  if (op.kind == OpClass::Move) {  // vanishes when registers are assigned
    for (uint32_t i = 0; i < use.writes; ++i) ready[slots[use.reads + i]] = start;
    return;
  }
  const Cost cost = cost_of(op, use, waves);
  start = std::max({start, base_ + static_cast<uint64_t>(busy_[cost.pipe]),
                    base_ + static_cast<uint64_t>(busy_[kIssue])});
  busy_[kIssue] += share_;
  if (cost.pipe != kIssue) busy_[cost.pipe] += cost.clocks;
  const uint64_t done = start + cost.latency;
  for (uint32_t i = 0; i < use.writes; ++i) ready[slots[use.reads + i]] = done;
  latest_start_ = std::max(latest_start_, start);
  if (is_access(op.kind)) latest_access_ = std::max(latest_access_, start);
  latest_access_ = std::max(latest_access_, floor_);
  end_ = std::max(end_, done);
  if (use.async == AsyncRole::Copy) {
    open_copies_ = std::max(open_copies_, start + static_cast<uint64_t>(profile_.latency_global));
  } else if (use.async == AsyncRole::Commit) {
    groups_.push_back(open_copies_);
    open_copies_ = 0;
  } else if (use.async == AsyncRole::Wait) {
    wait_for_copies(static_cast<size_t>(op.imm));
  } else if (op.kind == OpClass::Control) {
    begin_block(std::max(latest_start_, start + kBranch));
  } else if (op.kind == OpClass::Barrier) {
    begin_block(latest_access_);
  }
}

}  // namespace linnet::vgpu
