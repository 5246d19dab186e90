// What the CUDA back end emits, NVRTC compiles and the virtual GPU executes is what the reference says:
// forward, backward and decode, every op and gate mode. The virtual GPU's checks are on: a race, a read
// of memory nobody wrote or an access out of bounds fails the launch.
#include <doctest/doctest.h>

#include "tests/check/check.h"
#include "tests/check/cuda_run.h"
#include "tests/cuda/device_fixture.h"

using namespace linnet;
using chunk::Precision;

namespace {

std::string device_name() {
  const char* chosen = std::getenv("LINNET_TEST_DEVICE");
  return chosen ? chosen : "virtual:sm_80";
}

void hold(const check::Case& c) {
  CAPTURE(c.name());
  for (const check::Result& result : check::compare_cuda(c, device_name())) {
    CAPTURE(result.measure);
    CHECK_MESSAGE(result.passed, result.error, " over ", result.limit);
  }
}

check::Case kda(int64_t key, int64_t value, std::vector<int64_t> lengths, Precision precision) {
  check::Case c;
  c.law = ops::find("kda").define;
  c.problem = {.op = "kda", .key_dim = key, .value_dim = value, .precision = precision};
  c.options.chunk_size = 16;
  c.layout = {1, 2, lengths};
  return c;
}

}  // namespace

TEST_CASE("cuda: compiled graphs meet the reference, every op and gate mode") {
  const std::vector<Precision> formats = {Precision::bf16, Precision::f32, Precision::f16,
                                          Precision::tf32};
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{20, 36}, {16, 16}, {36, 20}};
  for (const ops::Entry& entry : ops::registry()) {
    // One case a gate mode; formats and sizes in turn, small for the executor's sake.
    std::map<std::pair<int, float>, int> taken;
    for (check::Case c : check::cases_of(entry, false)) {
      if (c.inputs.gates != check::Gates::random || c.options.chunk_size != 16) continue;
      if (taken[{static_cast<int>(c.problem.gate), c.problem.lower_bound}]++) continue;
      size_t turn = taken.size() + entry.name.size();
      c.problem.precision = formats[turn % formats.size()];
      c.problem.key_dim = sizes[turn % sizes.size()].first;
      c.problem.value_dim = sizes[turn % sizes.size()].second;
      c.layout = {2, 4, {19, 0, 5}};
      hold(c);
    }
    CHECK_FALSE(taken.empty());
  }
}
