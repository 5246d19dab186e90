// Runs an op of any device on plain arrays, as the interpreter runs graphs.
#pragma once

#include "compiler/interpreter/interpreter.h"
#include "linnet/device.h"

namespace linnet::check {

// Inputs as for interpret(); every output the op has comes back, rounded as the op stores it.
// States between chunks come back as "states" if `states_every` is not 0.
Tensors call(const Op& op, const Layout& layout, const Tensors& inputs, int64_t states_every = 0);

}  // namespace linnet::check
