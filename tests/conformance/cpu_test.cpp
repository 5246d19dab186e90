// What the CPU back end compiles computes what the reference says: forward and backward, every op
// and gate mode.
#include <doctest/doctest.h>

#include "compiler/cpu/run.h"
#include "tests/check/check.h"

using namespace linnet;
using chunk::GraphOp;

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
      for (const check::Result& result : check::compare_cpu(c)) {
        CAPTURE(result.measure);
        CHECK_MESSAGE(result.passed, result.error, " over ", result.limit);
      }
    }
    CHECK_FALSE(taken.empty());
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
    TileProgram program(graph, {.chunk = 16});
    auto kernel = cpu::CompiledKernel::compile(program, cpu::Target::named(cpu));
    Tensors got = cpu::run(kernel, layout, inputs);
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
