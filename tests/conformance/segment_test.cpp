// Sequences cut into segments on a GPU: what the reference says, and the same bits alone, in any
// packing, whatever comes behind. The virtual GPU's checks are on.
#include <doctest/doctest.h>

#include <cmath>

#include "compiler/cuda/source.h"
#include "runtime/cuda/nvrtc.h"
#include "templates/embedded.h"
#include "tests/conformance/suite.h"
#include "tests/cuda/device_fixture.h"
#include "tests/cuda/virtual_modes.h"

using namespace linnet;
using chunk::Precision;
using testing::everything;
using testing::gpu;

namespace {

const Schedule kCut{.chunk = 16, .segment = 32};

check::Case cut(const char* op, int64_t key, int64_t value, std::vector<int64_t> lengths,
                Precision precision) {
  check::Case c;
  c.law = ops::find(op).define;
  c.problem = {.op = op, .key_dim = key, .value_dim = value};
  choose_precision(c.problem, precision);
  c.options.chunk_size = 16;
  c.schedule = kCut;
  c.layout = {1, 2, lengths};
  return c;
}

void hold(const check::Case& c) {
  CAPTURE(c.name());
  in_modes(gpu().name(), everything() ? kPairedModes : kSampledModes, [&](const std::string& mode) {
    CAPTURE(mode);
    for (const check::Result& result : check::compare_forward_on(gpu(), c)) {
      CAPTURE(result.measure);
      CHECK_MESSAGE(result.passed, result.error, " over ", result.limit);
    }
  });
}

Op build(const Problem& problem, const Schedule& schedule = kCut) {
  return gpu().build(problem, {.schedule = schedule});
}

}  // namespace

TEST_CASE("cuda: segments meet the reference, lengths around their borders, one sequence empty") {
  hold(cut("kda", 20, 36, {97, 0, 31, 64, 33}, Precision::f32));
  hold(cut("gla", 36, 20, {65, 32, 0, 96}, Precision::f32));
  hold(cut("gated_delta_product", 16, 20, {70, 0, 32}, Precision::bf16));
  hold(cut("rwkv7", 20, 16, {33, 95}, Precision::f16));
  if (!everything()) return;
  for (const ops::Entry& entry : ops::registry())
    for (Precision precision : {Precision::f32, Precision::bf16, Precision::f16, Precision::tf32})
      hold(cut(entry.name.c_str(), 36, 20, {97, 0, 31, 64, 33}, precision));
}

TEST_CASE("cuda: gradients by segments meet the reference, and have the same bits in any packing") {
  std::vector<const char*> names = {"kda", "simple_gla"};
  if (everything()) names = {"kda", "simple_gla", "gdn2", "rwkv6", "rwkv7", "comba"};
  for (const char* op : names) {
    check::Case c = cut(op, 20, 36, {70, 0, 31, 64}, Precision::f32);
    CAPTURE(c.name());
    for (const check::Result& result : check::compare_on(gpu(), c)) {
      CAPTURE(result.measure);
      CHECK_MESSAGE(result.passed, result.error, " over ", result.limit);
    }
    conformance::Subject subject(c.problem);
    Op built = gpu().build(c.problem, {.direction = Direction::backward, .schedule = kCut});
    Tensors arguments = subject.arguments(Direction::backward, c.layout);
    Tensors all = check::call(built, c.layout, arguments);
    for (const std::vector<size_t>& some : {std::vector<size_t>{0}, {3, 0}}) {
      Layout own = conformance::select(c.layout, some);
      Tensors results = check::call(built, own, subject.select(arguments, c.layout, some));
      std::vector<size_t> every(some.size());
      for (size_t i = 0; i < every.size(); ++i) every[i] = i;
      conformance::check_same(subject.select(results, own, every),
                              subject.select(all, c.layout, some));
    }
  }
}

TEST_CASE("cuda: segments at the size models have, and wider") {
  check::Case c = cut("kda", 128, 128, {70}, Precision::bf16);
  c.layout.value_heads = 1;
  hold(c);
  if (!everything()) return;
  c.problem.dtype = DType::f32;
  hold(c);
  for (Precision precision : {Precision::bf16, Precision::f32})
    hold(cut("kda", 256, 256, {65}, precision));
}

TEST_CASE("cuda: an output in a kernel of its own, and a hoisted inverse, by segments") {
  check::Case c = cut("kda", 20, 36, {70, 31}, Precision::f32);
  c.schedule->stages = c.options.stages = {.separate_output = true, .distribute_inverse = true};
  hold(c);
}

TEST_CASE("cuda: by segments a sequence gives the same bits alone and in any packing") {
  for (const char* op : {"kda", "simple_gla"}) {
    conformance::Subject subject({.op = op, .key_dim = 24, .value_dim = 32, .dtype = DType::bf16});
    Layout layout{1, 2, {15, 130, 0, 64}};
    Op built = build(subject.problem);
    Tensors arguments = subject.arguments(Direction::forward, layout);
    Tensors all = check::call(built, layout, arguments);
    for (const std::vector<size_t>& some :
         {std::vector<size_t>{0}, {1}, {3}, {3, 1, 0, 2}, {2, 2, 1, 1, 0, 3}}) {
      Layout own = conformance::select(layout, some);
      Tensors results = check::call(built, own, subject.select(arguments, layout, some));
      std::vector<size_t> every(some.size());
      for (size_t i = 0; i < every.size(); ++i) every[i] = i;
      conformance::check_same(subject.select(results, own, every),
                              subject.select(all, layout, some));
    }
    // One that is no longer than a segment is not cut at all.
    Layout one = conformance::select(layout, {0});
    Tensors alone = subject.select(arguments, layout, {0});
    conformance::check_same(check::call(built, one, alone),
                            check::call(build(subject.problem, {}), one, alone));
  }
}

TEST_CASE("cuda: by segments a batch gives the bits of the same sequences packed") {
  conformance::Subject subject({.op = "kda", .key_dim = 24, .value_dim = 32});
  Layout layout{1, 2, {70, 70, 70}};
  Op op = build(subject.problem);
  Tensors arguments = subject.arguments(Direction::forward, layout);
  Tensors packed = check::call(op, layout, arguments);
  for (const check::CallOptions& options :
       {check::CallOptions{.batch = true}, {.batch = true, .gap = 3}, {.int32_offsets = true}})
    conformance::check_same(check::call(op, layout, arguments, options), packed);
}

TEST_CASE("cuda: by segments states between chunks are the final states of prefixes") {
  for (bool v_first : {false, true}) {
    conformance::Subject subject(
        {.op = "gated_delta_rule", .key_dim = 24, .value_dim = 20, .state_v_first = v_first});
    Op op = build(subject.problem);
    Layout layout{1, 2, {100, 0, 64}};
    Tensors arguments = subject.arguments(Direction::forward, layout);
    auto states = check::call(op, layout, arguments, {.states_every = 16, .gap = 3})["states"];
    std::vector<double> expected;
    for (size_t s = 0; s < layout.lengths.size(); ++s)
      for (int64_t first = 0; first < layout.lengths[s]; first += 16) {
        Layout own = conformance::select(layout, {s}), prefix{1, 2, {first}};
        Tensors some = subject.tokens(subject.select(arguments, layout, {s}), own, 0, first);
        auto state = check::call(op, prefix, some)["final_state"];
        expected.insert(expected.end(), state.begin(), state.end());
      }
    conformance::check_same({{"states", states}}, {{"states", expected}});
  }
}

TEST_CASE("cuda: by segments a state's format and order, and what is not given, change no bit") {
  Problem problem{.op = "kda", .key_dim = 24, .value_dim = 32}, other = problem;
  conformance::Subject subject(problem);
  Layout layout{1, 2, {40, 0, 70}};
  Tensors arguments = subject.arguments(Direction::forward, layout);
  Tensors first = check::call(build(problem), layout, arguments);
  other.state_v_first = true;
  conformance::check_same(check::call(build(other), layout, arguments), first);

  other.state_dtype = DType::bf16;
  Tensors narrow = arguments;
  narrow["initial_state"] = conformance::rounded_to_bf16(narrow["initial_state"]);
  Tensors expected = check::call(build(problem), layout, narrow);
  expected["final_state"] = conformance::rounded_to_bf16(expected["final_state"]);
  conformance::check_same(check::call(build(other), layout, narrow), expected);

  Tensors zero = arguments;
  zero["initial_state"].assign(zero["initial_state"].size(), 0);
  expected = check::call(build(problem), layout, zero);
  zero.erase("initial_state");
  conformance::check_same(check::call(build(problem), layout, zero), expected);
  expected.erase("final_state");
  conformance::check_same(check::call(build(problem), layout, zero, {.left_out = {"final_state"}}),
                          expected);
}

TEST_CASE("cuda: by segments the final state may lie where the initial one did") {
  constexpr int64_t T = 40, D = 16;
  Op op =
      build({.op = "linear_attention", .key_dim = D, .value_dim = D}, {.chunk = 16, .segment = 16});
  std::vector<float> x(T * D), state(D * D, 3), apart(D * D), o(T * D), o_in_place(T * D);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * static_cast<float>(i % 17);
  conformance::Arrays arrays(gpu());
  Tensor row = Tensor::dense(arrays.send(x), DType::f32, {1, T, 1, D});
  float *from = arrays.send(state), *to = arrays.send(apart), *out = arrays.send(o);
  auto run = [&](float* initial, float* final, std::vector<float>& state_after,
                 std::vector<float>& o_after) {
    op.run({{"q", row},
            {"k", row},
            {"v", row},
            {"initial_state", Tensor::dense(initial, DType::f32, {1, 1, D, D})},
            {"final_state", Tensor::dense(final, DType::f32, {1, 1, D, D})},
            {"o", Tensor::dense(out, DType::f32, {1, T, 1, D})}});
    arrays.receive(state_after, final);
    arrays.receive(o_after, out);
  };
  run(from, to, apart, o);
  run(from, from, state, o_in_place);
  CHECK(state == apart);
  CHECK(o == o_in_place);
  CHECK(state[0] > 3);
}

TEST_CASE("cuda: by segments a changed token leaves the outputs before it the same to the bit") {
  check::Case c = cut("kda", 24, 32, {100}, Precision::f32);
  for (int64_t token : {20, 63, 64})
    for (const check::Result& result : check::causal_on(gpu(), c, token)) CHECK(result.passed);
}

TEST_CASE("cuda: gates at -1000, at 0 and at -5 give no NaN and no infinity by segments") {
  for (check::Gates gates :
       {check::Gates::lowest, check::Gates::zero, check::Gates::at_bound, check::Gates::mixed}) {
    check::Case c = cut("kda", 20, 36, {97, 0, 31, 64, 33}, Precision::f32);
    c.inputs.gates = gates;
    CAPTURE(c.name());
    for (const check::Result& result : check::compare_forward_on(gpu(), c))
      CHECK(std::isfinite(result.error));
  }
}

TEST_CASE("cuda source: segments take 4 launches, spill nothing and are refused where not known") {
  auto context = make_context();
  auto emit = [&](const Problem& problem, const Schedule& wished, Direction direction) {
    auto module = derive(*context, ops::find(problem.op).define, problem,
                         {.chunk_size = wished.chunk, .direction = direction});
    auto graph = graph_of(*module);
    return cuda::emit(TileProgram(graph, cuda::schedule_for(graph, wished)), {direction});
  };
  for (const ops::Entry& entry : ops::registry()) {
    CAPTURE(entry.name);
    CHECK(emit({.op = entry.name}, kCut, Direction::forward).kernels.size() == 4);
    CHECK(emit({.op = entry.name}, kCut, Direction::backward).kernels.size() <= 9);
  }
  auto refusal = [&](const Schedule& wished, Direction direction) {
    try {
      emit({.op = "kda"}, wished, direction);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  CHECK(refusal({.chunk = 16, .segment = 40}, Direction::forward) ==
        "segment: expected a multiple of the chunk, got 40");
  CHECK(refusal({.chunk = 1, .segment = 32}, Direction::forward) ==
        "segment: expected 0 for chunks of one token, got 32");
  std::vector<std::pair<DType, const char*>> compiled = {{DType::bf16, "sm_80"},
                                                         {DType::f32, "sm_90"}};
  if (everything())
    compiled = {{DType::bf16, "sm_80"}, {DType::bf16, "sm_90"}, {DType::bf16, "sm_120"},
                {DType::f32, "sm_80"},  {DType::f32, "sm_90"},  {DType::f16, "sm_100"}};
  for (auto [dtype, arch] : compiled) {
    Problem problem{.op = "kda", .dtype = dtype};
    cuda::Source source = emit(problem, kCut, Direction::forward);
    auto log_of = [&](const std::string& text) {
      return cuda::Nvrtc::get()
          .compile_cubin(text, "kda.cu", arch, embedded_templates(), {"--ptxas-options=-v"})
          .log;
    };
    std::string log = log_of(source.text), whole;
    // In f32 the scan itself spills: by segments no more than without.
    if (dtype == DType::f32) whole = log_of(emit(problem, {.chunk = 16}, Direction::forward).text);
    CHECK(log.find("warning") == std::string::npos);
    for (const CudaKernel& kernel : source.kernels) {
      CAPTURE(kernel.name);
      CHECK(kernel.shared_bytes <= 99 * 1024);
      CHECK(cuda::resources_of(log, kernel.name).spilled <=
            std::max(0, cuda::resources_of(whole, kernel.name).spilled));
    }
  }
}
