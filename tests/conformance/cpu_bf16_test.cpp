// bf16 on the device `cpu`: on a matrix unit, by dot products, or by neither.
#include <doctest/doctest.h>

#include <cmath>

#include "compiler/cpu/jit.h"
#include "runtime/cpu/code.h"
#include "tests/conformance/suite.h"

using namespace linnet;
using namespace std::string_literals;
using namespace linnet::conformance;

TEST_CASE("cpu: bf16 is for the matrix unit or the dot products a processor has") {
  auto context = make_context();
  auto assembly = [&](DType dtype, const char* cpu, int64_t chunk) {
    Problem problem{.op = "kda", .dtype = dtype};
    auto module = derive(*context, ops::find("kda").define, problem, {.chunk_size = chunk});
    return cpu::assembly_of(TileProgram(graph_of(*module), {.chunk = chunk}),
                            cpu::Target::named(cpu));
  };
  auto unit_of = [](const std::string& text) {
    auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
    return has("tdpbf16ps") ? "tiles" : has("vdpbf16ps") ? "dots" : "none";
  };
  CHECK(unit_of(assembly(DType::bf16, "sapphirerapids", 32)) == "tiles"s);
  CHECK(unit_of(assembly(DType::bf16, "graniterapids", 16)) == "tiles"s);
  CHECK(unit_of(assembly(DType::bf16, "sapphirerapids", 1)) == "none"s);
  CHECK(unit_of(assembly(DType::bf16, "znver4", 32)) == "dots"s);
  CHECK(unit_of(assembly(DType::bf16, "cooperlake", 16)) == "dots"s);
  CHECK(unit_of(assembly(DType::bf16, "icelake-server", 16)) == "none"s);
  CHECK(unit_of(assembly(DType::f32, "sapphirerapids", 32)) == "none"s);
}

namespace {

double error_ratio(const std::vector<double>& got, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(got[i] - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  return std::sqrt(error / size);
}

}  // namespace

#ifdef __x86_64__
// Where there is a matrix unit as well, the tests above do not come by these.
TEST_CASE("cpu: dot products of bf16 follow the reference") {
  if (!__builtin_cpu_supports("avx512bf16")) {
    MESSAGE("this processor has none");
    return;
  }
  Problem problem{.op = "kda", .key_dim = 96, .value_dim = 60, .dtype = DType::bf16};
  auto context = make_context();
  auto module = derive(*context, ops::find("kda").define, problem, {.chunk_size = 16});
  Layout layout{2, 2, {70, 0, 130}};
  Tensors inputs = check::random_inputs(graph_of(*module), problem, layout, {});
  Tensors expected = interpret(graph_of(*module), layout, inputs, Arithmetic::f64);
  for (int64_t chunk : {16, 32, 48}) {
    CAPTURE(chunk);
    BuildOptions options{.target_cpu = "cooperlake"};
    options.chunk = chunk;
    Tensors got = check::call(cpu_device().build(problem, options), layout, inputs);
    for (const char* name : {"o", "final_state"})
      CHECK(error_ratio(got[name], expected[name]) < 0.005);
  }
}
#endif

namespace {

void follows(const std::string& target_cpu, const std::string& op, int64_t value_dim,
             int64_t chunk) {
  CAPTURE(op);
  CAPTURE(chunk);
  check::Case c{.law = ops::find(op).define,
                .problem = {.op = op, .key_dim = 96, .value_dim = value_dim, .dtype = DType::bf16}};
  c.options.chunk_size = chunk;
  c.layout = {2, 2, {70, 0, 130}};
  c.target_cpu = target_cpu;
  for (const check::Result& result : check::compare_on(cpu_device(), c))
    CHECK_MESSAGE(result.passed, result.measure);
}

// Chunks of one block, of several, and of a part of a tile; rows that need copies and rows that do
// not.
void follows_in_chunks_of_any_size(const std::string& target_cpu) {
  for (int64_t chunk : {16, 32, 64}) follows(target_cpu, "kda", 60, chunk);
  follows(target_cpu, "gated_delta_rule", 60, 64);
  for (const ops::Entry& entry : ops::registry()) follows(target_cpu, entry.name, 64, 32);
}

// Decays that leave the range of f32 within a block of tokens, next to others that do not.
void follows_under_gates_of_any_size(const std::string& target_cpu) {
  for (std::string name : {"kda", "rwkv6", "rwkv7"}) {
    Problem problem{.op = name, .key_dim = 60, .value_dim = 32, .dtype = DType::bf16};
    auto context = make_context();
    auto module = derive(*context, ops::find(name).define, problem, {.chunk_size = 16});
    Layout layout{2, 2, {200}};
    Tensors inputs = check::random_inputs(graph_of(*module), problem, layout, {});
    constexpr double kFactors[] = {1, 30, 0, 300, 10000, 1};
    for (size_t i = 0; i < inputs["g"].size(); ++i) {
      size_t token = i / (2 * 60);
      inputs["g"][i] *= kFactors[token / 7 % 6];
    }
    Tensors expected = interpret(graph_of(*module), layout, inputs, Arithmetic::f64);
    Tensors changed = inputs;
    constexpr size_t kToken = 73;
    for (const char* input : {"q", "k", "v", "g"}) {
      auto& tensor = changed[input];
      double factor = input == "g"s ? 2000 : -2;
      for (size_t i = kToken * tensor.size() / 200; i < tensor.size(); ++i) tensor[i] *= factor;
    }
    for (int64_t chunk : {16, 32, 64}) {
      CAPTURE(name);
      CAPTURE(chunk);
      BuildOptions options{.target_cpu = target_cpu};
      options.chunk = chunk;
      Op op = cpu_device().build(problem, options);
      Tensors got = check::call(op, layout, inputs), other = check::call(op, layout, changed);
      for (const char* output : {"o", "final_state"})
        CHECK(error_ratio(got[output], expected[output]) < 0.005);
      size_t before = kToken * got["o"].size() / 200;
      CHECK(std::equal(got["o"].begin(), got["o"].begin() + before, other["o"].begin()));
      CHECK(got["o"] != other["o"]);
    }
  }
}

}  // namespace

TEST_CASE("cpu: bf16 in chunks of any size follows the reference") {
  follows_in_chunks_of_any_size("");
}

TEST_CASE("cpu: bf16 under gates of any size follows the reference and sees no later token") {
  follows_under_gates_of_any_size("");
}

#ifdef __x86_64__
// Where there is no matrix unit, tests/matrix_unit plays one (the test matrix_unit of ctest).
TEST_CASE("cpu: code for a matrix unit follows the reference") {
  bool emulated = std::getenv("LINNET_TEST_MATRIX_UNIT");
  if (!__builtin_cpu_supports("avx512bf16") || (!emulated && !allow_matrix_unit())) {
    MESSAGE("this processor cannot run it");
    return;
  }
  follows_in_chunks_of_any_size("sapphirerapids");
  follows_under_gates_of_any_size("sapphirerapids");
}
#endif
