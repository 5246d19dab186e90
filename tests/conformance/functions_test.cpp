// Elementary functions of the CPU back end against float64: laws that apply them to an input.
#include <doctest/doctest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <functional>
#include <random>

#include "compiler/cpu/jit.h"
#include "compiler/pipeline.h"
#include "runtime/cpu/op.h"

using namespace linnet;

namespace {

Expr exponential(Operand x) { return exp(x); }
Expr logarithm(Operand x) { return log(x); }
Expr root(Operand x) { return sqrt(x); }
Expr inverse_root(Operand x) { return Operand(1.0) / sqrt(x); }
Expr hyperbolic(Operand x) { return tanh(x); }
Expr logistic(Operand x) { return sigmoid(x); }
Expr soft(Operand x) { return softplus(x); }

// o = f(x): a law has to read its state, which here stays zero.
template <Expr (*f)(Operand)>
void probe(Law& law) {
  auto S = law.state();
  auto q = law.key("q"), k = law.key("k"), v = law.value("v"), x = law.value("x");
  write(S, k, v);
  out("o", read(S, q) + f(x));
}

struct Function {
  std::string name;
  LawFunction law;
  double (*exact)(double);
};

const Function kFunctions[] = {
    {"exp", probe<exponential>, [](double x) { return std::exp(x); }},
    {"log", probe<logarithm>, [](double x) { return std::log(x); }},
    {"sqrt", probe<root>, [](double x) { return std::sqrt(x); }},
    {"1 / sqrt", probe<inverse_root>, [](double x) { return 1 / std::sqrt(x); }},
    {"tanh", probe<hyperbolic>, [](double x) { return std::tanh(x); }},
    {"sigmoid", probe<logistic>,
     [](double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }},
    {"softplus", probe<soft>,
     [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }},
};

// A law's kernel, called for one sequence and head; inputs but x are zero.
class Probe {
 public:
  explicit Probe(LawFunction law) : kernel_(compile(law)) {}

  std::vector<float> operator()(std::vector<float> x) const {
    const CpuKernel& kernel = kernel_.kernel;
    size_t count = x.size();
    int64_t rows = (static_cast<int64_t>(count) + kWidth - 1) / kWidth;
    x.resize(rows * kWidth);
    std::map<std::string, std::vector<float>> memory;
    std::vector<float> scratch(kernel.scratch_floats + 64),
        workspace((rows / kernel.chunk + 1) * kernel.kept_floats + 64);
    std::vector<int64_t> slots = {
        rows, address(scratch), address(workspace), 0, 0, 1, 0, 1, 0, 0, 0, 0,
    };
    for (const KernelArgument& a : kernel.arguments) {
      auto& own = memory[a.name];
      own.resize(std::max(rows, kWidth) * kWidth);
      if (a.name == "x") own = x;
      slots.push_back(address(own));
      slots.push_back(kWidth);
      slots.push_back(0);  // there is one head
    }
    REQUIRE(slots.size() ==
            CpuKernel::kFirstArgument + CpuKernel::kArgumentSlots * kernel.arguments.size());
    for (Code::Function function : kernel_.functions) function(slots.data());
    std::vector<float> o = memory.at("o");
    o.resize(count);
    return o;
  }

 private:
  static constexpr int64_t kWidth = 16;

  static int64_t address(std::vector<float>& memory) {
    return std::bit_cast<int64_t>(memory.data());
  }
  static CpuKernel compile(LawFunction law) {
    auto context = make_context();
    auto module = derive(*context, law, {.op = "probe", .key_dim = kWidth, .value_dim = kWidth},
                         {.chunk_size = 16});
    return cpu::compile({TileProgram(graph_of(*module), {.chunk = 16})}, cpu::Target::host());
  }

  LoadedKernel kernel_;
};

// Units in the last place of the float nearest to the truth. What is too small for a normal float
// may be zero.
double ulps(float got, double truth) {
  if (std::isnan(truth) || std::isnan(got))
    return std::isnan(truth) == std::isnan(got) ? 0 : INFINITY;
  auto nearest = static_cast<float>(truth);
  if (std::isinf(nearest) || std::isinf(got)) return nearest == got ? 0 : INFINITY;
  if (std::fabs(truth) < FLT_MIN) return std::fabs(got) <= FLT_MIN ? 0 : INFINITY;
  double unit = std::ldexp(1.0, std::ilogb(truth) - 23);
  return std::fabs(got - truth) / unit;
}

// Every size of number, and many in the range where functions bend.
std::vector<float> samples() {
  std::mt19937 random(1);
  std::vector<float> x;
  for (uint32_t exponent = 0; exponent < 255; ++exponent)
    for (int i = 0; i < 400; ++i)
      x.push_back(
          std::bit_cast<float>(static_cast<uint32_t>(random() & 0x807fffff) | exponent << 23));
  for (float most : {1.f, 20.f, 120.f})
    for (int i = 0; i < 100'000; ++i)
      x.push_back(most * (2 * static_cast<float>(random()) / 4294967296.f - 1));
  return x;
}

}  // namespace

TEST_CASE("cpu: exp, log, sqrt, 1 / sqrt, tanh, sigmoid and softplus are within 2 ulp of float64") {
  const std::vector<float> x = samples();
  for (const Function& function : kFunctions) {
    std::vector<float> y = Probe(function.law)(x);
    double worst = 0;
    float at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      double error = ulps(y[i], function.exact(x[i]));
      if (error > worst) worst = error, at = x[i];
    }
    CAPTURE(function.name);
    CAPTURE(at);
    CHECK(worst <= 2);
    MESSAGE(function.name, ": ", worst, " ulp at ", at);
  }
}

TEST_CASE("cpu: elementary functions keep their special values, and NaN stays NaN") {
  const std::vector<float> x = {0.f,       -0.f,     1e-45f,   -1e-45f, 1.1e-38f, INFINITY,
                                -INFINITY, FLT_MAX,  -FLT_MAX, NAN,     -NAN,     1.f,
                                88.72f,    88.7229f, -87.33f,  -87.34f, -103.f,   FLT_MIN};
  for (const Function& function : kFunctions) {
    std::vector<float> y = Probe(function.law)(x);
    for (size_t i = 0; i < x.size(); ++i) {
      CAPTURE(function.name);
      CAPTURE(x[i]);
      CAPTURE(y[i]);
      CHECK(ulps(y[i], function.exact(x[i])) <= 2);
    }
  }
}
