// A thread block: its warps, shared memory and barriers, run cooperatively on one host thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "checks/shared_shadow.h"
#include "counts/counters.h"
#include "exec/launch.h"
#include "exec/mbarrier.h"
#include "exec/warp.h"

namespace linnet::vgpu {

struct CtaBarrier {
  uint32_t arrived = 0;   // threads
  uint32_t expected = 0;  // 0: all threads of the CTA that have not exited
  uint32_t popc = 0;      // bar.red
  bool all = true;
  bool any = false;
  std::vector<uint32_t> clock;
  uint64_t time = 0;  // of the last arrival, on the timeline
};

// What a barrier instruction asks for.
struct BarrierArrival {
  uint32_t id = 0;
  uint32_t count = 0;  // 0: the whole CTA
  bool waits = true;
  bool aligned = true;
  uint32_t predicate = 0;  // bar.red: one bit a lane
};

class Cluster;

class Cta {
 public:
  Cta(Launch& launch, Counters& counters, Cluster& cluster, uint32_t rank, const Dim3& block);

  // Runs the warps in turns; true when all have ended, false after `slice` instructions or when
  // other blocks have to run first.
  bool run(uint64_t slice);

  void arrive(Warp& warp, const Op& op, uint32_t mask, const BarrierArrival& arrival);
  // Called when lanes end: barriers may now be complete without them.
  void lanes_exited();
  // All threads of the cluster have arrived: those who waited go on.
  void cluster_barrier_opened();
  uint32_t live_threads() const;
  [[noreturn]] void report_deadlock();

  Launch& launch;
  Counters& counters;
  Cluster& cluster;
  uint32_t rank;  // in the cluster
  Dim3 block;
  uint32_t linear;
  AlignedBytes shared;
  SharedShadow shadow;
  std::unordered_map<uint32_t, Mbarrier> mbarriers;  // by shared address
  uint64_t progress = 0;  // stores, arrivals and the like: what another warp may be spinning on
  uint64_t executed = 0;

 private:
  void try_release(uint32_t id);
  void note_end();
  bool check_spinning(uint64_t progress_before, uint64_t executed_before);

  std::array<CtaBarrier, 16> barriers_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::mt19937_64 random_;
  uint64_t idle_rounds_ = 0;
  uint64_t quiet_rounds_ = 0;
};

}  // namespace linnet::vgpu
