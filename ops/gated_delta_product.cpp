#include "compiler/law.h"

namespace linnet::ops {

// Gated DeltaProduct with two Householder steps a token.
void gated_delta_product(Law& law) {
  law.summary("Gated DeltaProduct: two delta rule steps per token");
  auto S = law.state();
  auto q = law.key("q", normalised), g = law.gate("g", per_token);
  auto k1 = law.key("k1", normalised), v1 = law.value("v1"), beta1 = law.strength("beta1");
  auto k2 = law.key("k2", normalised), v2 = law.value("v2"), beta2 = law.strength("beta2");

  decay(S, g);
  auto e1 = let("e1", v1 - read(S, k1));
  write(S, k1, beta1 * e1);
  auto e2 = let("e2", v2 - read(S, k2));
  write(S, k2, beta2 * e2);
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
