// How long one block would take on the device: a model, run beside the execution of one block.
//
// A warp's instructions wait for their operands and for their pipe. The compiler is assumed to
// order them well within a basic block and never across one, and no memory access crosses a
// barrier.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "exec/program.h"
#include "profile.h"

namespace linnet::vgpu {

class Timeline {
 public:
  Timeline(const DeviceProfile& profile, uint32_t warps);

  // An instruction of the warp was executed; `waves` is what it cost the pipe of memory.
  void step(const Code& code, int pc, std::vector<uint64_t>& ready, uint64_t waves);
  // Arrival at a barrier of the block, and the time it opened.
  uint64_t arrive() const { return latest_access_; }
  void resume(uint64_t time);
  uint64_t end() const { return end_; }

 private:
  enum Pipe : uint8_t { kIssue, kFloat, kInteger, kMufu, kTensor, kMemory, kPipes };
  struct Cost {
    Pipe pipe = kIssue;
    double clocks = 1;
    uint32_t latency = 4;
  };
  Cost cost_of(const Op& op, const OpUse& use, uint64_t waves) const;
  void wait_for_copies(size_t keep);
  void begin_block(uint64_t time);

  const DeviceProfile& profile_;
  double share_;      // warps of the block that share a scheduler
  double all_warps_;  // that share the pipe of memory
  double tensor_flop_clock_;
  uint64_t base_ = 0;           // since when pipes are counted
  uint64_t floor_ = 0;          // nothing starts before
  uint64_t latest_start_ = 0;   // of all instructions
  uint64_t latest_access_ = 0;  // of those that touch memory
  uint64_t end_ = 0;
  uint64_t open_copies_ = 0;
  std::deque<uint64_t> groups_;  // when committed copies land
  std::array<double, kPipes> busy_{};
};

}  // namespace linnet::vgpu
