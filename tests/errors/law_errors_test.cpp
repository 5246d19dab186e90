// Wrong laws, graphs and arguments: each gets a message with the place, what was expected and what
// came.
#include <doctest/doctest.h>

#include "compiler/pipeline.h"
#include "linnet/error.h"
#include "ops/registry.h"
#include "tests/check/check.h"

using namespace linnet;

namespace {

// The message of deriving a law, or "" if it derives.
std::string message_of(LawFunction law,
                       Problem problem = {.op = "test", .key_dim = 16, .value_dim = 8},
                       PipelineOptions options = {}) {
  auto context = make_context();
  try {
    derive(*context, law, problem, options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::string parse_message(const char* text) {
  auto context = make_context();
  try {
    parse_module(*context, text, "wrong.mlir");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

void has(const std::string& message, std::initializer_list<const char*> parts) {
  CAPTURE(message);
  for (const char* part : parts) CHECK_MESSAGE(message.find(part) != std::string::npos, part);
}

const char* kPlace = "tests/errors/law_errors_test.cpp:";

}  // namespace

TEST_CASE("law: a written value that is not affine in a read has no chunk form") {
  has(message_of([](Law& law) {
        auto S = law.state();
        auto k = law.key("k");
        write(S, k, sigmoid(read(S, k)));
        out("o", read(S, k));
      }),
      {kPlace, "no chunk form", "chunk.sigmoid"});
  has(message_of([](Law& law) {
        auto S = law.state();
        auto k = law.key("k");
        auto r = read(S, k);
        write(S, k, r * r);
        out("o", read(S, k));
      }),
      {kPlace, "no chunk form", "arith.mulf"});
}

TEST_CASE("law: a read scaled per value channel has no chunk form") {
  has(message_of([](Law& law) {
        auto S = law.state();
        auto k = law.key("k");
        auto w = law.value("w");
        write(S, k, w * read(S, k));
        out("o", read(S, k));
      }),
      {kPlace, "no chunk form", "value (8)", "one number a token"});
}

TEST_CASE("law: a gate or a key that depends on the state has no chunk form") {
  has(message_of([](Law& law) {
        auto S = law.state();
        auto k = law.key("k");
        auto v = law.value("v");
        decay(S, dot(read(S, k), v));
        write(S, k, v);
        out("o", read(S, k));
      }),
      {kPlace, "no chunk form", "gate of decay depends on the state"});
  has(message_of([](Law& law) {
        auto S = law.state();
        auto k = law.key("k");
        auto v = law.value("v");
        write(S, k * dot(read(S, k), v), v);
        out("o", read(S, k));
      }),
      {kPlace, "direction of write depends on the state"});
}

TEST_CASE("law: mismatched axes name both sides") {
  has(message_of([](Law& law) {
        auto S = law.state();
        auto k = law.key("k");
        auto v = law.value("v");
        write(S, k, v * k);
      }),
      {kPlace, "*: expected equal axes", "value (8)", "key (16)"});
  has(message_of([](Law& law) {
        auto S = law.state();
        read(S, law.value("v"));
      }),
      {kPlace, "the vector of read: expected key (16), got value (8)"});
  has(message_of([](Law& law) {
        auto S = law.state();
        write(S, law.key("k"), law.scalar("x"));
      }),
      {kPlace, "the value of write: expected value (8), got a scalar"});
}

TEST_CASE("law: a read of an undeclared input, an input declared twice, a law without output") {
  has(message_of([](Law& law) {
        Expr w;
        read(law.state(), w);
      }),
      {kPlace, "the vector of read is not declared"});
  has(message_of([](Law& law) {
        law.key("k");
        law.key("k");
      }),
      {kPlace, "input k is declared twice"});
  has(message_of([](Law& law) { write(law.state(), law.key("k"), law.value("v")); }),
      {"expected an output"});
}

TEST_CASE("problem: modes an op does not have, and numbers out of range, are refused by name") {
  auto derive_op = [](const char* op, Problem problem, int64_t chunk = 64) {
    problem.op = op;
    return message_of(ops::find(op).define, problem, {.chunk_size = chunk});
  };
  has(derive_op("retention", {.gate = Gate::softplus}), {"gate: retention has no gate per token"});
  has(derive_op("gla", {.beta = Beta::sigmoid}), {"beta: gla has no beta"});
  has(derive_op("rwkv7", {.l2norm = true}), {"l2norm: rwkv7 has no keys to normalise"});
  has(derive_op("kda", {.gate = Gate::bounded, .lower_bound = -6}),
      {"lower_bound: expected", "[-5, 0)", "-6"});
  has(derive_op("kda", {.lower_bound = 1}), {"lower_bound: expected", "got 1"});
  has(derive_op("kda", {.key_dim = 0}), {"key_dim: expected a number from 1", "got 0"});
  has(derive_op("kda", {}, 40), {"chunk: expected at most 16 or a multiple of 16, got 40"});
  CHECK_THROWS_AS(ops::find("kdda"), UserError);
}

TEST_CASE("graph: a mask on a tile that is not square") {
  has(parse_message(R"(
    chunk.graph @wrong chunk 8 {
      %x = chunk.input "x" token : tensor<8x4xf32, #chunk.axes<token, key>>
      %m = chunk.mask %x lower : tensor<8x4xf32, #chunk.axes<token, key>>
    })"),
      {"wrong.mlir:4", "square token x token", "token x key (8 x 4)"});
}

TEST_CASE("graph: a product over different axes, even of one size") {
  has(parse_message(R"(
    chunk.graph @wrong chunk 8 {
      %x = chunk.input "x" token : tensor<8x4xf32, #chunk.axes<token, key>>
      %y = chunk.input "y" sequence : tensor<4x4xf32, #chunk.axes<value, value>>
      %m = chunk.matmul %x, %y : tensor<8x4xf32, #chunk.axes<token, key>>, tensor<4x4xf32, #chunk.axes<value, value>> -> tensor<8x4xf32, #chunk.axes<token, value>>
    })"),
      {"wrong.mlir:5", "equal axes to sum over", "key of token x key (8 x 4)",
       "value of value x value (4 x 4)"});
}

TEST_CASE("graph: an undeclared value, an unknown op and text that does not parse give the line") {
  has(parse_message(
          "chunk.graph @wrong chunk 8 {\n  chunk.output \"o\", %nothing token : tensor<f32>\n}"),
      {"wrong.mlir:2", "nothing"});
  has(parse_message("chunk.graph @wrong chunk 8 {\n  chunk.frobnicate\n}"),
      {"wrong.mlir:2", "frobnicate"});
  has(parse_message("chunk.graph @wrong chunk 8 {\n\n  %x = \n}"), {"wrong.mlir:3", "%x ="});
}

TEST_CASE("graph: steps of a law do not belong in it, and rows must match its chunk") {
  has(parse_message(R"(chunk.graph @wrong chunk 8 {
      %x = chunk.input "x" token : tensor<16x4xf32, #chunk.axes<token, key>>
    })"),
      {"wrong.mlir:2", "16 token rows in a graph of chunk 8"});
  has(parse_message(R"(chunk.graph @wrong chunk 8 {
      %S = chunk.state : tensor<4x4xf32, #chunk.axes<key, value>>
    })"),
      {"wrong.mlir:2", "does not belong in a chunk graph"});
}

TEST_CASE("interpreter: missing and wrongly sized inputs, and head counts, are named") {
  auto context = make_context();
  auto module = derive(*context, ops::find("gla").define,
                       {.op = "gla", .key_dim = 4, .value_dim = 4}, {.chunk_size = 16});
  auto message = [&](Layout layout, Tensors inputs) -> std::string {
    try {
      interpret(graph_of(*module), layout, inputs, Arithmetic::f64);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  has(message({1, 1, {3}}, {}), {"q: expected 12 numbers, got no such input"});
  has(message({1, 1, {3}}, {{"q", std::vector<double>(5)}}), {"q: expected 12 numbers, got 5"});
  has(message({2, 3, {3}}, {}), {"value_heads: expected a multiple of heads (2), got 3"});
  has(message({1, 1, {-1}}, {}), {"lengths: expected no negative length, got -1"});
}
