// Finds the compiler when a kernel is not in the cache.
#pragma once

#include "linnet/compiler.h"

namespace linnet {

// The compiler set by use_compiler, or the library liblinnet_compiler.so beside this one (or at
// LINNET_COMPILER). Throws DeviceError if there is none, or if LINNET_JIT is 0, naming the kernel
// that is missing.
Compiler& compiler_for(const std::string& what);

}  // namespace linnet
