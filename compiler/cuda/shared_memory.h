// A block's shared memory while its kernel is written: who holds which bytes, and where threads
// have to wait for each other.
#pragma once

#include <cstdint>
#include <vector>

namespace linnet::cuda {

struct Range {
  int64_t begin = 0, end = 0;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

class SharedMemory {
 public:
  Range place_for(int64_t bytes, int64_t from = 0) const;  // the lowest that is free
  Range allocate(int64_t bytes, int64_t from = 0);         // holds that
  void release(Range range);
  int64_t most_used() const { return most_; }

  // Notes what a statement reads and writes. True if threads must wait for each other before it: it
  // reads what was written, or writes what was read or written, since they last did.
  bool access(const std::vector<Range>& reads, const std::vector<Range>& writes);
  void waited() {
    read_.clear();
    written_.clear();
  }

 private:
  std::vector<Range> held_, read_, written_;
  int64_t most_ = 0;
};

}  // namespace linnet::cuda
