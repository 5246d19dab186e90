// What the derivations promise beyond the numbers `linnet check` compares.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "compiler/flops.h"
#include "tests/check/check.h"
#include "tests/reference/reference.h"

using namespace linnet;
using namespace linnet::chunk;

namespace {

mlir::OwningOpRef<mlir::ModuleOp> by_hand(mlir::MLIRContext& context) {
  std::ifstream file("tests/graphs/kda_by_hand.mlir");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_module(context, text.str(), "tests/graphs/kda_by_hand.mlir");
}

template <class Op>
int64_t count(mlir::Operation* root) {
  int64_t n = 0;
  root->walk([&](Op) { ++n; });
  return n;
}

std::vector<std::string> stages_of(GraphOp graph) {
  std::vector<std::string> names;
  for (mlir::Operation& op : graph.getBody().front()) {
    if (auto map = llvm::dyn_cast<MapOp>(op)) names.push_back("map " + map.getStage().str());
    if (auto scan = llvm::dyn_cast<ScanOp>(op)) names.push_back("scan " + scan.getStage()->str());
  }
  return names;
}

}  // namespace

TEST_CASE("kda: the derived graph equals the hand-written one of MATH.md and the reference") {
  auto context = make_context();
  auto hand = by_hand(*context);
  Problem problem{.op = "kda"};
  auto derived = derive(*context, ops::find("kda").define, problem, {});
  Layout layout{1, 2, {130, 0, 15}};
  Tensors inputs = check::random_inputs(graph_of(*derived), problem, layout, {});
  Tensors a = interpret(graph_of(*hand), layout, inputs, Arithmetic::f64);
  Tensors b = interpret(graph_of(*derived), layout, inputs, Arithmetic::f64);
  reference::Case c{.op = "kda",
                    .heads = 1,
                    .value_heads = 2,
                    .key_dim = 128,
                    .value_dim = 128,
                    .scale = inputs["scale"][0],
                    .lengths = layout.lengths};
  inputs.erase("scale");
  Tensors truth = reference::forward(c, inputs);
  for (const char* name : {"o", "final_state"})
    for (size_t i = 0; i < truth[name].size(); ++i) {
      REQUIRE(a[name][i] == doctest::Approx(truth[name][i]).epsilon(1e-10));
      REQUIRE(b[name][i] == doctest::Approx(truth[name][i]).epsilon(1e-10));
    }
}

TEST_CASE("kda: the derived graph has no more products than the hand-written one") {
  auto context = make_context();
  auto hand = by_hand(*context);
  auto derived = derive(*context, ops::find("kda").define, {.op = "kda"}, {});
  CHECK(count_flops(graph_of(*derived)) <= count_flops(graph_of(*hand)));
  auto law = build_law(*context, "kda", ops::find("kda").define, 128, 128);
  CHECK(flops_by_hand(*law->getOps<LawOp>().begin(), 64) == count_flops(graph_of(*hand)));
}

TEST_CASE(
    "flops: forward graphs cost what MATH.md g says, backward graphs at most its adjoint form") {
  auto context = make_context();
  for (const ops::Entry& entry : ops::registry())
    for (int64_t chunk : {16, 32, 64}) {
      auto law = build_law(*context, entry.name, entry.define, 128, 64);
      auto expected = flops_by_hand(*law->getOps<LawOp>().begin(), chunk);
      if (!expected) continue;
      CAPTURE(entry.name);
      Problem problem{.op = entry.name, .value_dim = 64};
      auto forward = derive(*context, entry.define, problem, {.chunk_size = chunk});
      CHECK(count_flops(graph_of(*forward)) == *expected);
    }
  // 16 K V + 2 C (4 K + 5 V) with the replay, and 4 C K + inverse for Aqk and Z made again.
  const int64_t K = 128, V = 64, C = 64;
  for (const char* op : {"kda", "gated_delta_rule", "delta_rule"}) {
    auto backward = derive(*context, ops::find(op).define, {.op = op, .value_dim = V},
                           {.direction = Direction::backward});
    int64_t inverse = 16 * 2 * 16 * 16 * 16;
    CHECK(count_flops(graph_of(*backward)) <=
          C * (16 * K * V + 2 * C * (4 * K + 5 * V) + 4 * C * K) + inverse);
  }
}

TEST_CASE(
    "stages: a forward pass is map and scan, a backward pass map, replay, reverse scan and map") {
  auto context = make_context();
  for (const ops::Entry& entry : ops::registry()) {
    CAPTURE(entry.name);
    auto forward = derive(*context, entry.define, {.op = entry.name}, {});
    auto stages = stages_of(graph_of(*forward));
    CHECK(stages.size() <= 2);
    CHECK(stages.back() == "scan scan");
    auto backward =
        derive(*context, entry.define, {.op = entry.name}, {.direction = Direction::backward});
    CHECK(stages_of(graph_of(*backward)).size() <= 4);
  }
}

TEST_CASE("stages: the reverse scan of kda needs no forward state") {
  auto context = make_context();
  auto backward =
      derive(*context, ops::find("kda").define, {.op = "kda"}, {.direction = Direction::backward});
  GraphOp graph = graph_of(*backward);
  ScanOp replay, reverse;
  for (auto scan : graph.getBody().getOps<ScanOp>()) (scan.getReverse() ? reverse : replay) = scan;
  REQUIRE(replay);
  REQUIRE(reverse);
  reverse.walk([&](mlir::Operation* op) {
    for (mlir::Value operand : op->getOperands())
      CHECK(operand.getDefiningOp() != replay.getOperation());
  });
}

TEST_CASE("stages: distributing the inverse takes one product out of the serial chain") {
  auto context = make_context();
  auto products_in_scan = [&](StageOptions stages) {
    auto module = derive(*context, ops::find("kda").define, {.op = "kda"}, {.stages = stages});
    return count<MatmulOp>(*graph_of(*module).getBody().getOps<ScanOp>().begin());
  };
  CHECK(products_in_scan({.separate_output = true}) == 3);
  CHECK(products_in_scan({.separate_output = true, .distribute_inverse = true}) == 2);
  CHECK(products_in_scan({}) == 5);
}

TEST_CASE("decode: one token a chunk leaves no mask, inverse or running sum") {
  auto context = make_context();
  for (const ops::Entry& entry : ops::registry()) {
    CAPTURE(entry.name);
    auto module = derive(*context, entry.define, {.op = entry.name}, {.chunk_size = 1});
    CHECK(count<CumsumOp>(*module) == 0);
    CHECK(count<MaskOp>(*module) == 0);
    CHECK(count<InverseUnitLowerOp>(*module) == 0);
    CHECK(count<DecayDotOp>(*module) == 0);
    CHECK(count<DecayMaskOp>(*module) == 0);
  }
  auto kda = derive(*context, ops::find("kda").define, {.op = "kda"}, {.chunk_size = 1});
  CHECK(count<MatmulOp>(*kda) == 3);  // two reads of the state, one rank-one update
}

TEST_CASE(
    "stabilise: every decay_dot and its adjoints carry a bounded form that fits the gate mode") {
  auto context = make_context();
  auto bound_of = [&](Gate gate, float lower, chunk::Precision precision) {
    Problem problem{.op = "kda", .gate = gate, .lower_bound = lower};
    choose_precision(problem, precision);
    auto module =
        derive(*context, ops::find("kda").define, problem, {.direction = Direction::backward});
    BoundAttr bound;
    module->walk([&](DecayDotOp op) { bound = op.getBoundAttr(); });
    module->walk([&](DecayApplyOp op) { CHECK(op.getBoundAttr() == bound); });
    return bound;
  };
  CHECK(bound_of(Gate::pre, 0, Precision::f32).getForm() == Form::pairwise);
  CHECK(bound_of(Gate::softplus, 0, Precision::bf16).getForm() == Form::pairwise);
  auto anchored = bound_of(Gate::bounded, -5, Precision::bf16);
  CHECK(anchored.getForm() == Form::anchored);
  CHECK(anchored.getBlock() == 16);
  CHECK(bound_of(Gate::bounded, -0.6f, Precision::bf16).getBlock() == 64);
  CHECK(bound_of(Gate::bounded, -5, Precision::f16).getForm() == Form::pairwise);
}

TEST_CASE(
    "differentiate: every op of the dialect has an adjoint, second derivatives of scores "
    "included") {
  // d/dx of sum(decay_apply(...)) by the adjoint of the adjoint: the backward graph of a graph made
  // of decay_apply.
  auto context = make_context();
  auto module = parse_module(*context, R"(
    !C = tensor<8xf32, #chunk.axes<token>>
    !CxC = tensor<8x8xf32, #chunk.axes<token, token>>
    !CxK = tensor<8x4xf32, #chunk.axes<token, key>>
    chunk.graph @twice chunk 8 {
      %u = chunk.input "u" token : !CxK
      %w = chunk.input "w" token : !CxK
      %g = chunk.input "g" token : !CxK
      %G = chunk.cumsum %g : !CxK
      %A = chunk.decay_dot %u, %w, %G, %G lower : !CxK, !CxK, !CxK, !CxK -> !CxC
      %r = chunk.decay_apply rows %A, %w, %G, %G lower : !CxC, !CxK, !CxK, !CxK -> !CxK
      %c = chunk.decay_apply columns %A, %r, %G, %G lower : !CxC, !CxK, !CxK, !CxK -> !CxK
      chunk.output "o", %c token : !CxK
    })",
                             "twice.mlir");
  GraphOp forward = graph_of(*module);
  Layout layout{1, 1, {8}};
  Tensors inputs{{"u", {}}, {"w", {}}, {"g", {}}};
  for (auto& [name, values] : inputs) values = check::random_numbers(name, 32, 3)[name];
  for (double& x : inputs["g"]) x = -std::fabs(x);
  Tensors seed{{"do", check::random_numbers("do", 32, 4)["do"]}};
  auto value = [&](const Tensors& at) {
    auto o = interpret(forward, layout, at, Arithmetic::f64)["o"];
    double sum = 0;
    for (size_t i = 0; i < o.size(); ++i) sum += o[i] * seed["do"][i];
    return sum;
  };
  std::map<std::string, double> slope;
  Tensors direction;
  for (auto& [name, values] : inputs) {
    direction[name] = check::random_numbers(name, 32, 5)[name];
    auto along = [&](double h) {
      Tensors moved = inputs;
      for (size_t i = 0; i < 32; ++i) moved[name][i] += h * direction[name][i];
      return value(moved);
    };
    slope[name] = (8 * (along(1e-3) - along(-1e-3)) - (along(2e-3) - along(-2e-3))) / 12e-3;
  }
  // The gradient graph, by the pass itself.
  PipelineOptions options{.chunk_size = 8, .direction = Direction::backward};
  Tensors with_seed = inputs;
  with_seed.insert(seed.begin(), seed.end());
  run_pipeline(*module, {.op = "twice", .key_dim = 4, .value_dim = 4}, options);
  Tensors gradients = interpret(graph_of(*module), layout, with_seed, Arithmetic::f64);
  for (auto& [name, expected] : slope) {
    double product = 0;
    for (size_t i = 0; i < 32; ++i) product += gradients["d" + name][i] * direction[name][i];
    CHECK(product == doctest::Approx(expected).epsilon(1e-8));
  }
}
