// What the CUDA back end emits, NVRTC compiles and the virtual GPU executes is what the reference
// says: forward, backward and decode, every op and gate mode. The virtual GPU's checks are on: a
// race, a read of memory nobody wrote or an access out of bounds fails the launch.
#include <doctest/doctest.h>

#include <cmath>

#include "compiler/cuda/source.h"
#include "tests/check/check.h"
#include "tests/conformance/suite.h"
#include "tests/cuda/device_fixture.h"

using namespace linnet;
using chunk::Precision;

namespace {

// LINNET_TEST_DEVICE, or a virtual one.
const Device& gpu() {
  const char* chosen = std::getenv("LINNET_TEST_DEVICE");
  static const Device device = Device::open(chosen ? chosen : "virtual:sm_80");
  return device;
}

void hold(const check::Case& c) {
  CAPTURE(c.name());
  for (const check::Result& result : check::compare_on(gpu(), c)) {
    CAPTURE(result.measure);
    CHECK_MESSAGE(result.passed, result.error, " over ", result.limit);
  }
}

check::Case kda(int64_t key, int64_t value, std::vector<int64_t> lengths, Precision precision) {
  check::Case c;
  c.law = ops::find("kda").define;
  c.problem = {.op = "kda", .key_dim = key, .value_dim = value};
  choose_precision(c.problem, precision);
  c.options.chunk_size = 16;
  c.layout = {1, 2, lengths};
  return c;
}

}  // namespace

TEST_CASE("cuda: compiled graphs meet the reference, every op and gate mode") {
  LINNET_NEEDS_NVRTC();
  const std::vector<Precision> formats = {Precision::bf16, Precision::f32, Precision::f16,
                                          Precision::tf32};
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{20, 36}, {16, 16}, {36, 20}};
  // One case for a gate mode, small for the executor's sake, formats and sizes in turn. Compiling
  // takes longer than running: of an op with five modes two are taken, others for the next op, and
  // all of them with LINNET_TEST_ALL=1.
  bool all = std::getenv("LINNET_TEST_ALL");
  size_t op = 0;
  for (const ops::Entry& entry : ops::registry()) {
    std::map<std::pair<int, float>, int> taken;
    ++op;
    for (check::Case c : check::cases_of(entry, false)) {
      if (c.inputs.gates != check::Gates::random || c.options.chunk_size != 16) continue;
      if (taken[{static_cast<int>(c.problem.gate), c.problem.lower_bound}]++) continue;
      size_t turn = taken.size() + op;
      bool only = check::cases_of(entry, false).size() < 20;  // an op without modes
      if (!all && !only && (taken.size() + op) % 5 > 1) continue;
      choose_precision(c.problem, formats[turn % formats.size()]);
      c.problem.key_dim = sizes[turn % sizes.size()].first;
      c.problem.value_dim = sizes[turn % sizes.size()].second;
      c.layout = {1, 2, {19, 0, 5}};
      // Gradients with one number a head are sums that nearly cancel: a mean square needs several.
      if (precision_of(c.problem) != Precision::f32) c.layout = {4, 8, {18, 0, 3}};
      hold(c);
    }
    CHECK_FALSE(taken.empty());
  }
}

TEST_CASE("cuda: kda, sizes and lengths that fit no tile, several blocks of value channels") {
  LINNET_NEEDS_NVRTC();
  hold(kda(60, 36, {1}, Precision::f32));
  hold(kda(96, 20, {15}, Precision::bf16));
  hold(kda(20, 96, {63, 2}, Precision::f16));
  hold(kda(64, 64, {130}, Precision::bf16));
  hold(kda(256, 36, {17}, Precision::bf16));
}

TEST_CASE("cuda: kda, 128 channels, the size models have") {
  LINNET_NEEDS_NVRTC();
  for (Precision precision : {Precision::bf16, Precision::f32}) {
    check::Case c = kda(128, 128, {18}, precision);
    c.layout.value_heads = 1;
    hold(c);
  }
}

TEST_CASE("cuda: kda, chunks of 4, 32 and 64 tokens") {
  LINNET_NEEDS_NVRTC();
  for (int64_t chunk : {4, 32, 64}) {
    check::Case c = kda(20, 16, {70, 3}, chunk == 64 ? Precision::bf16 : Precision::f32);
    c.options.chunk_size = chunk;
    if (chunk == 32) c.problem.lower_bound = -5;
    hold(c);
  }
}

TEST_CASE("cuda: decode, one token a chunk in one kernel") {
  LINNET_NEEDS_NVRTC();
  for (const char* op : {"kda", "gated_delta_rule", "rwkv6", "rwkv7", "gated_delta_product"})
    for (Precision precision : {Precision::f32, Precision::bf16}) {
      check::Case c = kda(20, 36, {3, 0, 1}, precision);
      c.law = ops::find(op).define;
      c.problem.op = op;
      c.options.chunk_size = 1;
      if (precision == Precision::bf16) c.layout = {4, 4, {9, 0, 5}};
      hold(c);
    }
  auto context = make_context();
  auto module = derive(*context, ops::find("kda").define, {.op = "kda"}, {.chunk_size = 1});
  auto graph = graph_of(*module);
  CHECK(cuda::emit(TileProgram(graph, cuda::default_schedule(graph))).kernels.size() == 1);
}

TEST_CASE("cuda: gates at -1000, at 0 and at -5 give no NaN and no infinity, forward or backward") {
  LINNET_NEEDS_NVRTC();
  for (const char* op : {"kda", "gated_delta_rule", "rwkv6"})
    for (check::Gates gates :
         {check::Gates::lowest, check::Gates::zero, check::Gates::at_bound, check::Gates::mixed}) {
      check::Case c = kda(20, 16, {18, 0, 3}, Precision::f32);
      c.law = ops::find(op).define;
      c.problem.op = op;
      c.inputs.gates = gates;
      for (const check::Result& result : check::finite_on(gpu(), c)) {
        CAPTURE(c.name());
        CAPTURE(result.measure);
        CHECK(result.passed);
      }
    }
}

TEST_CASE(
    "cuda: a sequence gives the same bits alone and among others; no state is a state of zeros") {
  LINNET_NEEDS_NVRTC();
  for (const char* op : {"kda", "gated_delta_rule"}) {
    CAPTURE(op);
    conformance::Subject subject({.op = op, .key_dim = 20, .value_dim = 36, .dtype = DType::bf16});
    Layout packed{1, 2, {15, 33, 0, 7}}, alone{1, 2, {33}};
    Op forward = subject.build(gpu(), Direction::forward);
    Tensors inputs = subject.arguments(Direction::forward, packed),
            own = subject.select(inputs, packed, {1});
    Tensors all = check::call(forward, packed, inputs), single = check::call(forward, alone, own);
    conformance::check_same(single, subject.select(all, packed, {1}));
    // An empty sequence hands its state on.
    CHECK(subject.select(all, packed, {2})["final_state"] ==
          subject.select(inputs, packed, {2})["initial_state"]);
    Tensors zeros = own;
    for (double& x : zeros["initial_state"]) x = 0;
    own.erase("initial_state");
    conformance::check_same(check::call(forward, alone, own), check::call(forward, alone, zeros));
    CHECK(check::call(forward, alone, own, {.batch = true})["o"] ==
          check::call(forward, alone, own, {.left_out = {"final_state"}})["o"]);
  }
}

TEST_CASE("cuda: changing a token leaves the outputs before it the same to the bit") {
  LINNET_NEEDS_NVRTC();
  for (float bound : {0.f, -5.f}) {  // pairwise and anchored exponentials
    check::Case c = kda(20, 16, {40}, Precision::f32);
    c.problem.lower_bound = bound;
    for (const check::Result& result : check::causal_on(gpu(), c, 20)) CHECK(result.passed);
  }
}
