// From the counts of small runs to those of a large one.
//
// Blocks are independent, and a block does the same for every whole chunk. So every count of a call
// on N sequences of T tokens and H value heads is
//
//   count = N H (a + b T)         with T a multiple of the chunk
//
// (the clocks of one block: a + b T). Two small runs give a and b; a third is predicted from them
// and run. Where it agrees to the last digit, the law holds and the scaled counts are exact; where
// it does not, they are estimates, and how far the third was off says how good.
//
// Where sequences are cut into n segments of m chunks, blocks work on segments or, one after
// another, on all of them, and
//
//   count = N H (a + b n + c m + d n m)
//
// Kernels do not know how long a segment is before they run, so that small calls have small ones.
#pragma once

#include <cstdint>
#include <functional>

#include "model/cost_model.h"

namespace linnet::vgpu {

struct CallShape {
  int64_t sequences = 1, tokens = 0, value_heads = 1;  // tokens of each sequence
  int64_t segment = 0;                                 // tokens; 0: sequences are not cut
};

struct CountedCall {
  CallShape shape;
  std::vector<KernelCounts> kernels;  // in the order of their launches
};

struct ScaledCall {
  CallShape shape;
  std::vector<KernelCounts> kernels;
  std::vector<double> errors;  // by kernel: the largest relative error of a count of the last run
  bool exact = false;          // all errors are zero, and tokens are whole chunks
};

// Two small calls, or four with segments, and the one that is predicted; as small_calls has them.
// Throws std::invalid_argument when they do not launch the same kernels.
ScaledCall scale(const std::vector<CountedCall>& calls, const CallShape& shape, int64_t chunk);

// Runs calls of one op on the virtual GPU: `run` makes the call, `launches` gives what it launched.
struct Counting {
  std::function<void(const CallShape&)> run;
  std::function<std::vector<KernelCounts>()> launches;  // since the last call of it
  CountedCall count(const CallShape& shape) const;
};

// Counting::launches for the functions of linnet_virtual.h, as a program that loaded them has them.
std::function<std::vector<KernelCounts>()> launch_reader(int (*launches)(linnet_virtual_launch*,
                                                                         int),
                                                         void (*reset)());

// Chunks of the small calls: pipelines are filled, and the third is no neighbour of the first two.
constexpr std::array<int64_t, 3> kSmallChunks{3, 4, 6};
// Segments of the small calls, and their chunks.
constexpr std::array<std::array<int64_t, 2>, 5> kSmallSegments{
    {{2, 3}, {3, 3}, {2, 4}, {3, 4}, {4, 5}}};

// Calls on one sequence that tell the counts of a call on `shape`. One that is not longer than a
// segment is not cut.
std::vector<CallShape> small_calls(const CallShape& shape, int64_t chunk, int64_t heads);

// The counts of a call on `shape` from small calls, with at most `heads` value heads. Rows of one
// number a head (beta) fill sectors that other heads share: 16 heads make their sectors those of
// more heads too.
ScaledCall count_scaled(const Counting& counting, const CallShape& shape, int64_t chunk,
                        int64_t heads = 16);

}  // namespace linnet::vgpu
