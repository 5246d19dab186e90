// The words Python uses for the public API's enumerations.
#pragma once

#include <string>

#include "linnet/problem.h"

namespace linnet::python {

DType dtype_of(const std::string& argument, const std::string& name);  // "bfloat16"
const char* torch_name(DType type);
Gate gate_of(const std::string& name);            // "pre", "softplus", "bounded"
Beta beta_of(const std::string& name);            // "plain", "sigmoid", "twice_sigmoid"
Direction direction_of(const std::string& name);  // "forward", "backward", "decode"
const char* name_of(Direction direction);
std::string describe(const Tensor& tensor);  // "bfloat16 [1, 4096, 8, 128]"

}  // namespace linnet::python
