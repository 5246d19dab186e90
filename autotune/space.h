// Every schedule of an op that is worth asking about on a device: generated from what the op's tile
// program has, without those that cannot run and those that give the same kernel.
#pragma once

#include <string>
#include <vector>

#include "linnet/compiler.h"
#include "runtime/tuning/defaults.h"

namespace linnet::autotune {

// What a device cannot exceed.
struct Limits {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;  // for messages
  // cpu
  int64_t vector_registers = 16;  // the fewest there are
  int64_t second_cache_bytes = 1 << 20;
  // gpu
  int64_t shared_bytes = 0;  // a block may ask for
  int64_t shared_per_sm = 0, threads_per_sm = 0, blocks_per_sm = 0, reserved_shared = 1024;

  static Limits of_this_cpu();
  // Of a GPU that is here or that the virtual one plays. Throws DeviceError if it is neither.
  static Limits of_gpu(const std::string& device);
};

struct Candidate {
  Schedule schedule;
  std::string note;  // what it needs, for people: "36.0 KB shared, 3 blocks an SM"
};

struct Space {
  std::vector<Candidate> candidates;  // the default first, then in a fixed order
  struct Refused {
    Schedule schedule;
    std::string why;
  };
  std::vector<Refused> refused;
  std::vector<Schedule> schedules() const;
};

Space make_space(Compiler& compiler, const Problem& problem, Direction direction,
                 const Limits& limits);

}  // namespace linnet::autotune
