#include "compiler/law.h"

namespace linnet::ops {

// Katharopoulos et al. 2020. Feature maps and the normaliser stay outside.
void linear_attention(Law& law) {
  law.summary("linear attention: S + k v^T");
  auto S = law.state();
  auto q = law.key("q", normalised), k = law.key("k", normalised), v = law.value("v");

  write(S, k, v);
  out("o", law.scale() * read(S, q));
}

}  // namespace linnet::ops
