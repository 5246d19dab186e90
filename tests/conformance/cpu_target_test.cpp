// Code for other processors than this one.
#include <doctest/doctest.h>

#include <bit>
#include <numeric>

#include "compiler/cpu/jit.h"
#include "runtime/cpu/op.h"
#include "runtime/plugin.h"
#include "tests/conformance/suite.h"

using namespace linnet;
using namespace linnet::conformance;
using chunk::GraphOp;

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

// Every f16, and what lies between two of them, through code that converts by arithmetic on bits
// and through the processor's own instructions.
TEST_CASE("cpu: f16 is converted the same way with and without instructions for it") {
  constexpr int64_t kHeads = 4096, kChannels = 16;  // 65536 numbers
  std::vector<uint16_t> ones(kHeads, 0x3c00), v(kHeads * kChannels);
  std::iota(v.begin(), v.end(), 0);
  auto run = [&](const char* cpu, float scale) {
    std::vector<uint16_t> o(v.size());
    auto tensor = [](std::vector<uint16_t>& of, int64_t channels) {
      return Tensor::dense(of.data(), DType::f16, {1, 1, kHeads, channels});
    };
    Problem problem{
        .op = "linear_attention", .key_dim = 1, .value_dim = kChannels, .dtype = DType::f16};
    cpu_device()
        .build(problem, {.target_cpu = cpu})
        .run({{"q", tensor(ones, 1)},
              {"k", tensor(ones, 1)},
              {"v", tensor(v, kChannels)},
              {"scale", scale},
              {"o", tensor(o, kChannels)}});
    return o;
  };
  auto same = [](uint16_t a, uint16_t b) {
    auto is_nan = [](uint16_t bits) { return (bits & 0x7fff) > 0x7c00; };
    return a == b || (is_nan(a) && is_nan(b));
  };
  // Ties to even, all sizes of rest, overflow, and numbers that come to lie below the normal ones.
  for (float scale : {1.f, 1.f / 3, 1.00048828f, 5.f, 0x1.8p-10f, 0x1.004p-3f}) {
    CAPTURE(scale);
    std::vector<uint16_t> expected;
    for (uint16_t bits : v) {
      float state = 0.f + static_cast<float>(std::bit_cast<_Float16>(bits));  // which starts at 0
      expected.push_back(std::bit_cast<uint16_t>(static_cast<_Float16>(scale * state)));
    }
    CHECK(std::ranges::equal(run("x86-64", scale), expected, same));
    if (Processor::host().has("f16c"))
      CHECK(std::ranges::equal(run("x86-64-v3", scale), expected, same));
  }
}

// Two processors of the same registers, of which one reads rows ahead (compiler/cpu/target.h).
TEST_CASE("cpu: decode by rows and by columns gives the same bits") {
  for (int64_t value_dim : {36, 64, 128}) {
    CAPTURE(value_dim);
    auto context = make_context();
    Problem problem{.op = "kda", .key_dim = 60, .value_dim = value_dim};
    auto module = derive(*context, ops::find("kda").define, problem, {.chunk_size = 1});
    Layout layout{1, 2, {3, 0, 1}};
    Tensors inputs = check::random_inputs(graph_of(*module), problem, layout, {});
    auto run = [&](const char* cpu) {
      return check::call(
          cpu_device().build(problem, {.direction = Direction::decode, .target_cpu = cpu}), layout,
          inputs);
    };
    Tensors rows = run("znver1"), columns = run("haswell");
    CHECK(rows["o"] == columns["o"]);
    CHECK(rows["final_state"] == columns["final_state"]);
  }
}

// Nobody else's code is run: that would end the process.
TEST_CASE("cpu: code for a processor that can do more than this one is made, but not run") {
  CpuRequest request{.problem = {.op = "gla", .key_dim = 16, .value_dim = 16}};
  request.target_cpu = "x86-64-v3";
  CpuKernel kernel = compiler_for("a test").compile(request);
  CHECK(llvm::is_contained(kernel.needs, "avx2"));
  CHECK(llvm::is_contained(kernel.needs, "fma"));
  CHECK(CpuKernel::parse(kernel.describe(), kernel.code).needs == kernel.needs);
  if (Processor::host().has("avx2")) CHECK(LoadedKernel(kernel).lacking.empty());
  kernel.needs.insert(kernel.needs.begin(), "mind_reading");
  kernel.needs.push_back("avx2048");
  CHECK(LoadedKernel(kernel).lacking == "mind_reading, avx2048");

  if (Processor::host().has("avx512_fp16")) {
    MESSAGE("LLVM 19 knows no processor that can do more");
    return;
  }
  // f16 is what makes them differ.
  Problem problem{.op = "gla", .key_dim = 16, .value_dim = 16, .dtype = DType::f16};
  Op op = cpu_device().build(problem, {.target_cpu = "graniterapids"});
  std::vector<uint16_t> zeros(16), o(16);
  std::vector<float> g(16);
  auto tensor = [](auto& of, DType type) { return Tensor::dense(of.data(), type, {1, 1, 1, 16}); };
  auto run = [&] {
    op.run({{"q", tensor(zeros, DType::f16)},
            {"k", tensor(zeros, DType::f16)},
            {"v", tensor(zeros, DType::f16)},
            {"g", tensor(g, DType::f32)},
            {"scale", 1.f},
            {"o", tensor(o, DType::f16)}});
  };
  CHECK_THROWS_WITH_AS(run(), doctest::Contains("cpu: code for graniterapids needs "), DeviceError);
  CHECK_THROWS_WITH_AS(run(), doctest::Contains("avx512_fp16, which this processor does not have"),
                       DeviceError);
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

namespace {

// Loops of products, and those among them that also move vectors to or from the stack.
std::pair<int, int> product_loops(const std::string& assembly) {
  std::pair<int, int> count;
  std::string label;
  int products = 0, exponentials = 0, stack = 0;
  for (llvm::StringRef line : llvm::split(assembly, '\n')) {
    llvm::StringRef code = line.ltrim();
    if (line.starts_with(".LBB")) {
      label = line.split(':').first.str();
      products = exponentials = stack = 0;
    }
    products += code.starts_with("vfmadd") || code.starts_with("vfnmadd");
    exponentials += code.starts_with("vpslld\t$23");
    stack += code.contains("%ymm") && code.contains("(%rsp)");
    if (!code.starts_with("j")) continue;
    if (products >= 12 && exponentials == 0 && !label.empty() && code.ends_with("\t" + label)) {
      ++count.first;
      count.second += stack > 0;
    }
    label.clear();
  }
  return count;
}

}  // namespace

TEST_CASE("cpu: blocks of sums fit the registers of a processor that has 16") {
  auto context = make_context();
  for (const char* op : {"gated_delta_rule", "kda", "gla"}) {
    CAPTURE(op);
    auto module = derive(*context, ops::find(op).define, {.op = op}, {.chunk_size = 16});
    auto loops = [&](const Schedule& schedule) {
      return product_loops(cpu::assembly_of(TileProgram(graph_of(*module), schedule),
                                            cpu::Target::named("x86-64-v3")));
    };
    auto [all, spilled] = loops({.chunk = 16});
    CHECK(all >= 4);
    CHECK(spilled == 0);
    CHECK(loops({.chunk = 16, .register_rows = 8}).second > 0);  // 19 registers
  }
}
