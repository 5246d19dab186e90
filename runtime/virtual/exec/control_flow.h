// Finds where diverged lanes come together again: the immediate post-dominator of every branch.
#pragma once

#include <map>
#include <vector>

namespace linnet::vgpu {

// How control leaves an instruction; instructions without an entry just fall through.
struct Flow {
  std::vector<int> targets;
  bool falls_through = true;
  bool leaves = false;  // may end the function (ret, exit)
};

// For each branching pc the pc of its immediate post-dominator, or kNoPc when lanes meet only at
// the end of the function.
std::map<int, int> reconvergence_points(int op_count, const std::map<int, Flow>& flows);

}  // namespace linnet::vgpu
