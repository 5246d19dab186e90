// Graphs and laws as text: what is printed can be read back, with its names.
#include <doctest/doctest.h>

#include "compiler/pipeline.h"
#include "ops/registry.h"

using namespace linnet;

namespace {

std::string printed_twice(mlir::MLIRContext& context, const std::string& text) {
  return print(*parse_module(context, text, "again.mlir"));
}

}  // namespace

TEST_CASE("text: every law, graph, backward pass and decode step reads back as it was printed") {
  auto context = make_context();
  for (const ops::Entry& entry : ops::registry()) {
    CAPTURE(entry.name);
    std::string law = print(*build_law(*context, entry.name, entry.define, 16, 32));
    CHECK(printed_twice(*context, law) == law);
    for (Direction direction : {Direction::forward, Direction::backward})
      for (int64_t chunk : {1, 32})
        for (chunk::Precision precision : {chunk::Precision::f32, chunk::Precision::bf16}) {
          Problem problem{.op = entry.name, .key_dim = 16, .value_dim = 32};
          choose_precision(problem, precision);
          PipelineOptions options{.chunk_size = chunk, .direction = direction};
          std::string text = print(*derive(*context, entry.define, problem, options));
          CHECK(printed_twice(*context, text) == text);
        }
  }
}

TEST_CASE("text: names given in the law show in what is derived from it") {
  auto context = make_context();
  Problem problem{.op = "kda", .key_dim = 16, .value_dim = 32};
  std::string graph = print(*derive(*context, ops::find("kda").define, problem, {}));
  for (const char* name :
       {"%q =", "%beta =", "%gamma =", "%A_qk", "%Z", "%X =", "%decay", "%S_next", "%o"})
    CHECK_MESSAGE(graph.find(name) != std::string::npos, name);
  std::string law = print(*build_law(*context, "kda", ops::find("kda").define, 16, 32));
  CHECK(law.find("%e = arith.subf") != std::string::npos);
}

TEST_CASE("text: the same law derives to the same text every time") {
  for (const ops::Entry& entry : ops::registry()) {
    auto derive_text = [&] {
      auto context = make_context();
      Problem problem{.op = entry.name, .key_dim = 16, .value_dim = 32};
      PipelineOptions options{.direction = Direction::backward};
      return print(*derive(*context, entry.define, problem, options));
    };
    CHECK(derive_text() == derive_text());
  }
}
