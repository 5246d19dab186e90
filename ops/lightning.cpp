#include "compiler/law.h"

namespace linnet::ops {

// Lightning Attention: the law of retention; the slopes its models use come with the call.
void lightning(Law& law) {
  law.summary("Lightning Attention: a constant decay per head");
  auto S = law.state();
  auto q = law.key("q", normalised), k = law.key("k", normalised), v = law.value("v");
  auto g = law.gate("g", per_head);

  decay(S, g);
  write(S, k, v);
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
