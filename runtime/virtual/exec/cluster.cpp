#include "exec/cluster.h"

#include <fmt/format.h>

#include "exec/report.h"

namespace linnet::vgpu {

Cluster::Cluster(Launch& launch, Counters& counters, uint64_t index) {
  const Dim3& shape = launch.cluster;
  Dim3 clusters;
  for (size_t i = 0; i < 3; ++i) clusters[i] = launch.grid[i] / shape[i];
  const auto at = static_cast<uint32_t>(index);
  id = {at % clusters[0], at / clusters[0] % clusters[1], at / clusters[0] / clusters[1]};
  const uint32_t count = shape[0] * shape[1] * shape[2];
  for (uint32_t rank = 0; rank < count; ++rank) {
    const Dim3 own{rank % shape[0], rank / shape[0] % shape[1], rank / shape[0] / shape[1]};
    Dim3 block;
    for (size_t i = 0; i < 3; ++i) block[i] = id[i] * shape[i] + own[i];
    ctas_.push_back(std::make_unique<Cta>(launch, counters, *this, rank, block));
  }
  done_.assign(count, false);
}

bool Cluster::run(uint64_t slice) {
  if (size() == 1) return ctas_[0]->run(slice);
  for (uint64_t spent = 0; spent < slice;) {
    bool all_done = true, any_ran = false;
    for (size_t i = 0; i < ctas_.size(); ++i) {
      if (done_[i]) continue;
      const uint64_t before = ctas_[i]->executed;
      done_[i] = ctas_[i]->run(slice);
      spent += ctas_[i]->executed - before;
      any_ran |= ctas_[i]->executed != before || done_[i];
      all_done &= done_[i];
    }
    if (all_done) return true;
    for (size_t i = 0; i < ctas_.size() && !any_ran; ++i)
      if (!done_[i]) ctas_[i]->report_deadlock();
  }
  return false;
}

void Cluster::arrive(uint32_t threads) {
  arrived_ += threads;
  complete_if_done();
}

void Cluster::complete_if_done() {
  if (arrived_ == 0) return;
  uint32_t live = 0;
  for (const auto& cta : ctas_) live += cta->live_threads();
  if (arrived_ < live) return;
  arrived_ = 0;
  ++phase_;
  for (const auto& cta : ctas_) cta->cluster_barrier_opened();
}

Cta& block_of(Warp& warp, int lane, uint64_t address) {
  const uint32_t number = rank_bits(address);
  if (number == 0) return warp.cta;
  Cta* block = warp.cta.cluster.block(number - 1);
  if (!block)
    fault(warp, FindingKind::SharedBounds, lane, address,
          fmt::format("block {} of a cluster of {}", number - 1, warp.cta.cluster.size()));
  return *block;
}

}  // namespace linnet::vgpu
