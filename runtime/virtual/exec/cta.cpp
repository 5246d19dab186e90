#include "exec/cta.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "exec/cluster.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

constexpr int64_t kTurn = 4096;
// Rounds in which every warp only polls before the CTA counts as hung.
constexpr uint64_t kIdleRounds = 20000;
constexpr uint64_t kQuietRounds = 2;

void join(std::vector<uint32_t>& into, const std::vector<uint32_t>& other) {
  if (into.size() < other.size()) into.resize(other.size(), 0);
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

}  // namespace

Cta::Cta(Launch& launch_in, Counters& counters_in, Cluster& cluster_in, uint32_t rank_in,
         const Dim3& block_in)
    : launch(launch_in),
      counters(counters_in),
      cluster(cluster_in),
      rank(rank_in),
      block(block_in),
      linear(block[0] + launch.grid[0] * (block[1] + launch.grid[1] * block[2])),
      random_(launch_in.settings.seed * 0x9e3779b97f4a7c15ull + linear) {
  shared.resize_zeroed(launch.shared_bytes() + 16);
  const uint32_t threads = launch.threads();
  const uint32_t warp_count = (threads + kLanes - 1) / kLanes;
  if (launch.settings.checks) shadow.reset(launch.shared_bytes(), warp_count);
  for (uint32_t i = 0; i < warp_count; ++i) {
    const uint32_t lanes = std::min<uint32_t>(kLanes, threads - i * kLanes);
    const uint32_t mask = lanes == kLanes ? kAllLanes : (1u << lanes) - 1;
    warps_.push_back(std::make_unique<Warp>(*this, launch, i, mask, counters.issued.data()));
    warps_.back()->clock.assign(warp_count, 0);
    warps_.back()->clock[i] = 1;
    // All blocks do the same in the kernels this is made for: the first stands for them.
    if (launch.settings.counts && linear == 0)
      warps_.back()->timeline = std::make_unique<Timeline>(*launch.profile, warp_count);
  }
}

bool Cta::run(uint64_t slice) {
  std::vector<size_t> order(warps_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const bool seeded = launch.settings.seed != 0;
  for (uint64_t start = executed; executed - start < slice;) {
    if (seeded) std::shuffle(order.begin(), order.end(), random_);
    const uint64_t progress_before = progress;
    const uint64_t executed_before = executed;
    bool all_done = true;
    bool any_ran = false;
    for (const size_t i : order) {
      Warp& warp = *warps_[i];
      const uint64_t before = warp.executed;
      const int64_t turn = seeded ? static_cast<int64_t>(16 + random_() % 497) : kTurn;
      const WarpStatus status = warp.run(turn);
      executed += warp.executed - before;
      any_ran |= warp.executed != before;
      all_done &= status == WarpStatus::Done;
    }
    if (all_done) {
      note_end();
      return true;
    }
    const bool alone = cluster.size() == 1;
    if (!any_ran && alone) report_deadlock();
    if (!any_ran) return false;
    const bool waits_for_others = check_spinning(progress_before, executed_before);
    if (executed > launch.settings.watchdog)
      fault(*warps_[order[0]], FindingKind::Deadlock, 0, 0,
            fmt::format("the CTA executed {} warp instructions without ending", executed));
    if (waits_for_others) return false;
  }
  return false;
}

void Cta::note_end() {
  for (const auto& warp : warps_)
    if (warp->timeline)
      counters.block_clocks = std::max(counters.block_clocks, warp->timeline->end());
}

// Polling loops execute, so a hang is many short rounds in which nobody changed anything. A few
// rounds without a store may mean that the CTA waits for another one: true lets that run.
bool Cta::check_spinning(uint64_t progress_before, uint64_t executed_before) {
  const bool quiet = progress == progress_before;
  const bool polled_only = quiet && executed - executed_before < 64 * warps_.size();
  idle_rounds_ = polled_only ? idle_rounds_ + 1 : 0;
  quiet_rounds_ = quiet ? quiet_rounds_ + 1 : 0;
  if (idle_rounds_ > kIdleRounds) report_deadlock();
  if (quiet && cluster.size() > 1) return true;
  if (polled_only || quiet_rounds_ < kQuietRounds) return false;
  quiet_rounds_ = 0;
  return true;
}

void Cta::report_deadlock() {
  std::string text = "no warp of the CTA can go on: ";
  const Warp* first = nullptr;
  for (const auto& warp : warps_) {
    if (!warp->live) continue;
    if (!first) first = warp.get();
    const std::string waits = warp->describe_waits();
    text += waits.empty() ? fmt::format("warp {} polls; ", warp->index) : waits + "; ";
  }
  Warp& culprit = *warps_[first->index];
  if (!culprit.running_ && !culprit.fragments_.empty()) culprit.load(culprit.fragments_.front());
  // Lanes that wait for others of their own warp named the wrong ones in their member mask.
  const bool within_warp =
      std::any_of(culprit.fragments_.begin(), culprit.fragments_.end(),
                  [](const Fragment& fragment) { return fragment.wait == Wait::WarpSync; });
  const FindingKind kind = within_warp ? FindingKind::BadSyncMask : FindingKind::Deadlock;
  fault(culprit, kind, std::countr_zero(culprit.active | 0x8000'0000u), 0, text);
}

uint32_t Cta::live_threads() const {
  uint32_t count = 0;
  for (const auto& warp : warps_) count += static_cast<uint32_t>(std::popcount(warp->live));
  return count;
}

void Cta::arrive(Warp& warp, const Op& op, uint32_t mask, const BarrierArrival& arrival) {
  if (launch.settings.checks && arrival.aligned && mask != warp.live) {
    report(warp, FindingKind::DivergentBarrier, std::countr_zero(mask), arrival.id,
           fmt::format("barrier {} reached by lanes {:#010x} of the warp's {:#010x}", arrival.id,
                       mask, warp.live));
  }
  CtaBarrier& barrier = barriers_[arrival.id];
  barrier.expected = arrival.count;
  // Aligned barriers with a count are counted in whole warps, whatever lanes exist.
  barrier.arrived += arrival.count && arrival.aligned ? static_cast<uint32_t>(kLanes)
                                                      : static_cast<uint32_t>(std::popcount(mask));
  barrier.popc += static_cast<uint32_t>(std::popcount(arrival.predicate & mask));
  barrier.all &= (arrival.predicate & mask) == mask;
  barrier.any |= (arrival.predicate & mask) != 0;
  join(barrier.clock, warp.clock);
  ++warp.clock[warp.index];
  ++progress;
  if (warp.timeline) barrier.time = std::max(barrier.time, warp.timeline->arrive());
  if (arrival.waits) warp.wait_at_barrier(op, arrival.id, mask);
  try_release(arrival.id);
}

void Cta::try_release(uint32_t id) {
  CtaBarrier& barrier = barriers_[id];
  const uint32_t expected = barrier.expected ? barrier.expected : live_threads();
  if (barrier.arrived == 0 || barrier.arrived < expected) return;
  const bool whole = barrier.arrived >= live_threads();
  const CtaBarrier done = std::move(barrier);
  barrier = CtaBarrier{};
  for (const auto& warp : warps_) {
    bool released = false;
    warp->release_barrier(id, [&](const Fragment& fragment) {
      released = true;
      const Op& op = *fragment.op;
      if (op.dst == kNoSlot) return;
      uint8_t* registers = fragment.frame->registers.data.get();
      if (op.flags == 'p') {
        auto* counts = reinterpret_cast<uint32_t*>(registers + op.dst);
        active_lanes(fragment.wait_exec, [&](int lane) { counts[lane] = done.popc; });
      } else {
        auto* flag = reinterpret_cast<uint32_t*>(registers + op.dst);
        const bool value = op.flags == 'a' ? done.all : done.any;
        *flag = (*flag & ~fragment.wait_exec) | (value ? fragment.wait_exec : 0);
      }
    });
    if (!released) continue;
    if (warp->timeline) warp->timeline->resume(done.time);
    join(warp->clock, done.clock);
    ++warp->clock[warp->index];
  }
  if (whole && launch.settings.checks) shadow.next_generation();
}

void Cta::cluster_barrier_opened() {
  std::vector<uint32_t> all;
  uint64_t time = 0;
  for (const auto& warp : warps_) {
    join(all, warp->clock);
    if (warp->timeline) time = std::max(time, warp->timeline->arrive());
  }
  for (const auto& warp : warps_) {
    warp->clock = all;
    ++warp->clock[warp->index];
    warp->release_cluster();
    if (warp->timeline) warp->timeline->resume(time);
  }
  ++progress;
  if (launch.settings.checks) shadow.next_generation();
}

void Cta::lanes_exited() {
  for (uint32_t id = 0; id < barriers_.size(); ++id)
    if (barriers_[id].arrived) try_release(id);
  cluster.lanes_exited();
}

}  // namespace linnet::vgpu
