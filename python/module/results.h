// Memory for large results on the CPU. torch asks the system for it anew each time, which clears
// every page at its first touch: a fifth of a long prefill's time. Here what a tensor gives back is
// kept for the next one.
#pragma once

#include <pybind11/pybind11.h>

#include "linnet/device.h"

namespace linnet::python {

// A tensor of these sizes as a DLPack capsule, for torch.from_dlpack. Its numbers are not cleared.
pybind11::capsule make_result(const Device& device, const pybind11::tuple& sizes, DType dtype);

// Bytes that are kept at the moment.
size_t kept_bytes();

}  // namespace linnet::python
