#include "tests/check/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "linnet/error.h"
#include "tests/reference/reference.h"

namespace linnet::check {

using namespace chunk;

namespace {

struct Graphs {
  explicit Graphs(const Case& c) : context(make_context()) {
    PipelineOptions options = c.options;
    options.direction = Direction::forward;
    forward_module = derive(*context, c.law, c.problem, options);
    options.direction = Direction::backward;
    backward_module = derive(*context, c.law, c.problem, options);
    forward = graph_of(*forward_module);
    backward = graph_of(*backward_module);
  }
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> forward_module, backward_module;
  GraphOp forward, backward;
};

reference::Case reference_case(const Case& c, double scale) {
  const Problem& p = c.problem;
  reference::Case r;
  r.op = p.op;
  r.gate = static_cast<reference::Gate>(p.gate);
  r.lower_bound = p.lower_bound;
  r.has_A_log = p.has_A_log;
  r.beta = static_cast<reference::Beta>(p.beta);
  r.l2norm = p.l2norm;
  r.heads = c.layout.heads;
  r.value_heads = c.layout.value_heads;
  r.key_dim = p.key_dim;
  r.value_dim = p.value_dim;
  r.scale = scale;
  r.lengths = c.layout.lengths;
  return r;
}

Tensors merged(Tensors a, const Tensors& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// A result of another size, or one that is not a number, is as wrong as can be.
double largest_error(const std::vector<double>& x, const std::vector<double>& ref) {
  double error = x.size() == ref.size() ? 0 : INFINITY, size = 1;
  for (size_t i = 0; i < std::min(x.size(), ref.size()); ++i) {
    double difference = std::fabs(x[i] - ref[i]);
    error = std::max(error, std::isnan(difference) ? INFINITY : difference);
    size = std::max(size, std::fabs(ref[i]));
  }
  return error / size;
}

double rms_ratio(const std::vector<double>& x, const std::vector<double>& ref) {
  double error = x.size() == ref.size() ? 0 : INFINITY, size = 0;
  for (size_t i = 0; i < std::min(x.size(), ref.size()); ++i) {
    error += (x[i] - ref[i]) * (x[i] - ref[i]);
    size += ref[i] * ref[i];
  }
  return std::sqrt(error / std::max(size, 1e-30));
}

struct Limits {
  bool rms;
  double output, gradient;
};

Limits limits_of(const Case& c, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::f64) return {false, 1e-10, 1e-8};
  if (precision_of(c.problem) == Precision::f32) return {true, 2e-6, 2e-5};
  if (c.inputs.correlated_keys) return {true, 0.015, 0.015};
  return {true, 0.005, 0.01};
}

}  // namespace

std::string Case::name() const {
  const Problem& p = problem;
  static const char* gates[] = {"pre", "softplus", "bounded"};
  static const char* betas[] = {"plain", "sigmoid", "2 sigmoid"};
  static const char* kinds[] = {"", ", gates at -1000", ", gates 0", ", gates at the bound",
                                ", gates with resets of -1000"};
  std::string bound = p.lower_bound < 0 ? fmt::format(" >= {}", p.lower_bound) : "";
  return fmt::format(
             "{}: gate {}{}{}, beta {}{}, chunk {}, K {}, V {}, heads {}/{}, T {}, {}{}{}{}{}",
             p.op, gates[static_cast<int>(p.gate)], bound, p.has_A_log ? "" : " without A_log",
             betas[static_cast<int>(p.beta)], p.l2norm ? ", l2 norm" : "", options.chunk_size,
             p.key_dim, p.value_dim, layout.heads, layout.value_heads,
             fmt::join(layout.lengths, "+"), stringifyPrecision(precision_of(p)).str(),
             kinds[static_cast<int>(inputs.gates)],
             inputs.correlated_keys ? ", correlated keys" : "",
             options.stages.separate_output ? ", separate output" : "",
             options.stages.distribute_inverse ? ", inverse distributed" : "") +
         (schedule ? fmt::format(", {}", schedule->describe()) : "");
}

namespace {

// Holds values against the truth by name; the failures, or the one that came nearest to its limit.
std::vector<Result> judge(const Tensors& derived, const Tensors& truth, const Limits& limits) {
  std::vector<Result> failures;
  Result worst{true, "no outputs", 0, limits.output};
  for (const auto& [name, expected] : truth) {
    auto found = derived.find(name);
    if (found == derived.end()) {
      failures.push_back({false, name + " is missing from the graph's outputs"});
      continue;
    }
    double error =
        limits.rms ? rms_ratio(found->second, expected) : largest_error(found->second, expected);
    double limit = name == "o" || name == "final_state" ? limits.output : limits.gradient;
    Result result{error <= limit,
                  fmt::format("{} {}", name, limits.rms ? "rms ratio" : "largest error"), error,
                  limit};
    if (!result.passed) failures.push_back(result);
    if (error / limit >= worst.error / worst.limit) worst = result;
  }
  return failures.empty() ? std::vector{worst} : failures;
}

double inner(const Tensors& a, const Tensors& gradients) {
  double sum = 0;
  for (const auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i) sum += values[i] * gradients.at("d" + name)[i];
  return sum;
}

// The law's outputs, and for every gradient its product with one random direction, by central
// differences of the law. The derived gradients are replaced by their products with the same
// directions. Narrow formats, too coarse for that, are held against the float64 gradients instead.
Tensors truth_by_law(const Case& c, const Graphs& graphs, Arithmetic arithmetic,
                     const Tensors& inputs, const Tensors& gradients, Tensors& derived) {
  auto context = make_context();
  auto module = build_law(*context, c.problem.op, c.law, c.problem.key_dim, c.problem.value_dim);
  LawOp law = *module->getOps<LawOp>().begin();
  Tensors truth = interpret(law, c.layout, inputs);
  if (arithmetic != Arithmetic::f64)
    return merged(truth,
                  interpret(graphs.backward, c.layout, merged(inputs, gradients), Arithmetic::f64));
  constexpr int64_t kFewTokens =
      150;  // four runs of the law for each input: not for long sequences
  for (const auto& [name, values] : inputs) {
    auto gradient = derived.find("d" + name);
    if (gradient == derived.end() || c.layout.tokens() > kFewTokens) continue;
    Tensors direction = random_numbers(name, values.size(), c.inputs.seed);
    auto along = [&](double step) {
      Tensors moved = inputs;
      for (size_t i = 0; i < values.size(); ++i) moved[name][i] += step * direction[name][i];
      return inner(interpret(law, c.layout, moved), gradients);
    };
    constexpr double h = 1e-3;
    truth[gradient->first] = {(8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) /
                              (12 * h)};
    double product = 0;
    for (size_t i = 0; i < values.size(); ++i) product += gradient->second[i] * direction[name][i];
    gradient->second = {product};
  }
  return truth;
}

}  // namespace

namespace {

using Runner = std::function<Tensors(GraphOp, const Tensors&)>;

std::vector<Result> compare_with(const Case& c, Arithmetic arithmetic, const Runner& run) {
  Graphs graphs(c);
  Tensors inputs = random_inputs(graphs.forward, c.problem, c.layout, c.inputs);
  Tensors gradients = random_output_gradients(graphs.forward, c.layout, c.inputs.seed);
  Tensors derived =
      merged(run(graphs.forward, inputs), run(graphs.backward, merged(inputs, gradients)));
  const auto& known = reference::ops();
  if (std::find(known.begin(), known.end(), c.problem.op) == known.end())
    return judge(derived, truth_by_law(c, graphs, arithmetic, inputs, gradients, derived),
                 limits_of(c, arithmetic));
  double scale = inputs.contains("scale") ? inputs["scale"][0] : 1;
  inputs.erase("scale");
  auto reference = reference_case(c, scale);
  Tensors truth = merged(reference::forward(reference, inputs),
                         reference::backward(reference, inputs, gradients));
  return judge(derived, truth, limits_of(c, arithmetic));
}

}  // namespace

namespace {

Runner interpreter(const Case& c, Arithmetic arithmetic) {
  return [&c, arithmetic](GraphOp graph, const Tensors& inputs) {
    return interpret(graph, c.layout, inputs, arithmetic);
  };
}

// The op of the graph's direction, built for a device.
Runner runner_on(const Device& device, const Case& c) {
  return [&](GraphOp graph, const Tensors& inputs) {
    bool backward = llvm::any_of(graph.getBody().getOps<InputOp>(),
                                 [](InputOp input) { return input.getName() == "do"; });
    BuildOptions how{.direction = backward ? Direction::backward : Direction::forward,
                     .schedule = c.schedule,
                     .chunk = c.options.chunk_size,
                     .target_cpu = c.target_cpu};
    return call(device.build(c.problem, how), c.layout, inputs);
  };
}

Runner decoder_on(const Device& device, const Case& c) {
  return [&](GraphOp, const Tensors& inputs) {
    BuildOptions how{.direction = Direction::decode, .target_cpu = c.target_cpu};
    return call(device.build(c.problem, how), c.layout, inputs);
  };
}

// The case with sequences as decode takes them.
Case decoded(Case c) {
  c.layout.lengths = {8, 0, 1, 3};
  return c;
}

std::vector<Result> only_finite(const Tensors& results) {
  std::vector<Result> failures;
  for (const auto& [name, values] : results)
    for (double x : values)
      if (!std::isfinite(x)) {
        failures.push_back({false, fmt::format("{} holds {}", name, x)});
        break;
      }
  return failures.empty() ? std::vector<Result>{{true, "everything finite"}} : failures;
}

std::vector<Result> causal_with(const Case& c, int64_t token, const Runner& run) {
  Graphs graphs(c);
  Tensors inputs = random_inputs(graphs.forward, c.problem, c.layout, c.inputs), changed = inputs;
  InputOptions other = c.inputs;
  other.seed += 1000;
  other.gates = Gates::random;
  Tensors fresh = random_inputs(graphs.forward, c.problem, c.layout, other);
  for (auto input : graphs.forward.getBody().getOps<InputOp>()) {
    if (input.getScope() != Scope::token) continue;
    auto& values = changed[input.getName().str()];
    int64_t width = values.size() / c.layout.tokens();
    std::copy_n(fresh[input.getName().str()].begin() + token * width, width,
                values.begin() + token * width);
  }
  auto before = run(graphs.forward, inputs)["o"], after = run(graphs.forward, changed)["o"];
  int64_t earlier = token * static_cast<int64_t>(before.size()) / c.layout.tokens();
  for (int64_t i = 0; i < earlier; ++i)
    if (before[i] != after[i])
      return {
          {false, fmt::format("token {} changed when token {} did",
                              i * c.layout.tokens() / static_cast<int64_t>(before.size()), token)}};
  if (before == after) return {{false, fmt::format("nothing changed with token {}", token)}};
  return {{true, fmt::format("outputs before token {} kept their bits", token)}};
}

}  // namespace

std::vector<Result> compare(const Case& c, Arithmetic arithmetic) {
  return compare_with(c, arithmetic, interpreter(c, arithmetic));
}

std::vector<Result> compare_on(const Device& device, const Case& c) {
  return compare_with(c, Arithmetic::emulated, runner_on(device, c));
}

namespace {

// Outputs alone.
std::vector<Result> compare_outputs(const Case& c, const Runner& run) {
  Graphs graphs(c);
  Tensors inputs = random_inputs(graphs.forward, c.problem, c.layout, c.inputs);
  Tensors derived = run(graphs.forward, inputs);
  double scale = inputs.contains("scale") ? inputs["scale"][0] : 1;
  inputs.erase("scale");
  return judge(derived, reference::forward(reference_case(c, scale), inputs),
               limits_of(c, Arithmetic::emulated));
}

}  // namespace

std::vector<Result> compare_decode_on(const Device& device, const Case& c) {
  Case few = decoded(c);
  auto results = compare_outputs(few, decoder_on(device, few));
  for (Result& result : results) result.measure = "decode " + result.measure;
  return results;
}

std::vector<Result> compare_forward_on(const Device& device, const Case& c) {
  return compare_outputs(c, runner_on(device, c));
}

std::vector<Result> finite(const Case& c) {
  Graphs graphs(c);
  Tensors inputs = random_inputs(graphs.forward, c.problem, c.layout, c.inputs);
  Tensors gradients = random_output_gradients(graphs.forward, c.layout, c.inputs.seed);
  Runner run = interpreter(c, Arithmetic::emulated);
  return only_finite(
      merged(run(graphs.forward, inputs), run(graphs.backward, merged(inputs, gradients))));
}

std::vector<Result> finite_on(const Device& device, const Case& c) {
  Graphs graphs(c);
  Tensors inputs = random_inputs(graphs.forward, c.problem, c.layout, c.inputs);
  Tensors gradients = random_output_gradients(graphs.forward, c.layout, c.inputs.seed);
  Runner run = runner_on(device, c);
  Tensors results =
      merged(run(graphs.forward, inputs), run(graphs.backward, merged(inputs, gradients)));
  Case few = decoded(c);
  inputs = random_inputs(graphs.forward, few.problem, few.layout, few.inputs);
  for (auto& [name, values] : decoder_on(device, few)(graphs.forward, inputs))
    results["decoded " + name] = values;
  return only_finite(results);
}

std::vector<Result> causal(const Case& c, int64_t token) {
  return causal_with(c, token, interpreter(c, Arithmetic::emulated));
}

std::vector<Result> causal_on(const Device& device, const Case& c, int64_t token) {
  return causal_with(c, token, runner_on(device, c));
}

}  // namespace linnet::check
