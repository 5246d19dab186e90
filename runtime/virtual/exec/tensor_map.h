// What cuTensorMapEncodeTiled writes into a CUtensorMap, and tensor copies read from it.
#pragma once

#include <cstdint>

namespace linnet::vgpu {

// 128 bytes, opaque to programs.
struct TensorMap {
  static constexpr uint64_t kMagic = 0x70614d54656e6e4cull;
  uint64_t magic = 0;
  uint64_t address = 0;
  uint64_t strides[4] = {};  // bytes between neighbours of dimension 1, 2, ...
  uint32_t dims[5] = {};     // elements; dimension 0 is contiguous. 0 stands for 2^32
  uint16_t box[5] = {};      // elements copied at a time
  uint8_t rank = 0;
  uint8_t element_bytes = 0;
  uint8_t span = 0;      // of the swizzle
  uint8_t fill_nan = 0;  // outside of the tensor: NaN (of a floating type) instead of zeros
  uint8_t nan_type = 0;  // the bit pattern that stands for it: 2: f16, 3: bf16, 4: f32, 8: f64
  uint8_t unused[128 - 8 - 8 - 32 - 20 - 10 - 5] = {};

  uint32_t box_elements() const {
    uint32_t count = 1;
    for (int i = 0; i < rank; ++i) count *= box[i];
    return count;
  }
};
static_assert(sizeof(TensorMap) == 128);

}  // namespace linnet::vgpu
