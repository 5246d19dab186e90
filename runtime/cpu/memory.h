// Memory of the host that kernels work in.
#pragma once

#include "linnet/device.h"

namespace linnet {

// Aligned to a cache line; in large pages, where the system has them for the asking, once it is
// worth it. Throws DeviceError.
Buffer allocate_on_host(size_t bytes);

}  // namespace linnet
