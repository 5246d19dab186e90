// What the CUDA back end emits, NVRTC compiles and the virtual GPU executes is what the reference
// says: forward, backward and decode, every op and gate mode. The virtual GPU's checks are on: a
// race, a read of memory nobody wrote or an access out of bounds fails the launch.
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

// The forward kernels of an op, with the graph they came from.
struct Compiled {
  Compiled(const std::string& op, Problem problem, Direction direction = Direction::forward)
      : problem(problem), context(make_context()) {
    module =
        derive(*context, ops::find(op).define, problem, {.chunk_size = 16, .direction = direction});
    program.emplace(TileProgram(graph(), check::cuda_schedule(graph())), testing::test_device());
  }
  chunk::GraphOp graph() { return graph_of(*module); }
  Problem problem;
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::optional<check::CudaProgram> program;
};

// The rows of tokens [first, first + count) of a token tensor.
std::vector<double> tokens_of(const std::vector<double>& all, int64_t tokens, int64_t first,
                              int64_t count) {
  int64_t width = all.size() / tokens;
  return {all.begin() + first * width, all.begin() + (first + count) * width};
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
      c.problem.precision = formats[turn % formats.size()];
      c.problem.key_dim = sizes[turn % sizes.size()].first;
      c.problem.value_dim = sizes[turn % sizes.size()].second;
      c.layout = {1, 2, {19, 0, 5}};
      // Gradients with one number a head are sums that nearly cancel: a mean square needs several.
      if (c.problem.precision != Precision::f32) c.layout = {4, 8, {18, 0, 3}};
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
  CHECK(cuda::emit(TileProgram(graph, check::cuda_schedule(graph))).kernels.size() == 1);
}

TEST_CASE("cuda: gates at -1000, at 0 and at -5 give no NaN and no infinity, forward or backward") {
  LINNET_NEEDS_NVRTC();
  for (const char* op : {"kda", "gated_delta_rule", "rwkv6"}) {
    Problem problem{.op = op, .key_dim = 20, .value_dim = 16};
    Compiled forward(op, problem), backward(op, problem, Direction::backward);
    Layout layout{1, 2, {18, 0, 3}};
    for (check::Gates gates :
         {check::Gates::lowest, check::Gates::zero, check::Gates::at_bound, check::Gates::mixed}) {
      CAPTURE(op);
      Tensors inputs = check::random_inputs(forward.graph(), problem, layout, {.gates = gates});
      Tensors all = check::random_output_gradients(forward.graph(), layout, 3);
      all.insert(inputs.begin(), inputs.end());
      for (const Tensors& results :
           {forward.program->run(layout, inputs), backward.program->run(layout, all)})
        for (const auto& [name, values] : results) {
          CAPTURE(name);
          CHECK(llvm::all_of(values, [](double x) { return std::isfinite(x); }));
        }
    }
  }
}

TEST_CASE(
    "cuda: a sequence gives the same bits alone and among others; no state is a state of zeros") {
  LINNET_NEEDS_NVRTC();
  for (const char* op : {"kda", "gated_delta_rule"}) {
    CAPTURE(op);
    Compiled forward(op, {.op = op, .key_dim = 20, .value_dim = 36, .precision = Precision::bf16});
    Layout packed{1, 2, {15, 33, 0, 7}}, alone{1, 2, {33}};
    Tensors inputs = check::random_inputs(forward.graph(), forward.problem, packed, {}), own;
    for (auto input : forward.graph().getBody().getOps<chunk::InputOp>()) {
      const auto& values = inputs[input.getName().str()];
      bool by_token = input.getScope() == chunk::Scope::token,
           by_sequence = input.getScope() == chunk::Scope::sequence;
      own[input.getName().str()] = by_token      ? tokens_of(values, packed.tokens(), 15, 33)
                                   : by_sequence ? tokens_of(values, 4, 1, 1)
                                                 : values;
    }
    Tensors all = forward.program->run(packed, inputs), single = forward.program->run(alone, own);
    CHECK(single["o"] == tokens_of(all["o"], packed.tokens(), 15, 33));
    CHECK(single["final_state"] == tokens_of(all["final_state"], 4, 1, 1));
    // An empty sequence hands its state on.
    CHECK(tokens_of(all["final_state"], 4, 2, 1) == tokens_of(inputs["initial_state"], 4, 2, 1));
    Tensors none = own, zeros = own;
    none.erase("initial_state");
    for (double& x : zeros["initial_state"]) x = 0;
    CHECK(forward.program->run(alone, none)["o"] == forward.program->run(alone, zeros)["o"]);
  }
}

TEST_CASE("cuda: changing a token leaves the outputs before it the same to the bit") {
  LINNET_NEEDS_NVRTC();
  for (float bound : {0.f, -5.f}) {  // pairwise and anchored exponentials
    Compiled forward("kda", {.op = "kda", .key_dim = 20, .value_dim = 16, .lower_bound = bound});
    Layout layout{1, 1, {40}};
    Tensors inputs = check::random_inputs(forward.graph(), forward.problem, layout, {.seed = 1});
    Tensors other = check::random_inputs(forward.graph(), forward.problem, layout, {.seed = 2}),
            changed = inputs;
    for (auto input : forward.graph().getBody().getOps<chunk::InputOp>()) {
      if (input.getScope() != chunk::Scope::token) continue;
      auto& values = changed[input.getName().str()];
      int64_t width = values.size() / 40;
      std::copy_n(other[input.getName().str()].begin() + 20 * width, width,
                  values.begin() + 20 * width);
    }
    auto before = forward.program->run(layout, inputs)["o"],
         after = forward.program->run(layout, changed)["o"];
    CHECK(tokens_of(before, 40, 0, 20) == tokens_of(after, 40, 0, 20));
    CHECK(tokens_of(before, 40, 20, 20) != tokens_of(after, 40, 20, 20));
  }
}
