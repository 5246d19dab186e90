// Tensor maps: the descriptions of tensors that bulk copies take boxes from.
#include <fmt/format.h>

#include <cstring>

#include "driver/boundary.h"
#include "exec/tensor_map.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::driver;

namespace {

struct ElementType {
  uint8_t bytes;
  uint8_t nan;  // TensorMap::nan_type, 0 for integers
};
// By CUtensorMapDataType.
constexpr ElementType kTypes[] = {{1, 0}, {2, 0}, {4, 0}, {4, 0}, {8, 0}, {8, 0}, {2, 2},
                                  {4, 4}, {8, 8}, {2, 3}, {4, 4}, {4, 4}, {4, 4}};
constexpr uint8_t kSpans[] = {0, 32, 64, 128};  // by CUtensorMapSwizzle

void expect(bool fits, const char* name, const std::string& expected) {
  if (!fits) invalid_value(fmt::format("{}: expected {}", name, expected));
}

}  // namespace

VGPU_API CUresult cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* address,
                                         const uint64_t* dims, const uint64_t* strides,
                                         const uint32_t* box, const uint32_t* element_strides,
                                         int interleave, int swizzle, int, int fill) {
  return guarded("cuTensorMapEncodeTiled", [&](State&) {
    required(static_cast<char*>(map), "tensorMap");
    expect(type >= 0 && type < static_cast<int>(std::size(kTypes)), "tensorDataType",
           "a type of up to 8 bytes an element");
    expect(rank >= 1 && rank <= 5, "tensorRank", "1 to 5");
    expect(reinterpret_cast<uintptr_t>(address) % 16 == 0 && address, "globalAddress",
           "a multiple of 16");
    expect(swizzle >= 0 && swizzle < static_cast<int>(std::size(kSpans)), "swizzle",
           "none, 32, 64 or 128 bytes");
    if (interleave != 0) throw DriverError(CUDA_ERROR_NOT_SUPPORTED, "interleaved tensors");
    TensorMap made;
    made.magic = TensorMap::kMagic;
    made.address = reinterpret_cast<uintptr_t>(address);
    made.rank = static_cast<uint8_t>(rank);
    made.element_bytes = kTypes[type].bytes;
    made.span = kSpans[swizzle];
    made.fill_nan = fill != 0;
    made.nan_type = kTypes[type].nan;
    expect(!fill || made.nan_type, "oobFill", "zeros for integers");
    for (unsigned i = 0; i < rank; ++i) {
      expect(dims && dims[i] >= 1 && dims[i] <= uint64_t{1} << 32, "globalDim", "1 to 2^32");
      expect(box && box[i] >= 1 && box[i] <= 256, "boxDim", "1 to 256");
      if (element_strides && element_strides[i] != 1)
        throw DriverError(CUDA_ERROR_NOT_SUPPORTED, "element strides other than 1");
      made.dims[i] = static_cast<uint32_t>(dims[i]);
      made.box[i] = static_cast<uint16_t>(box[i]);
    }
    for (unsigned i = 0; i + 1 < rank; ++i) {
      expect(strides && strides[i] % 16 == 0 && strides[i] < uint64_t{1} << 40, "globalStrides",
             "multiples of 16 below 2^40");
      made.strides[i] = strides[i];
    }
    const uint32_t row = box[0] * made.element_bytes;
    expect(row % 16 == 0, "boxDim[0]", "a multiple of 16 bytes");
    expect(!made.span || row <= made.span, "boxDim[0]",
           fmt::format("at most the swizzle's {} bytes", made.span));
    std::memcpy(map, &made, sizeof made);
  });
}

VGPU_API CUresult cuTensorMapReplaceAddress(void* map, void* address) {
  return guarded("cuTensorMapReplaceAddress", [&](State&) {
    TensorMap made;
    std::memcpy(&made, &required(static_cast<char*>(map), "tensorMap"), sizeof made);
    expect(made.magic == TensorMap::kMagic, "tensorMap", "one that was encoded");
    expect(reinterpret_cast<uintptr_t>(address) % 16 == 0 && address, "globalAddress",
           "a multiple of 16");
    made.address = reinterpret_cast<uintptr_t>(address);
    std::memcpy(map, &made, sizeof made);
  });
}
