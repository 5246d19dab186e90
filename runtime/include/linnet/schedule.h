// How a problem is computed: everything a tuner may choose, nothing a result depends on but
// rounding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace linnet {

// Of a chunk algorithm: what is computed in which stage.
struct StageOptions {
  bool separate_output = false;  // a map of its own for outputs, instead of inside the scan
  bool distribute_inverse =
      false;  // Z b - (Z E) S instead of Z (b - E S): a shorter serial chain, more products
  bool operator==(const StageOptions&) const = default;
};

struct Schedule {
  int64_t chunk = 16;       // tokens of a chunk; 1: the plain recurrence
  bool fuse_stages = true;  // maps run inside the loop of the scan beside them, chunk by chunk
  // Of stages apart: products of a map are made by the loop that adds them, to the bits of fused
  // ones.
  bool sink_products = false;
  int64_t register_rows = 0;  // CPU: rows of a block of sums kept in registers; 0: by their number
  int64_t register_vectors = 2;  // CPU: vectors of a row of such a block
  int64_t warps = 0;             // of a block of a GPU kernel that treats one chunk; 0: by channels
  // Value channels of one call of a CPU kernel, or of a block of a GPU kernel that scans. 0: all of
  // them on a CPU, 64 on a GPU.
  int64_t value_block = 0;
  int64_t pipeline_stages = 2;  // GPU: turns of a scan whose inputs are in shared memory at a time
  // GPU, not decode: tokens of a segment, a multiple of the chunk. A sequence is cut at multiples
  // of it from its own start, and its segments are scanned at once; 0: not cut.
  int64_t segment = 0;
  StageOptions stages;

  bool operator==(const Schedule&) const = default;
  // Whether both add in the same order, so that results are the same to the bit. Sums over the
  // channels of a row go warp by warp.
  bool same_sums(const Schedule& other) const {
    return chunk == other.chunk && warps == other.warps && segment == other.segment &&
           stages == other.stages;
  }
  int fields_apart(const Schedule& other) const;  // fields that differ
  // "chunk=32 warps=8": the chunk, and what is not as above.
  std::string describe() const;
  // Reads that; fields may be apart by blanks or commas. Throws UserError that begins with `what`.
  static Schedule parse(std::string_view text, const std::string& what = "schedule");
  // One field by its name in this struct; false if there is none, or not with this value.
  bool set(std::string_view field, int64_t value);

  // Calls with name, value and default of every field, in order.
  template <class F>
  void for_each_field(F call) const {
    const Schedule d;
    call("chunk", chunk, d.chunk);
    call("fuse_stages", fuse_stages, d.fuse_stages);
    call("sink_products", sink_products, d.sink_products);
    call("register_rows", register_rows, d.register_rows);
    call("register_vectors", register_vectors, d.register_vectors);
    call("warps", warps, d.warps);
    call("value_block", value_block, d.value_block);
    call("pipeline_stages", pipeline_stages, d.pipeline_stages);
    call("segment", segment, d.segment);
    call("separate_output", stages.separate_output, d.stages.separate_output);
    call("distribute_inverse", stages.distribute_inverse, d.stages.distribute_inverse);
  }
};

}  // namespace linnet
