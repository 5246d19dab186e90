#include "compiler/law.h"

namespace linnet::ops {

// Also Mamba-2: q = C, k = B, v = dt x, g = dt A, scale = 1.
void simple_gla(Law& law) {
  law.summary("GLA with one decay per token and head (the form of Mamba-2)");
  auto S = law.state();
  auto q = law.key("q", normalised), k = law.key("k", normalised), v = law.value("v");
  auto g = law.gate("g", per_token);

  decay(S, g);
  write(S, k, v);
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
