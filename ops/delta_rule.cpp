#include "compiler/law.h"

namespace linnet::ops {

// DeltaNet: what the state already says about k is corrected towards v.
void delta_rule(Law& law) {
  law.summary("DeltaNet: the delta rule");
  auto S = law.state();
  auto q = law.key("q", normalised), k = law.key("k", normalised), v = law.value("v");
  auto beta = law.strength("beta");

  auto e = let("e", v - read(S, k));
  write(S, k, beta * e);
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
