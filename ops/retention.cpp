#include "compiler/law.h"

namespace linnet::ops {

// RetNet: the logarithm of each head's decay is a constant, e.g. log(1 - 2^(-5-h)).
void retention(Law& law) {
  law.summary("RetNet: a constant decay per head");
  auto S = law.state();
  auto q = law.key("q", normalised), k = law.key("k", normalised), v = law.value("v");
  auto g = law.gate("g", per_head);

  decay(S, g);
  write(S, k, v);
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
