#include "exec/control_flow.h"

#include <algorithm>
#include <set>

#include "exec/program.h"

namespace linnet::vgpu {
namespace {

// Basic blocks, plus one node behind all of them that stands for the end of the function.
struct Blocks {
  std::vector<int> starts;
  std::vector<std::vector<int>> successors;
  int exit() const { return static_cast<int>(starts.size()); }
  int of(int pc) const {
    return static_cast<int>(std::upper_bound(starts.begin(), starts.end(), pc) - starts.begin()) -
           1;
  }
};

// The block whose end is where lanes that went different ways may still meet. Lanes that leave
// elsewhere (an early return, a trap) are not waited for, so those exits must not count: otherwise
// "if (x) { if (y) return; ... }" would never come together again.
int main_exit(const Blocks& blocks, const std::vector<char>& leaves) {
  std::vector<char> reached(blocks.starts.size(), 0);
  std::vector<int> open{0};
  reached[0] = 1;
  int last = -1;
  while (!open.empty()) {
    const int block = open.back();
    open.pop_back();
    if (leaves[static_cast<size_t>(block)]) last = std::max(last, block);
    for (const int to : blocks.successors[static_cast<size_t>(block)]) {
      if (to == blocks.exit() || reached[static_cast<size_t>(to)]) continue;
      reached[static_cast<size_t>(to)] = 1;
      open.push_back(to);
    }
  }
  return last;
}

Blocks find_blocks(int op_count, const std::map<int, Flow>& flows) {
  std::set<int> leaders{0};
  for (const auto& [pc, flow] : flows) {
    if (pc + 1 < op_count) leaders.insert(pc + 1);
    for (const int target : flow.targets)
      if (target < op_count) leaders.insert(target);
  }
  Blocks blocks;
  blocks.starts.assign(leaders.begin(), leaders.end());
  const int count = blocks.exit();
  blocks.successors.resize(static_cast<size_t>(count));
  std::vector<char> leaves(static_cast<size_t>(count), 0);
  for (int block = 0; block < count; ++block) {
    const int end = block + 1 < count ? blocks.starts[static_cast<size_t>(block) + 1] : op_count;
    auto& out = blocks.successors[static_cast<size_t>(block)];
    const auto flow = flows.find(end - 1);
    if (flow == flows.end() || flow->second.falls_through)
      out.push_back(end < op_count ? block + 1 : count);
    if (flow == flows.end()) continue;
    for (const int target : flow->second.targets)
      out.push_back(target < op_count ? blocks.of(target) : count);
    leaves[static_cast<size_t>(block)] = flow->second.leaves;
  }
  const int exit_block = main_exit(blocks, leaves);
  if (exit_block >= 0) blocks.successors[static_cast<size_t>(exit_block)].push_back(count);
  return blocks;
}

// Order in which the reversed graph is left by a depth-first walk from the exit.
std::vector<int> reverse_postorder_from_exit(const std::vector<std::vector<int>>& predecessors,
                                             int exit) {
  std::vector<int> order;
  std::vector<char> seen(predecessors.size(), 0);
  std::vector<std::pair<int, size_t>> stack{{exit, 0}};
  seen[static_cast<size_t>(exit)] = 1;
  while (!stack.empty()) {
    auto& [node, next] = stack.back();
    const auto& edges = predecessors[static_cast<size_t>(node)];
    if (next == edges.size()) {
      order.push_back(node);
      stack.pop_back();
      continue;
    }
    const int to = edges[next++];
    if (!seen[static_cast<size_t>(to)]) {
      seen[static_cast<size_t>(to)] = 1;
      stack.emplace_back(to, 0);
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

// Cooper, Harvey and Kennedy's iteration on the reversed graph; -1 where the exit is not reachable.
std::vector<int> post_dominators(const Blocks& blocks) {
  const int exit = blocks.exit();
  std::vector<std::vector<int>> predecessors(static_cast<size_t>(exit) + 1);
  for (int block = 0; block < exit; ++block)
    for (const int to : blocks.successors[static_cast<size_t>(block)])
      predecessors[static_cast<size_t>(to)].push_back(block);
  const std::vector<int> order = reverse_postorder_from_exit(predecessors, exit);
  std::vector<int> rank(predecessors.size(), -1), dominator(predecessors.size(), -1);
  for (size_t i = 0; i < order.size(); ++i)
    rank[static_cast<size_t>(order[i])] = static_cast<int>(i);
  dominator[static_cast<size_t>(exit)] = exit;
  const auto intersect = [&](int a, int b) {
    while (a != b) {
      while (rank[static_cast<size_t>(a)] > rank[static_cast<size_t>(b)])
        a = dominator[static_cast<size_t>(a)];
      while (rank[static_cast<size_t>(b)] > rank[static_cast<size_t>(a)])
        b = dominator[static_cast<size_t>(b)];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const int node : order) {
      if (node == exit) continue;
      int best = -1;
      for (const int to : blocks.successors[static_cast<size_t>(node)])
        if (dominator[static_cast<size_t>(to)] >= 0) best = best < 0 ? to : intersect(best, to);
      if (best != dominator[static_cast<size_t>(node)]) {
        dominator[static_cast<size_t>(node)] = best;
        changed = true;
      }
    }
  }
  return dominator;
}

}  // namespace

std::map<int, int> reconvergence_points(int op_count, const std::map<int, Flow>& flows) {
  std::map<int, int> points;
  if (op_count == 0) return points;
  const Blocks blocks = find_blocks(op_count, flows);
  const std::vector<int> dominator = post_dominators(blocks);
  for (const auto& [pc, flow] : flows) {
    if (flow.targets.empty()) continue;
    const int block = dominator[static_cast<size_t>(blocks.of(pc))];
    const bool inside = block >= 0 && block < blocks.exit();
    points[pc] = inside ? blocks.starts[static_cast<size_t>(block)] : kNoPc;
  }
  return points;
}

}  // namespace linnet::vgpu
