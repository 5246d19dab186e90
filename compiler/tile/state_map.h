// What a scan makes of its state, S -> A S + B, as far as one can tell from the graph: what
// segments of a sequence need (MATH.md e).
#pragma once

#include "compiler/tile/program.h"

namespace linnet {

struct StateMap {
  bool is_diagonal;                      // A only scales: nothing reads the state on the way
  std::vector<mlir::Operation*> update;  // the loop's ops the next state needs, in order
};

// Throws UserError for a scan whose segments cannot be put together: one that carries more than one
// state, or makes something of it that is no such map with the same A for every value channel and
// no B where the inputs' value channels are zero.
StateMap state_map(const TileProgram& program, const Loop& loop);

}  // namespace linnet
