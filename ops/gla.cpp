#include "compiler/law.h"

namespace linnet::ops {

// Gated Linear Attention.
void gla(Law& law) {
  law.summary("Gated Linear Attention: a decay per key channel");
  auto S = law.state();
  auto q = law.key("q", normalised), k = law.key("k", normalised), v = law.value("v");
  auto g = law.gate("g", per_channel);

  decay(S, g);
  write(S, k, v);
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
