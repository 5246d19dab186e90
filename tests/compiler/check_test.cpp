// The covering sample of `linnet check`, one test an op, and that the check itself can fail.
#include <doctest/doctest.h>

#include "compiler/law.h"
#include "tests/check/check.h"

using namespace linnet;

namespace {

// KDA with the correction forgotten: a plausible slip that must not pass for kda.
void forgetful(Law& law) {
  auto S = law.state();
  auto q = law.key("q", normalised), k = law.key("k", normalised), v = law.value("v");
  auto g = law.gate("g", per_channel), beta = law.strength("beta");
  decay(S, g);
  auto e = v - read(S, k) * 0.999;
  write(S, k, beta * e);
  out("o", law.scale() * read(S, q));
}

void all_pass(const check::Case& c) {
  for (const check::Result& result : check::check(c)) {
    CAPTURE(c.name());
    CAPTURE(result.measure);
    CHECK_MESSAGE(result.passed, result.error, " over ", result.limit);
  }
}

}  // namespace

TEST_CASE("check: a law that is nearly kda is told from kda") {
  check::Case c = check::cases_of(ops::find("kda"), false)[4];
  all_pass(c);
  c.law = forgetful;
  bool failed = false;
  for (const check::Result& result : check::compare(c, Arithmetic::f64)) failed |= !result.passed;
  CHECK(failed);
}

TEST_CASE("check: an op without a reference is held against its own law, gradients included") {
  ops::Entry entry{"forgetful", forgetful};
  for (check::Case& c : check::cases_of(entry, false)) {
    c.problem.key_dim = std::min<int64_t>(c.problem.key_dim, 60);
    if (c.layout.tokens() < 200) all_pass(c);
  }
}

TEST_CASE("gates: resets of -1000 among mild gates cost f32 little") {
  for (const char* op : {"kda", "gla", "gated_delta_rule", "rwkv6", "rwkv7"}) {
    check::Case c;
    c.law = ops::find(op).define;
    c.problem = {.op = op, .key_dim = 60, .value_dim = 16};
    c.layout = {1, 2, {130}};
    c.inputs.gates = check::Gates::mixed;
    CAPTURE(op);
    for (const check::Result& result : check::compare(c, Arithmetic::emulated)) {
      CAPTURE(result.measure);
      CHECK(result.error < 1e-4);
    }
  }
}
