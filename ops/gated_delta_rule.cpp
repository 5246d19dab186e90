#include "compiler/law.h"

namespace linnet::ops {

// Gated DeltaNet: the delta rule on a state that decays first.
void gated_delta_rule(Law& law) {
  law.summary("Gated DeltaNet: the delta rule under one decay per token");
  auto S = law.state();
  auto q = law.key("q", normalised), k = law.key("k", normalised), v = law.value("v");
  auto g = law.gate("g", per_token), beta = law.strength("beta");

  decay(S, g);
  auto e = let("e", v - read(S, k));
  write(S, k, beta * e);
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
