#include "compiler/law.h"

namespace linnet::ops {

// Comba: the correction is read along p (a scaled k) from the state before it decays.
void comba(Law& law) {
  law.summary("Comba: a delta rule that reads before the decay");
  auto S = law.state();
  auto q = law.key("q", normalised), k = law.key("k", normalised), v = law.value("v");
  auto p = law.key("p", normalised);
  auto g = law.gate("g", per_token), beta = law.strength("beta");

  auto e = let("e", v - read(S, p));
  decay(S, g);
  write(S, k, beta * e);
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
