#include "tests/check/inputs.h"

#include <cmath>
#include <random>

#include "compiler/interpreter/tile.h"

namespace linnet::check {

using namespace chunk;

namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  double uniform() { return (engine_() >> 11) * 0x1p-53; }
  double normal() {
    return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(2 * M_PI * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Rows of unit vectors; if correlated, all within a few degrees of one direction.
void unit_rows(std::vector<double>& values, int64_t width, bool correlated, Random& random) {
  std::vector<double> common(width);
  for (double& x : common) x = random.normal();
  for (size_t row = 0; row < values.size(); row += width) {
    double norm = 0;
    for (int64_t d = 0; d < width; ++d) {
      double& x = values[row + d];
      x = random.normal();
      if (correlated) x = common[d] + 0.1 * x;
      norm += x * x;
    }
    for (int64_t d = 0; d < width; ++d) values[row + d] /= std::sqrt(norm);
  }
}

double gate_value(const Problem& problem, Gates gates, Random& random) {
  switch (gates) {
    case Gates::lowest:
      return -1000;
    case Gates::zero:
      // The activation that gives exactly zero, or as near as it comes: a very small raw gate.
      return problem.gate == Gate::pre ? 0 : -1000;
    case Gates::at_bound:
      return problem.gate == Gate::bounded ? 1000 : -5;
    case Gates::mixed:
      if (random.uniform() < 0.05) return -1000;
      break;
    case Gates::random:
      break;
  }
  if (problem.gate != Gate::pre) return random.normal();
  if (problem.lower_bound < 0) return problem.lower_bound * random.uniform();
  // Mostly mild, now and then a reset.
  return random.uniform() < 0.03 ? -30 * random.uniform()
                                 : std::log(sigmoid(3 + 2 * random.normal()));
}

int64_t elements(mlir::Type type, Scope scope, bool key_heads, const Layout& layout) {
  auto tile = llvm::cast<Tile>(type);
  int64_t heads = key_heads ? layout.heads : layout.value_heads, size = tile.getNumElements();
  if (scope == Scope::token) return layout.tokens() * heads * size / tile.getDimSize(0);
  if (scope == Scope::sequence) return static_cast<int64_t>(layout.lengths.size()) * heads * size;
  return scope == Scope::head ? heads * size : size;
}

// Inputs whose law only contracts when they are tied to one another.
void tie(Tensors& inputs, const Problem& problem, Random& random) {
  auto scale_of = [&](const char* to, const char* from, auto factor) {
    for (size_t i = 0; i < inputs[to].size(); ++i) inputs[to][i] = inputs[from][i] * factor();
  };
  if (problem.op == "comba") scale_of("p", "k", [] { return 0.75; });
  if (problem.op == "rwkv7") scale_of("b", "a", [&] { return -random.uniform(); });
}

}  // namespace

Tensors random_inputs(GraphOp forward, const Problem& problem, const Layout& layout,
                      const InputOptions& options) {
  Random random(options.seed * 7919 + 17);
  Tensors inputs;
  for (auto input : forward.getBody().getOps<InputOp>()) {
    std::string name = input.getName().str();
    auto& values = inputs[name];
    values.resize(elements(input.getType(), input.getScope(), input.getKeyHeads(), layout));
    auto fill = [&](auto make) {
      for (double& x : values) x = make();
    };
    bool is_key = input.getScope() == Scope::token && has_axis(input.getType(), Axis::key);
    if (input.getScope() == Scope::constant)
      fill([&] { return static_cast<float>(1 / std::sqrt(problem.key_dim)); });
    else if (input.getRole() == Role::gate && input.getScope() == Scope::head)
      fill([&] {
        return options.gates == Gates::random ? -0.2 * random.uniform()
                                              : gate_value(problem, options.gates, random);
      });
    else if (input.getRole() == Role::gate)
      fill([&] { return gate_value(problem, options.gates, random); });
    else if (input.getRole() == Role::strength)
      fill(
          [&] { return problem.beta == Beta::plain ? sigmoid(random.normal()) : random.normal(); });
    else if (name == "A_log")
      fill([&] { return std::log(0.1 + 2 * random.uniform()); });
    else if (is_key && input.getKeyHeads() && name != "q")
      unit_rows(values, problem.key_dim, options.correlated_keys, random);
    else if (problem.op == "gdn2" && (name == "b" || name == "w"))
      fill([&] { return random.uniform(); });
    else
      fill([&] { return random.normal(); });
  }
  tie(inputs, problem, random);
  for (auto input : forward.getBody().getOps<InputOp>()) {
    // Every input is a number of its stored format, or of f32: the reference then sees the same
    // ones.
    auto precision = input.getStorage().value_or(Precision::f32);
    for (double& x : inputs[input.getName().str()])
      x = interpreter::round_to(static_cast<float>(x), precision);
  }
  return inputs;
}

Tensors random_numbers(const std::string& name, size_t count, uint64_t seed) {
  for (char letter : name) seed = seed * 31 + letter;
  Random random(seed);
  Tensors numbers;
  for (size_t i = 0; i < count; ++i) numbers[name].push_back(random.normal());
  return numbers;
}

Tensors random_output_gradients(GraphOp forward, const Layout& layout, uint64_t seed) {
  Random random(seed * 104729 + 5);
  Tensors gradients;
  for (auto output : forward.getBody().getOps<OutputOp>()) {
    auto& values = gradients["d" + output.getName().str()];
    values.resize(elements(output.getValue().getType(), output.getScope(), false, layout));
    auto precision = output.getStorage().value_or(Precision::f32);
    for (double& x : values)
      x = interpreter::round_to(static_cast<float>(random.normal()), precision);
  }
  return gradients;
}

}  // namespace linnet::check
