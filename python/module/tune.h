// The binding of the offline search.
#pragma once

#include <pybind11/pybind11.h>

namespace linnet::python {

void bind_tune(pybind11::module_& m);

}  // namespace linnet::python
