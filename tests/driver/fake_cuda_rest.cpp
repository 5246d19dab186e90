// Functions of the driver's table that the fake has no behaviour of its own for: they succeed.
#include <cstddef>

namespace {
using Handle = void*;
using DevicePointer = unsigned long long;
}  // namespace

#define LINNET_DRIVER_FUNCTION(name, parameters) \
  extern "C" __attribute__((weak)) int name parameters { return 0; }
#include "runtime/cuda/driver_api.def"
