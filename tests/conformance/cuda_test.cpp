// What the CUDA back end emits, NVRTC compiles and the virtual GPU executes is what the reference
// says: forward, backward and decode, every op and gate mode. The virtual GPU's checks are on: a
// race, a read of memory nobody wrote or an access out of bounds fails the launch.
#include <doctest/doctest.h>

#include <cmath>

#include "compiler/cuda/source.h"
#include "llvm/Support/Regex.h"
#include "tests/check/check.h"
#include "tests/conformance/suite.h"
#include "tests/cuda/device_fixture.h"
#include "tests/cuda/virtual_modes.h"

using namespace linnet;
using chunk::Precision;
using testing::everything;
using testing::gpu;

namespace {

void hold(const std::vector<check::Result>& results) {
  for (const check::Result& result : results) {
    CAPTURE(result.measure);
    CHECK_MESSAGE(result.passed, result.error, " over ", result.limit);
  }
}

// LINNET_TEST_ONLY='kda: gate bounded.*f32' picks cases by a regular expression.
bool is_wanted(const check::Case& c) {
  const char* only = std::getenv("LINNET_TEST_ONLY");
  return !only || llvm::Regex(only).match(c.name());
}

// Forward and backward in every mode, decode as well where everything is run.
void hold(const check::Case& c) {
  if (!is_wanted(c)) return;
  CAPTURE(c.name());
  in_modes(gpu().name(), everything() ? kPairedModes : kSampledModes, [&](const std::string& mode) {
    CAPTURE(mode);
    hold(check::compare_on(gpu(), c));
    if (everything() && c.options.chunk_size > 1) hold(check::compare_decode_on(gpu(), c));
  });
}

// The suite's own tests, once as the device is; where everything is run in several modes.
void conforms(void (*test)(const Device&)) {
  if (!everything()) return test(gpu());
  in_modes(gpu().name(), kSampledModes, [&](const std::string& mode) {
    CAPTURE(mode);
    test(gpu());
  });
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
  const std::vector<Precision> formats = {Precision::bf16, Precision::f32, Precision::f16,
                                          Precision::tf32};
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{20, 36}, {16, 16}, {36, 20}};
  // A case for a gate mode and format, small for the executor's sake, beta, l2 norm and sizes in
  // turn. Compiling takes longer than running: without LINNET_TEST_ALL=1 one format of a mode is
  // taken, in turn, and of an op with five modes two, others for the next op.
  size_t op = 0;
  for (const ops::Entry& entry : ops::registry()) {
    ++op;
    SUBCASE(entry.name.c_str()) {  // -sc=kda runs one op
      std::map<std::pair<int, float>, int> taken;
      for (check::Case c : check::cases_of(entry, false)) {
        if (c.inputs.gates != check::Gates::random || c.options.chunk_size != 16) continue;
        if (taken[{static_cast<int>(c.problem.gate), c.problem.lower_bound}]++) continue;
        size_t turn = taken.size() + op;
        bool only = check::cases_of(entry, false).size() < 20;  // an op without modes
        if (!everything() && !only && turn % 5 > 1) continue;
        for (size_t format = 0; format < (everything() ? formats.size() : 1); ++format, ++turn) {
          choose_precision(c.problem, formats[turn % formats.size()]);
          c.problem.key_dim = sizes[turn % sizes.size()].first;
          c.problem.value_dim = sizes[turn % sizes.size()].second;
          c.layout = {1, 2, {19, 0, 5}};
          // Gradients with one number a head are sums that nearly cancel: a mean square needs
          // several.
          if (precision_of(c.problem) != Precision::f32) c.layout = {4, 8, {18, 0, 3}};
          hold(c);
        }
      }
      CHECK_FALSE(taken.empty());
    }
  }
}

TEST_CASE("cuda: modes of the virtual GPU are taken: sums and approximations change bits") {
  if (!cuda::Device::open(gpu().name())->driver().virtual_set) return;
  conformance::Subject subject({.op = "kda", .key_dim = 20, .value_dim = 36, .dtype = DType::bf16});
  Layout layout{1, 2, {33}};
  Op op = subject.build(gpu(), Direction::forward);
  Tensors inputs = subject.arguments(Direction::forward, layout);
  std::map<std::string, std::vector<double>> states;
  const std::vector<VirtualMode> modes = {
      {}, {"1", "hardware", "rounded"}, {"0", "exact", "rounded"}, {"0", "hardware", "perturbed"}};
  in_modes(gpu().name(), modes, [&](const std::string& mode) {
    states[mode] = check::call(op, layout, inputs).at("final_state");
  });
  const auto& plain = states.at(modes[0].name());
  CHECK(states.at(modes[1].name()) == plain);
  CHECK(states.at(modes[2].name()) != plain);
  CHECK(states.at(modes[3].name()) != plain);
}

TEST_CASE("cuda: kda, sizes and lengths that fit no tile, several blocks of value channels") {
  hold(kda(60, 36, {1}, Precision::f32));
  hold(kda(96, 20, {15}, Precision::bf16));
  hold(kda(20, 96, {63, 2}, Precision::f16));
  hold(kda(64, 64, {130}, Precision::bf16));
  hold(kda(256, 36, {17}, Precision::bf16));
}

// Backward in f32 at 256 channels: more tiles than the 99 KB of shared memory that every GPU has.
TEST_CASE("cuda: tiles that do not fit in shared memory make room for each other") {
  std::vector<const char*> names = {"delta_rule"};
  if (std::getenv("LINNET_TEST_ALL")) names = {"delta_rule", "kda", "gdn2", "rwkv7"};
  for (const char* op : names) {
    check::Case c = kda(256, 256, {5}, Precision::f32);
    c.law = ops::find(op).define;
    c.problem.op = op;
    c.layout.value_heads = 1;
    hold(c);
  }
}

TEST_CASE("cuda: kda, 128 channels, the size models have") {
  for (Precision precision : {Precision::bf16, Precision::f32}) {
    check::Case c = kda(128, 128, {18}, precision);
    c.layout.value_heads = 1;
    hold(c);
  }
}

TEST_CASE("cuda: kda, chunks of 4, 32 and 64 tokens") {
  for (int64_t chunk : {4, 32, 64}) {
    check::Case c = kda(20, 16, {70, 3}, chunk == 64 ? Precision::bf16 : Precision::f32);
    c.options.chunk_size = chunk;
    if (chunk == 32) c.problem.lower_bound = -5;
    hold(c);
  }
}

TEST_CASE("cuda: decode, one token a chunk in one kernel") {
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
  for (const char* op : {"kda", "gated_delta_rule", "rwkv6"})
    for (check::Gates gates :
         {check::Gates::lowest, check::Gates::zero, check::Gates::at_bound, check::Gates::mixed}) {
      check::Case c = kda(20, 16, {18, 0, 3}, Precision::f32);
      c.law = ops::find(op).define;
      c.problem.op = op;
      c.inputs.gates = gates;
      CAPTURE(c.name());
      in_modes(gpu().name(), everything() ? kSampledModes : std::vector<VirtualMode>{{}},
               [&](const std::string& mode) {
                 CAPTURE(mode);
                 hold(check::finite_on(gpu(), c));
               });
    }
}

// The conformance suite: a sample of its problems, all of them with LINNET_TEST_ALL=1.
#define LINNET_CONFORMS(name, function) \
  TEST_CASE("cuda: " name) { conforms(conformance::function); }
LINNET_CONFORMS("states lie as [K, V] or [V, K] with the same bits", state_layouts_agree)
LINNET_CONFORMS("bf16 states are what f32 states round to", narrow_states_are_rounded_once)
LINNET_CONFORMS("bf16 gates give what the same numbers in f32 give", narrow_gates_are_read_exactly)
LINNET_CONFORMS("states and gradients that are not given or not asked for change nothing else",
                optional_states_may_be_absent)
LINNET_CONFORMS("states every 16, 32 or 64 tokens are the final states of prefixes",
                states_are_those_of_prefixes)
LINNET_CONFORMS("gaps between rows change nothing and are not written",
                gaps_between_rows_do_not_matter)
LINNET_CONFORMS("q, k and v may be views of one packed tensor", packed_qkv_is_read_in_place)
LINNET_CONFORMS("a batch gives the bits of the same sequences packed, i32 and i64 offsets alike",
                batch_equals_packing)
LINNET_CONFORMS("decode updates rows of a pool in place and leaves the others alone",
                decode_updates_its_pool_in_place)
LINNET_CONFORMS("the workspace may be the caller's, unaligned, and no larger than said",
                workspace_may_be_the_callers)
LINNET_CONFORMS("a sequence gives the same bits alone and in any packing", packing_does_not_matter)
LINNET_CONFORMS("a run gives the same bits again", runs_repeat)
LINNET_CONFORMS("prefill, then decode, equals decode token by token", decode_continues_prefill)
LINNET_CONFORMS("several threads call one op at a time, and each gets its own result",
                threads_share_an_op)
#undef LINNET_CONFORMS

TEST_CASE("cuda: what a GPU cannot read is refused by name") {
  Op op = gpu().build({.op = "linear_attention", .key_dim = 16, .value_dim = 16},
                      {.direction = Direction::decode});
  alignas(16) static float memory[4096];  // never read
  auto refusal = [&](const char* name, Tensor wrong) {
    std::vector<Argument> arguments;
    for (const char* wide : {"q", "k", "v", "o"})
      arguments.emplace_back(wide, Tensor::dense(memory, DType::f32, {1, 2, 2, 16}));
    arguments.emplace_back("cu_seqlens", Tensor::dense(memory, DType::i32, {3}));
    arguments.emplace_back("state", Tensor::dense(memory, DType::f32, {4, 2, 16, 16}));
    arguments.emplace_back("slots", Tensor::dense(memory, DType::i32, {2}));
    for (Argument& argument : arguments)
      if (argument.name == name) argument = Argument(name, wrong);
    try {
      op.workspace_bytes(arguments);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  Tensor apart = Tensor::dense(memory, DType::f32, {1, 2, 2, 16});
  apart.strides = {68, 34, 17, 1};
  CHECK(refusal("v", apart) ==
        "v: expected strides of a multiple of 4 numbers on this device, got stride 34 on axis 1");
  Tensor skewed = Tensor::dense(memory + 1, DType::f32, {1, 2, 2, 16});
  CHECK(refusal("q", skewed)
            .starts_with("q: expected an address that is a multiple of 16 on this device, got"));
  Tensor wide = Tensor::dense(memory, DType::f32, {4, 2, 16, 16});
  wide.strides = {640, 320, 20, 1};
  CHECK(refusal("state", wide) ==
        "state: expected the matrix of a state without gaps on this device, got stride 20 on axis "
        "2");
  Tensor sparse = Tensor::dense(memory, DType::i32, {2});
  sparse.strides = {2};
  CHECK(refusal("slots", sparse) ==
        "slots: expected integers without gaps on this device, got stride 2");
  CHECK(refusal("slots", Tensor::dense(memory, DType::i64, {3}))
            .starts_with("slots: expected one for each of 2 sequences"));
}

TEST_CASE("cuda: 66000 sequences, more blocks than a grid has along y or z") {
  constexpr int64_t kCount = 66000, kSize = 4;
  conformance::Subject subject(
      {.op = "linear_attention", .key_dim = kSize, .value_dim = kSize, .dtype = DType::f32});
  Op op = gpu().build(subject.problem, {.chunk = 1});
  CHECK(op.kernels()[0].loops == 1);  // a block for every sequence
  Layout layout{1, 1, std::vector<int64_t>(kCount, 1)};
  Tensors inputs = subject.arguments(Direction::forward, layout);
  Tensors results = check::call(op, layout, inputs);
  const auto &q = inputs["q"], &k = inputs["k"], &v = inputs["v"], &S = inputs["initial_state"];
  double worst = 0;
  for (int64_t s = 0; s < kCount; ++s)
    for (int64_t j = 0; j < kSize; ++j) {
      double o = 0;
      for (int64_t d = s * kSize; d < (s + 1) * kSize; ++d) {
        double next = S[d * kSize + j] + k[d] * v[s * kSize + j];
        worst = std::max(worst, std::abs(results["final_state"][d * kSize + j] - next));
        o += q[d] * next;
      }
      worst = std::max(worst, std::abs(results["o"][s * kSize + j] - inputs["scale"][0] * o));
    }
  CHECK(worst < 1e-5);
}

TEST_CASE("cuda: the order of warps changes no bit, forward or backward") {
  const auto set = cuda::Device::open(gpu().name())->driver().virtual_set;
  if (!set) return;
  for (const char* op : {"kda", "gated_delta_rule"})
    for (Direction direction : {Direction::forward, Direction::backward}) {
      CAPTURE(op);
      conformance::Subject subject(
          {.op = op, .key_dim = 20, .value_dim = 36, .dtype = DType::bf16});
      Layout layout{1, 2, {15, 33, 0, 7}};
      Op built = subject.build(gpu(), direction);
      Tensors inputs = subject.arguments(direction, layout);
      Tensors first = check::call(built, layout, inputs);
      for (const char* seed : {"1", "2", "77"}) {
        set("seed", seed);
        conformance::check_same(check::call(built, layout, inputs), first);
      }
      set("seed", "0");
    }
}

TEST_CASE("cuda: changing a token leaves the outputs before it the same to the bit") {
  for (float bound : {0.f, -5.f}) {  // pairwise and anchored exponentials
    check::Case c = kda(20, 16, {40}, Precision::f32);
    c.problem.lower_bound = bound;
    for (const check::Result& result : check::causal_on(gpu(), c, 20)) CHECK(result.passed);
  }
}
