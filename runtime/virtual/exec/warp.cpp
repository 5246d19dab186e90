#include "exec/warp.h"

#include <fmt/format.h>

#include <algorithm>

#include "exec/cta.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

// Deep recursion on the device ends here rather than in the host's memory.
constexpr uint32_t kMaxLocalBytes = 512u << 10;
constexpr size_t kMaxFrames = 4096;
// Lanes that wait to reconverge are let go after this many instructions of the others: those may be
// spinning on a lock that a waiting lane holds. Once it happened, the warp is watched closely.
constexpr uint64_t kPatience = 1'000'000;
constexpr uint64_t kPatienceOfSpinner = 256;

}  // namespace

Warp::Warp(Cta& cta_in, Launch& launch_in, uint32_t index_in, uint32_t lanes, uint64_t* op_counts)
    : cta(cta_in),
      launch(launch_in),
      index(index_in),
      live(lanes),
      existing(lanes),
      op_counts_(op_counts),
      patience_(kPatience) {
  reserve_local(launch.kernel->local_bytes);
  Fragment start;
  start.mask = lanes;
  start.frame = new_frame(launch.kernel, 0);
  load(start);
}

void Warp::load(const Fragment& fragment) {
  frame = fragment.frame;
  code = frame->code;
  bases[0] = frame->registers.data.get();
  bases[1] = code->constants.data.get();
  ops = code->ops.data();
  counters = op_counts_ + code->first_counter;
  pc = fragment.pc;
  active = fragment.mask;
  rejoin = fragment.rejoin;
  rejoin_pc = rejoin && !rejoin->is_call ? rejoin->pc : kNoPc;
  running_ = true;
}

Fragment Warp::save() const {
  Fragment fragment;
  fragment.pc = pc;
  fragment.mask = active;
  fragment.frame = frame;
  fragment.rejoin = rejoin;
  return fragment;
}

WarpStatus Warp::run(int64_t limit) {
  budget = limit;
  if (!running_ && !pick_fragment()) return live ? WarpStatus::Blocked : WarpStatus::Done;
  while (budget > 0) {
    if (pc == rejoin_pc) {
      arrive();
      if (!running_ && !pick_fragment()) break;
      continue;
    }
    const Op& op = ops[pc];
    uint32_t mask = active;
    if (op.guard != kNoSlot) {
      const uint32_t guard = pred(op.guard);
      mask &= op.guard_negated ? ~guard : guard;
    }
    ++counters[pc];
    ++pc;
    --budget;
    ++executed;
    if (timeline)
      execute_timed(op, mask);
    else if (mask)
      op.run(*this, op, mask);
    if (!running_ && !pick_fragment()) break;
  }
  if (!live) return WarpStatus::Done;
  if (!running_ && !pick_fragment()) return WarpStatus::Blocked;
  let_waiting_lanes_go();
  // A turn that ended by its budget goes on with another fragment: none of them may starve.
  if (!fragments_.empty()) {
    fragments_.push_back(save());
    running_ = false;
    pick_fragment();
  }
  return WarpStatus::Ready;
}

void Warp::execute_timed(const Op& op, uint32_t mask) {
  const Code& running = *code;
  Frame& own = *frame;
  const int at = current_pc();
  const uint64_t& units =
      cta.counters.memory[running.first_counter + static_cast<size_t>(at)].units;
  const uint64_t before = units;
  const bool shared = op.kind == OpClass::SharedLoad || op.kind == OpClass::SharedStore ||
                      op.kind == OpClass::Matrix;
  // Time first: a barrier that opens lets this warp go on from there.
  if (op.kind == OpClass::Barrier) timeline->step(running, at, own.ready, 0);
  if (mask) op.run(*this, op, mask);
  // Four sectors of global memory go through the pipe at a time.
  const uint64_t waves = shared ? units - before : (units - before + 3) / 4;
  if (op.kind != OpClass::Barrier) timeline->step(running, at, own.ready, waves);
}

void Warp::let_waiting_lanes_go() {
  for (Rejoin* node = rejoin; node; node = node->parent) {
    if (!node->arrived || executed - node->since < patience_) continue;
    Fragment released;
    released.pc = node->pc;
    released.mask = node->arrived;
    released.frame = node->frame;
    released.rejoin = node->parent;
    fragments_.push_back(released);
    node->expected &= ~node->arrived;
    node->arrived = 0;
    patience_ = kPatienceOfSpinner;
  }
}

bool Warp::pick_fragment() {
  for (size_t i = 0; i < fragments_.size(); ++i) {
    if (fragments_[i].wait != Wait::None) continue;
    const Fragment chosen = fragments_[i];
    fragments_.erase(fragments_.begin() + static_cast<long>(i));
    load(chosen);
    return true;
  }
  return false;
}

Rejoin* Warp::new_rejoin(int rejoin_at, uint32_t expected) {
  Rejoin* node = nullptr;
  if (free_rejoins_.empty()) {
    node = &rejoins_.emplace_back();
  } else {
    node = free_rejoins_.back();
    free_rejoins_.pop_back();
  }
  *node = Rejoin{};
  node->pc = rejoin_at;
  node->expected = expected;
  node->frame = frame;
  node->parent = rejoin;
  return node;
}

Frame* Warp::new_frame(const Code* callee, uint32_t local_base) {
  Frame* fresh = nullptr;
  for (size_t i = 0; i < free_frames_.size() && !fresh; ++i) {
    if (free_frames_[i]->code != callee) continue;
    fresh = free_frames_[i];
    free_frames_.erase(free_frames_.begin() + static_cast<long>(i));
  }
  if (!fresh) {
    if (frames_.size() >= kMaxFrames)
      fault(*this, FindingKind::LocalBounds, 0, 0, "calls are nested too deeply");
    fresh = frames_.emplace_back(std::make_unique<Frame>()).get();
    fresh->code = callee;
    fresh->registers.resize_zeroed(callee->frame_bytes);
    fresh->params.assign(size_t{callee->param_bytes} * kLanes, 0);
  }
  fresh->local_base = local_base;
  return fresh;
}

void Warp::reserve_local(uint32_t bytes) {
  if (bytes <= local_capacity_) return;
  if (bytes > kMaxLocalBytes)
    fault(*this, FindingKind::LocalBounds, 0, bytes, "local memory of a thread is exhausted");
  const uint32_t capacity = std::max(bytes, local_capacity_ * 2);
  std::vector<uint8_t> grown(size_t{capacity} * kLanes), written(size_t{capacity} * kLanes);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    std::copy_n(locals_.data() + lane * local_capacity_, local_capacity_,
                grown.data() + lane * capacity);
    std::copy_n(local_written_.data() + lane * local_capacity_, local_capacity_,
                written.data() + lane * capacity);
  }
  locals_.swap(grown);
  local_written_.swap(written);
  local_capacity_ = capacity;
}

// The running fragment has reached the point where it waits for the lanes it diverged from.
void Warp::arrive() {
  Rejoin* node = rejoin;
  node->arrived |= active;
  node->since = executed;
  running_ = false;
  if (node->arrived == node->expected) release(node);
}

// All lanes have arrived: they go on together behind the node.
void Warp::release(Rejoin* node) {
  Fragment merged;
  merged.pc = node->pc;
  merged.mask = node->arrived;
  merged.frame = node->frame;
  merged.rejoin = node->parent;
  if (node->is_call) free_frames_.push_back(node->callee);
  free_rejoins_.push_back(node);
  if (!running_)
    load(merged);
  else
    fragments_.push_back(merged);
}

// Lanes that end or return no longer come to the nodes they were expected at, up to `stop`.
void Warp::remove_lanes(Rejoin* node, uint32_t mask, const Rejoin* stop) {
  while (node != stop) {
    Rejoin* parent = node->parent;
    node->expected &= ~mask;
    if (node->expected == 0) {
      if (node->is_call) free_frames_.push_back(node->callee);
      free_rejoins_.push_back(node);
    } else if (node->arrived == node->expected) {
      release(node);
    }
    node = parent;
  }
}

// Sends `lanes` of the running fragment to `target`; the others stay.
void Warp::split(uint32_t lanes, int target, int reconverge) {
  if (reconverge != kNoPc && rejoin_pc != reconverge) {
    rejoin = new_rejoin(reconverge, active);
    rejoin_pc = reconverge;
  }
  active &= ~lanes;
  if (target == rejoin_pc) {
    rejoin->arrived |= lanes;
    rejoin->since = executed;
    return;
  }
  Fragment other = save();
  other.pc = target;
  other.mask = lanes;
  fragments_.push_back(other);
}

void Warp::branch(uint32_t taken, int target, int reconverge) {
  if (taken == active)
    pc = target;
  else
    split(taken, target, reconverge);
}

void Warp::branch_many(uint32_t mask, const int32_t* lane_targets, int reconverge) {
  while (mask) {
    const int target = lane_targets[std::countr_zero(mask)];
    uint32_t same = 0;
    active_lanes(mask, [&](int lane) { same |= (lane_targets[lane] == target) ? 1u << lane : 0u; });
    mask &= ~same;
    if (same == active)
      pc = target;
    else
      split(same, target, reconverge);
  }
}

void Warp::call(const CallSite& site, int callee, uint32_t mask) {
  if (mask != active) {
    // Lanes that do not call wait behind the call.
    Rejoin* behind = new_rejoin(pc, active);
    behind->arrived = active & ~mask;
    rejoin = behind;
  }
  const Code* target = launch.program->codes[static_cast<size_t>(callee)].get();
  const uint32_t local_base = (frame->local_base + code->local_bytes + 15) & ~15u;
  reserve_local(local_base + target->local_bytes);
  Frame* inner = new_frame(target, local_base);
  active_lanes(mask, [&](int lane) {
    std::fill_n(local_written(lane) + local_base, target->local_bytes, uint8_t{0});
    uint8_t* to = inner->params.data() + static_cast<size_t>(lane) * target->param_bytes;
    for (const ParamCopy& copy : site.arguments) {
      const uint8_t* from = copy.caller_is_register ? src<uint8_t>(copy.caller) +
                                                          static_cast<uint32_t>(lane) * copy.bytes
                                                    : params(lane) + copy.caller;
      uint8_t* into = copy.callee_is_register ? inner->registers.data.get() + copy.callee +
                                                    static_cast<uint32_t>(lane) * copy.bytes
                                              : to + copy.callee;
      std::copy_n(from, copy.bytes, into);
    }
  });
  Rejoin* back = new_rejoin(pc, mask);
  back->is_call = true;
  back->callee = inner;
  back->site = &site;
  Fragment entered;
  entered.mask = mask;
  entered.frame = inner;
  entered.rejoin = back;
  load(entered);
}

void Warp::leave(uint32_t mask) {
  Rejoin* back = rejoin;
  while (back && !back->is_call) back = back->parent;
  if (!back) return exit(mask);
  active_lanes(mask, [&](int lane) {
    uint8_t* to =
        back->frame->params.data() + static_cast<size_t>(lane) * back->frame->code->param_bytes;
    for (const ParamCopy& copy : back->site->results) {
      const uint8_t* from = copy.callee_is_register
                                ? bases[0] + copy.callee + static_cast<uint32_t>(lane) * copy.bytes
                                : params(lane) + copy.callee;
      uint8_t* into = copy.caller_is_register ? back->frame->registers.data.get() + copy.caller +
                                                    static_cast<uint32_t>(lane) * copy.bytes
                                              : to + copy.caller;
      std::copy_n(from, copy.bytes, into);
    }
  });
  Rejoin* innermost = rejoin;
  active &= ~mask;
  running_ = active != 0;
  remove_lanes(innermost, mask, back);
  back->arrived |= mask;
  if (back->arrived == back->expected) release(back);
}

void Warp::exit(uint32_t mask) {
  live &= ~mask;
  active &= ~mask;
  running_ = active != 0;
  remove_lanes(rejoin, mask, nullptr);
  ++cta.progress;
  cta.lanes_exited();
}

bool Warp::gather(const Op& op, uint32_t& mask, uint32_t members) {
  const uint32_t wanted = members & live;
  if ((wanted & ~mask) == 0) return true;
  uint32_t together = mask;
  const bool any_pc = op.kind == OpClass::Barrier;  // bar.warp.sync may stand in both branches
  const auto joins = [&](const Fragment& fragment) {
    return fragment.wait == Wait::WarpSync && (fragment.wait_members & live) == wanted &&
           (any_pc ? fragment.op->run == op.run : fragment.pc == pc && fragment.frame == frame);
  };
  for (const Fragment& fragment : fragments_)
    if (joins(fragment)) together |= fragment.wait_exec;
  if ((wanted & ~together) == 0) {
    for (Fragment& fragment : fragments_)
      if (joins(fragment)) fragment.wait = Wait::None;
    mask = together;
    return true;
  }
  Fragment waiting = save();
  waiting.wait = Wait::WarpSync;
  waiting.wait_exec = mask;
  waiting.wait_members = members;
  waiting.op = &op;
  fragments_.push_back(waiting);
  running_ = false;
  return false;
}

void Warp::park(const Op& op, Wait wait, uint32_t id, uint32_t mask) {
  Fragment waiting = save();
  waiting.wait = wait;
  waiting.wait_exec = mask;
  waiting.barrier = id;
  waiting.op = &op;
  fragments_.push_back(waiting);
  running_ = false;
}

std::string Warp::describe_waits() const {
  std::string text;
  for (const Fragment& fragment : fragments_) {
    if (fragment.wait == Wait::None) continue;
    const OpSource& source = fragment.frame->code->sources[static_cast<size_t>(fragment.pc - 1)];
    const std::string what =
        fragment.wait == Wait::Barrier ? fmt::format("barrier {}", fragment.barrier)
        : fragment.wait == Wait::Cluster
            ? std::string("the cluster")
            : fmt::format("lanes {:#010x}", fragment.wait_members & live & ~fragment.wait_exec);
    text += fmt::format("{}warp {} lanes {:#010x} wait for {} at {}:{}", text.empty() ? "" : "; ",
                        index, fragment.mask, what, launch.program->file_name(source.location.file),
                        source.location.line);
  }
  return text;
}

}  // namespace linnet::vgpu
