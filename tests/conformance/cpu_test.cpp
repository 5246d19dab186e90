// What the CPU back end compiles computes what the reference says: forward and backward, every op
// and gate mode.
#include <doctest/doctest.h>

#include <cmath>

#include "compiler/cpu/jit.h"
#include "tests/check/check.h"

using namespace linnet;
using chunk::GraphOp;

namespace {

const Device& cpu_device() {
  static const Device device = Device::open("cpu", {.threads = 2});
  return device;
}

}  // namespace

TEST_CASE("cpu: compiled graphs meet the reference, every op and gate mode") {
  for (const ops::Entry& entry : ops::registry()) {
    // Compiling takes longer than running: of the covering sample, one case a gate mode, chunks and
    // formats in turn.
    std::map<std::pair<int, float>, int> taken;
    int turn = 0;
    for (const check::Case& c : check::cases_of(entry, false)) {
      if (c.inputs.gates != check::Gates::random || c.layout.tokens() < 10 ||
          c.layout.tokens() > 200)
        continue;
      if (c.options.chunk_size > 32 || turn++ % 3 != 0) continue;
      if (taken[{static_cast<int>(c.problem.gate), c.problem.lower_bound}]++) continue;
      CAPTURE(c.name());
      for (const check::Result& result : check::compare_on(cpu_device(), c)) {
        CAPTURE(result.measure);
        CHECK_MESSAGE(result.passed, result.error, " over ", result.limit);
      }
    }
    CHECK_FALSE(taken.empty());
  }
}

namespace {

// An op for this machine, with the forward graph it came from, for its inputs.
struct Built {
  explicit Built(const std::string& op, Direction direction = Direction::forward)
      : problem{.op = op, .key_dim = 60, .value_dim = 36},
        context(make_context()),
        module(derive(*context, ops::find(op).define, problem, {.chunk_size = 16})),
        op(cpu_device().build(problem, {.direction = direction})) {}
  GraphOp graph() { return graph_of(*module); }
  Problem problem;
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  Op op;
};

// The rows of tokens [first, first + count) of a token tensor.
std::vector<double> tokens_of(const std::vector<double>& all, int64_t tokens, int64_t first,
                              int64_t count) {
  int64_t width = all.size() / tokens;
  return {all.begin() + first * width, all.begin() + (first + count) * width};
}

}  // namespace

TEST_CASE("cpu: a sequence gives the same bits alone and among others") {
  for (const char* op : {"kda", "gated_delta_rule", "rwkv7"}) {
    CAPTURE(op);
    Built forward(op);
    Layout packed{1, 2, {15, 130, 0, 7}}, alone{1, 2, {130}};
    Tensors inputs = check::random_inputs(forward.graph(), forward.problem, packed, {});
    Tensors own;
    for (auto input : forward.graph().getBody().getOps<chunk::InputOp>()) {
      const auto& values = inputs[input.getName().str()];
      bool by_token = input.getScope() == chunk::Scope::token,
           by_sequence = input.getScope() == chunk::Scope::sequence;
      own[input.getName().str()] = by_token      ? tokens_of(values, packed.tokens(), 15, 130)
                                   : by_sequence ? tokens_of(values, 4, 1, 1)
                                                 : values;
    }
    Tensors all = check::call(forward.op, packed, inputs),
            single = check::call(forward.op, alone, own);
    CHECK(single["o"] == tokens_of(all["o"], packed.tokens(), 15, 130));
    CHECK(single["final_state"] == tokens_of(all["final_state"], 4, 1, 1));
  }
}

TEST_CASE("cpu: changing a token leaves the outputs before it the same to the bit") {
  for (const char* op : {"kda", "gated_delta_rule", "rwkv6", "gated_delta_product"}) {
    CAPTURE(op);
    Built forward(op);
    Layout layout{1, 1, {50}};
    GraphOp graph = forward.graph();
    Tensors inputs = check::random_inputs(graph, forward.problem, layout, {.seed = 1});
    Tensors other = check::random_inputs(graph, forward.problem, layout, {.seed = 2}),
            changed = inputs;
    for (auto input : graph.getBody().getOps<chunk::InputOp>()) {
      if (input.getScope() != chunk::Scope::token) continue;
      auto& values = changed[input.getName().str()];
      int64_t width = values.size() / 50;
      std::copy_n(other[input.getName().str()].begin() + 20 * width, width,
                  values.begin() + 20 * width);
    }
    auto before = check::call(forward.op, layout, inputs)["o"],
         after = check::call(forward.op, layout, changed)["o"];
    CHECK(tokens_of(before, 50, 0, 20) == tokens_of(after, 50, 0, 20));
    CHECK(tokens_of(before, 50, 20, 30) != tokens_of(after, 50, 20, 30));
  }
}

TEST_CASE("cpu: gates at -1000, at 0 and at -5 give no NaN and no infinity, forward or backward") {
  for (const char* op : {"kda", "gated_delta_rule", "rwkv6", "rwkv7", "retention"}) {
    Built forward(op), backward(op, Direction::backward);
    Layout layout{1, 2, {50, 0, 3}};
    for (check::Gates gates :
         {check::Gates::lowest, check::Gates::zero, check::Gates::at_bound, check::Gates::mixed}) {
      CAPTURE(op);
      Tensors inputs =
          check::random_inputs(forward.graph(), forward.problem, layout, {.gates = gates});
      Tensors gradients = check::random_output_gradients(forward.graph(), layout, 3), all = inputs;
      all.insert(gradients.begin(), gradients.end());
      for (const Tensors& results :
           {check::call(forward.op, layout, inputs), check::call(backward.op, layout, all)})
        for (const auto& [name, values] : results) {
          CAPTURE(name);
          CHECK(llvm::all_of(values, [](double x) { return std::isfinite(x); }));
        }
    }
  }
}

TEST_CASE("cpu: code for a narrower machine than this one gives the same numbers to rounding") {
  auto context = make_context();
  Problem problem{.op = "kda", .key_dim = 60, .value_dim = 36};
  auto module = derive(*context, ops::find("kda").define, problem, {.chunk_size = 16});
  GraphOp graph = graph_of(*module);
  Layout layout{1, 2, {33, 0, 7}};
  Tensors inputs = check::random_inputs(graph, problem, layout, {});
  Tensors expected = interpret(graph, layout, inputs, Arithmetic::f64);
  for (const char* cpu : {"x86-64", "x86-64-v3"}) {
    CAPTURE(cpu);
    Tensors got = check::call(cpu_device().build(problem, {.target_cpu = cpu}), layout, inputs);
    for (size_t i = 0; i < expected["o"].size(); ++i)
      REQUIRE(got["o"][i] == doctest::Approx(expected["o"][i]).epsilon(1e-4));
  }
}

TEST_CASE("cpu: code for a named processor uses its registers") {
  auto context = make_context();
  auto module = derive(*context, ops::find("gla").define, {.op = "gla"}, {.chunk_size = 16});
  TileProgram program(graph_of(*module), {.chunk = 16});
  std::string wide = cpu::assembly_of(program, cpu::Target::named("sapphirerapids"));
  std::string narrow = cpu::assembly_of(program, cpu::Target::named("x86-64-v3"));
  CHECK(wide.find("%zmm") != std::string::npos);
  CHECK(wide.find("vfmadd") != std::string::npos);
  CHECK(narrow.find("%zmm") == std::string::npos);
  CHECK(narrow.find("%ymm") != std::string::npos);
}
