// The book kept of a block's shared memory: places are reused, and barriers stand where they must.
#include "compiler/cuda/shared_memory.h"

#include <doctest/doctest.h>

using linnet::cuda::Range;
using linnet::cuda::SharedMemory;

TEST_CASE("shared memory: the lowest free place is taken, and what is held is never given away") {
  SharedMemory memory;
  Range a = memory.allocate(100), b = memory.allocate(64), c = memory.allocate(32);
  CHECK(a.begin == 0);
  CHECK(b.begin == 112);  // places are multiples of 16
  CHECK_FALSE(b.overlaps(c));
  memory.release(b);
  Range d = memory.allocate(32), e = memory.allocate(64);
  CHECK(d.begin == b.begin);
  CHECK(e.begin == c.end);  // does not fit between d and c
  memory.release(Range{});  // of something that never had a place
  CHECK(memory.allocate(16).begin == d.end);
  CHECK(memory.most_used() == e.end);
}

TEST_CASE(
    "shared memory: threads wait after a write before a read, and after either before a write") {
  SharedMemory memory;
  Range a = memory.allocate(64), b = memory.allocate(64);
  CHECK_FALSE(memory.access({}, {a}));
  CHECK_FALSE(memory.access({}, {b}));  // elsewhere
  CHECK(memory.access({a}, {}));        // read after write
  CHECK_FALSE(memory.access({a, b}, {}));
  CHECK(memory.access({}, {a}));  // write after read
  CHECK(memory.access({}, {a}));  // write after write
  memory.waited();
  CHECK_FALSE(memory.access({a}, {}));
  // A wait settles everything before it, not what the statement itself does.
  memory.access({b}, {a});
  CHECK(memory.access({a}, {}));
}
