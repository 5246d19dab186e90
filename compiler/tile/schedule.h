// How a problem is computed: everything a tuner may choose, nothing a result depends on but
// rounding.
#pragma once

#include <cstdint>

#include "compiler/passes/passes.h"

namespace linnet {

struct Schedule {
  int64_t chunk = 16;       // tokens of a chunk; 1: the plain recurrence
  bool fuse_stages = true;  // maps run inside the loop of the scan beside them, chunk by chunk
  // Of stages apart: products of a map are made by the loop that adds them, to the bits of fused
  // ones.
  bool sink_products = false;
  int64_t register_rows = 8;     // rows of a block of sums kept in registers
  int64_t register_vectors = 2;  // vectors of a row of such a block
  int64_t warps = 0;             // of a block of a GPU kernel that treats one chunk; 0: by channels
  int64_t value_block = 64;      // value channels of a block of a GPU kernel that scans
  int64_t pipeline_stages = 2;   // turns of such a scan whose inputs are in shared memory at a time
  StageOptions stages;
};

}  // namespace linnet
