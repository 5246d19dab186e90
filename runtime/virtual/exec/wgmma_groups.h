// Results of wgmma that have not been waited for: registers hold nothing useful until then.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

namespace linnet::vgpu {

class WgmmaGroups {
 public:
  using Lanes = std::array<uint32_t, 32>;

  // What an accumulator will hold, or what it holds when nothing is on its way to it.
  const uint32_t* value_of(uint32_t* place) const {
    const auto found = pending_.find(place);
    return found == pending_.end() ? place : found->second.values.data();
  }
  Lanes& result_of(uint32_t* place) {
    Pending& pending = pending_[place];
    pending.group = committed_;
    return pending.values;
  }
  void commit() { ++committed_; }
  // Lands what belongs to all groups but the `keep` youngest.
  void wait(uint64_t keep) {
    if (committed_ < keep) return;
    for (auto at = pending_.begin(); at != pending_.end();) {
      if (at->second.group + keep >= committed_) {
        ++at;
        continue;
      }
      std::copy(at->second.values.begin(), at->second.values.end(), at->first);
      at = pending_.erase(at);
    }
  }

 private:
  struct Pending {
    uint64_t group = 0;  // number of groups committed before the one it belongs to
    Lanes values{};
  };
  std::map<uint32_t*, Pending> pending_;  // by the register's memory
  uint64_t committed_ = 0;
};

}  // namespace linnet::vgpu
