#include "compiler/law.h"

namespace linnet::ops {

// RWKV-7, and any diagonal-plus-low-rank transition: S <- (diag(exp g) + b a^T) S + k v^T.
void rwkv7(Law& law) {
  law.summary("RWKV-7 and DPLR: a diagonal plus low-rank transition");
  auto S = law.state();
  auto q = law.key("q"), k = law.key("k"), v = law.value("v"), a = law.key("a"), b = law.key("b");
  auto g = law.gate("g", per_channel);

  auto r = let("r", read(S, a));
  decay(S, g);
  write(S, b, r);
  write(S, k, v);
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
