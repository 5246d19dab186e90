// A warp: its frames and registers, which lanes run where, and the loop that executes instructions.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "exec/async_copy.h"
#include "exec/lanes.h"
#include "exec/program.h"
#include "exec/timeline.h"
#include "exec/wgmma_groups.h"

namespace linnet::vgpu {

class Cta;
struct Launch;
struct Region;

// The registers and parameters of one call.
struct Frame {
  const Code* code = nullptr;
  AlignedBytes registers;
  std::vector<uint8_t> params;  // [lane][code->param_bytes]
  std::vector<uint64_t> ready;  // for the timeline: when registers have their values
  uint32_t local_base = 0;
};

// Where diverged lanes wait for each other: a post-dominator in a frame, or the return of a call.
struct Rejoin {
  int pc = kNoPc;
  bool is_call = false;
  uint32_t expected = 0;
  uint32_t arrived = 0;
  uint64_t since = 0;  // Warp::executed when the last lanes arrived
  Frame* frame = nullptr;
  Frame* callee = nullptr;
  const CallSite* site = nullptr;
  Rejoin* parent = nullptr;
};

enum class Wait : uint8_t { None, WarpSync, Barrier, Cluster };

// A set of lanes that run together.
struct Fragment {
  int pc = 0;
  uint32_t mask = 0;
  Frame* frame = nullptr;
  Rejoin* rejoin = nullptr;
  Wait wait = Wait::None;
  uint32_t wait_exec = 0;     // lanes that execute the waited-for instruction (after its guard)
  uint32_t wait_members = 0;  // WarpSync: whom they wait for
  uint32_t barrier = 0;       // Barrier: its id
  const Op* op = nullptr;
};

enum class WarpStatus : uint8_t { Ready, Blocked, Done };

class Warp {
 public:
  Warp(Cta& cta, Launch& launch, uint32_t index, uint32_t lanes, uint64_t* op_counts);

  // Runs until the warp blocks, ends or has executed `limit` instructions.
  WarpStatus run(int64_t limit);

  template <class T>
  T* dst(Slot slot) {
    return reinterpret_cast<T*>(bases[0] + slot);
  }
  template <class T>
  const T* src(Slot slot) const {
    return reinterpret_cast<const T*>(bases[slot >> 31] + (slot & ~kConstantSlot));
  }
  uint32_t pred(Slot slot) const { return *src<uint32_t>(slot); }
  void set_pred(Slot slot, uint32_t mask, uint32_t value) {
    uint32_t& pred = *dst<uint32_t>(slot);
    pred = (pred & ~mask) | (value & mask);
  }
  const uint32_t* list(const Op& op) const { return code->lists.data() + op.list; }

  // Control flow, used by the handlers of branches and calls.
  void branch(uint32_t taken, int target, int reconverge);
  void branch_many(uint32_t mask, const int32_t* lane_targets, int reconverge);
  void call(const CallSite& site, int callee, uint32_t mask);
  void leave(uint32_t mask);  // ret
  void exit(uint32_t mask);

  // For `.sync` instructions: true when all of `members` are here, with `mask` widened to the lanes
  // of every fragment that waited; false when this fragment now waits and nothing must be done.
  bool gather(const Op& op, uint32_t& mask, uint32_t members);
  // Parks the running fragment at a CTA barrier.
  void wait_at_barrier(const Op& op, uint32_t id, uint32_t mask) {
    park(op, Wait::Barrier, id, mask);
  }
  void wait_for_cluster(const Op& op, uint32_t mask) { park(op, Wait::Cluster, 0, mask); }
  // Releases the fragments parked at barrier `id`; `visit` is called for each before it goes on.
  template <class F>
  void release_barrier(uint32_t id, F visit) {
    for (Fragment& fragment : fragments_) {
      if (fragment.wait != Wait::Barrier || fragment.barrier != id) continue;
      fragment.wait = Wait::None;
      visit(fragment);
    }
  }
  void release_cluster() {
    for (Fragment& fragment : fragments_)
      if (fragment.wait == Wait::Cluster) fragment.wait = Wait::None;
  }
  void yield() { budget = 0; }

  // Per-lane storage for .local variables, grown when calls nest deeper.
  uint8_t* local(int lane) { return locals_.data() + static_cast<size_t>(lane) * local_capacity_; }
  uint8_t* local_written(int lane) {
    return local_written_.data() + static_cast<size_t>(lane) * local_capacity_;
  }
  uint32_t local_capacity() const { return local_capacity_; }
  uint8_t* params(int lane) {
    return frame->params.data() + static_cast<size_t>(lane) * frame->code->param_bytes;
  }

  // Reports for findings: the instruction being executed.
  int current_pc() const { return pc - 1; }
  std::string describe_waits() const;

  // Hot state of the running fragment.
  uint8_t* bases[2] = {nullptr, nullptr};
  const Op* ops = nullptr;
  int pc = 0;
  int rejoin_pc = kNoPc;
  uint32_t active = 0;
  int64_t budget = 0;
  uint64_t* counters = nullptr;  // of the running code
  const Code* code = nullptr;
  Frame* frame = nullptr;
  Rejoin* rejoin = nullptr;

  Cta& cta;
  Launch& launch;
  uint32_t index;
  uint32_t live;       // lanes that have not exited
  uint32_t existing;   // lanes that exist: fewer in the last warp of an odd block
  uint32_t carry = 0;  // condition code of add.cc and friends, one bit a lane
  const Region* last_region = nullptr;
  std::vector<uint32_t> clock;  // happens-before clock, one entry a warp (checks/shared_shadow.h)
  AsyncCopies async;
  WgmmaGroups wgmma;
  uint64_t executed = 0;
  uint64_t cluster_phase = 0;          // of the cluster's barrier, when this warp arrived
  std::unique_ptr<Timeline> timeline;  // only in the block that is timed

 private:
  friend class Cta;
  void execute_timed(const Op& op, uint32_t mask);
  void park(const Op& op, Wait wait, uint32_t id, uint32_t mask);
  void load(const Fragment& fragment);
  Fragment save() const;
  bool pick_fragment();
  void arrive();
  void release(Rejoin* node);
  void let_waiting_lanes_go();
  void remove_lanes(Rejoin* node, uint32_t mask, const Rejoin* stop);
  Rejoin* new_rejoin(int pc, uint32_t expected);
  Frame* new_frame(const Code* code, uint32_t local_base);
  void reserve_local(uint32_t bytes);
  void split(uint32_t lanes, int target, int reconverge);

  uint64_t* op_counts_;
  bool running_ = false;
  std::vector<Fragment> fragments_;  // all but the running one
  std::vector<std::unique_ptr<Frame>> frames_;
  std::vector<Frame*> free_frames_;
  std::deque<Rejoin> rejoins_;
  std::vector<Rejoin*> free_rejoins_;
  std::vector<uint8_t> locals_;
  std::vector<uint8_t> local_written_;
  uint32_t local_capacity_ = 0;
  uint64_t patience_;  // instructions lanes wait for each other before they are let go
};

}  // namespace linnet::vgpu
