// docs/adding-a-recurrence.md: the file it adds compiles (the build takes it from the page) and is
// what it says.
#include <doctest/doctest.h>

#include "tests/check/check.h"

namespace linnet::ops {
void gated_oja(Law& law);  // from the page
}

using namespace linnet;

TEST_CASE(
    "walk-through: the recurrence of docs/adding-a-recurrence.md derives and checks against its "
    "law") {
  int checked = 0;
  for (check::Case c : check::cases_of({"gated_oja", ops::gated_oja}, false)) {
    if (c.layout.tokens() > 200) continue;
    c.problem.key_dim = std::min<int64_t>(c.problem.key_dim, 60);
    for (const check::Result& result : check::check(c)) {
      CAPTURE(c.name());
      CAPTURE(result.measure);
      CHECK_MESSAGE(result.passed, result.error, " over ", result.limit);
    }
    ++checked;
  }
  CHECK(checked > 5);
}
