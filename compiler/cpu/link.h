// Links one object file to a flat image that can be put anywhere in memory and called.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "llvm/ADT/StringRef.h"

namespace linnet::cpu {

struct Image {
  std::string bytes;
  std::vector<int64_t> entries;  // offset of each function asked for
};

// Throws InternalError if the code needs a symbol from outside, or depends on where it lies.
Image link(llvm::StringRef object, const std::vector<std::string>& functions);

}  // namespace linnet::cpu
