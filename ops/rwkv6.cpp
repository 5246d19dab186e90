#include "compiler/law.h"

namespace linnet::ops {

// RWKV-6: the output reads the state before the token and adds the token itself with a bonus u.
void rwkv6(Law& law) {
  law.summary("RWKV-6: a decay per channel, output before the update, bonus u");
  auto S = law.state();
  auto q = law.key("q"), k = law.key("k"), v = law.value("v");
  auto g = law.gate("g", per_channel), u = law.head_key("u");

  out("o", law.scale() * (read(S, q) + dot(q * u, k) * v));
  decay(S, g);
  write(S, k, v);
}

}  // namespace linnet::ops
