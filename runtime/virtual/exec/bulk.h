// What bulk copies of bytes and of tensors share.
#pragma once

#include "exec/cluster.h"
#include "exec/decoder.h"

namespace linnet::vgpu {

// Bytes that were read and land in shared memory when the mbarrier at `barrier` is looked at. The
// destination and the barrier may be another block's of the cluster.
void begin_bulk(Warp& warp, int lane, uint64_t destination, uint64_t barrier,
                std::vector<uint8_t> data, uint32_t span);
// The offset of a range of shared memory in its block; a fault when it does not lie within.
uint32_t check_bulk_range(Warp& warp, int lane, uint64_t shared, uint32_t bytes);

// cp.async.bulk.tensor and its prefetch.
void decode_tensor_copy(OpBuilder& b);

}  // namespace linnet::vgpu
