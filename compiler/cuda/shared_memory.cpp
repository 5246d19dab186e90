#include "compiler/cuda/shared_memory.h"

#include <algorithm>

namespace linnet::cuda {

Range SharedMemory::place_for(int64_t bytes, int64_t from) const {
  bytes = (bytes + 15) / 16 * 16;
  Range place{from, from + bytes};
  for (const Range& held : held_)  // in order of place
    if (place.overlaps(held)) place = {held.end, held.end + bytes};
  return place;
}

Range SharedMemory::allocate(int64_t bytes, int64_t from) {
  Range place = place_for(bytes, from);
  held_.insert(std::upper_bound(held_.begin(), held_.end(), place,
                                [](const Range& a, const Range& b) { return a.begin < b.begin; }),
               place);
  most_ = std::max(most_, place.end);
  return place;
}

void SharedMemory::release(Range range) {
  std::erase_if(
      held_, [&](const Range& held) { return held.begin == range.begin && held.end == range.end; });
}

bool SharedMemory::access(const std::vector<Range>& reads, const std::vector<Range>& writes) {
  auto meets = [](const std::vector<Range>& a, const std::vector<Range>& b) {
    return std::any_of(a.begin(), a.end(), [&](const Range& x) {
      return std::any_of(b.begin(), b.end(), [&](const Range& y) { return x.overlaps(y); });
    });
  };
  bool wait = meets(reads, written_) || meets(writes, written_) || meets(writes, read_);
  if (wait) waited();
  read_.insert(read_.end(), reads.begin(), reads.end());
  written_.insert(written_.end(), writes.begin(), writes.end());
  return wait;
}

}  // namespace linnet::cuda
