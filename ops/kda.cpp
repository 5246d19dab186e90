#include "compiler/law.h"

namespace linnet::ops {

// Kimi Delta Attention: the decay acts on every key channel by itself and does not commute with the
// correction.
void kda(Law& law) {
  law.summary("Kimi Delta Attention: the delta rule under a decay per key channel");
  auto S = law.state();
  auto q = law.key("q", normalised), k = law.key("k", normalised), v = law.value("v");
  auto g = law.gate("g", per_channel), beta = law.strength("beta");

  decay(S, g);
  auto e = let("e", v - read(S, k));
  write(S, k, beta * e);
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
