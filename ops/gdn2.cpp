#include "compiler/law.h"

namespace linnet::ops {

// GDN-2: beta of the delta rule becomes an erase gate b over key and a write gate w over value
// channels.
void gdn2(Law& law) {
  law.summary("GDN-2: the delta rule with vector erase and write gates");
  auto S = law.state();
  auto q = law.key("q", normalised), k = law.key("k", normalised), v = law.value("v");
  auto g = law.gate("g", per_channel);
  auto b = law.key("b", per_value_head), w = law.value("w");

  decay(S, g);
  write(S, k, w * v - read(S, b * k));
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
