// Which cases are checked.
#include "tests/check/check.h"
#include "tests/reference/reference.h"

namespace linnet::check {

using namespace chunk;

namespace {

struct Modes {
  bool token_gate = false, strength = false, normalised = false;
};

Modes modes_of(const ops::Entry& op) {
  Modes modes;
  // What stands in front of the law is no part of it: an op known by its law alone is checked as it
  // stands.
  const auto& known = reference::ops();
  if (std::find(known.begin(), known.end(), op.name) == known.end()) return modes;
  auto context = make_context();
  auto module = build_law(*context, op.name, op.define, 4, 4);
  module->walk([&](InputOp input) {
    modes.token_gate |= input.getRole() == Role::gate && input.getScope() == Scope::token;
    modes.strength |= input.getRole() == Role::strength;
    modes.normalised |= input.getRole() == Role::normalised;
  });
  return modes;
}

struct GateMode {
  Gate gate;
  float lower_bound;
  bool has_A_log;
};

std::vector<GateMode> gate_modes(const Modes& modes) {
  if (!modes.token_gate) return {{Gate::pre, 0, true}};
  return {{Gate::pre, 0, true},
          {Gate::pre, -5, true},
          {Gate::softplus, 0, true},
          {Gate::bounded, -5, true},
          {Gate::bounded, -0.60653066f, false}};
}

std::vector<Beta> beta_modes(const Modes& modes) {
  return modes.strength ? std::vector{Beta::plain, Beta::sigmoid, Beta::twice_sigmoid}
                        : std::vector{Beta::plain};
}

const std::vector<int64_t> kChunks = {64, 1, 16, 32};
const std::vector<int64_t> kSizes = {16, 60, 64, 128};
const std::vector<std::vector<int64_t>> kLengths = {
    {1}, {15, 0, 63}, {63, 1}, {130, 0, 15}, {1000}};
const std::vector<std::pair<int64_t, int64_t>> kHeads = {{1, 1}, {1, 2}, {2, 2}};

// Takes the next of a list each time: a sample in which every value meets many of the others.
struct Turns {
  size_t count = 0;
  template <class T>
  T operator()(const std::vector<T>& list, size_t stride = 1) {
    size_t turn = count++;
    return list[(turn * stride + turn / list.size()) % list.size()];
  }
};

Case make(const ops::Entry& op, const GateMode& mode, int64_t chunk) {
  Case c;
  c.law = op.define;
  c.problem.op = op.name;
  c.problem.gate = mode.gate;
  c.problem.lower_bound = mode.lower_bound;
  c.problem.has_A_log = mode.has_A_log;
  c.options.chunk_size = chunk;
  return c;
}

void set_sizes(Case& c, int64_t key, int64_t value, const std::vector<int64_t>& lengths,
               std::pair<int64_t, int64_t> heads) {
  c.problem.key_dim = key;
  c.problem.value_dim = value;
  // Gradients with one number a head (A_log) are sums that nearly cancel: a mean square needs
  // several of them.
  if (precision_of(c.problem) != Precision::f32) heads = {4, 8};
  c.layout = {heads.first, heads.second, lengths};
}

std::vector<Case> sample_of(const ops::Entry& op, const Modes& modes) {
  std::vector<Case> cases;
  Turns keys, values, lengths, heads, betas, norms, formats, extremes;
  auto add = [&](Case c) {
    set_sizes(c, keys(kSizes), values(kSizes, 3), lengths(kLengths), heads(kHeads));
    c.problem.beta = betas(beta_modes(modes));
    c.problem.l2norm = modes.normalised && norms.count++ % 2;
    c.inputs.seed = cases.size();
    cases.push_back(c);
  };
  for (const GateMode& mode : gate_modes(modes)) {
    for (int64_t chunk : kChunks) {
      add(make(op, mode, chunk));  // float64
      Case narrow = make(op, mode, chunk);
      choose_precision(narrow.problem, formats(std::vector{Precision::bf16, Precision::bf16,
                                                           Precision::tf32, Precision::f16}));
      add(narrow);
    }
    Case correlated = make(op, mode, 64);
    correlated.problem.dtype = DType::bf16;
    correlated.inputs.correlated_keys = true;
    add(correlated);
    for (Gates gates : {Gates::lowest, Gates::zero, Gates::at_bound}) {
      if (gates == Gates::lowest && mode.lower_bound < 0) continue;  // outside of what was promised
      Case extreme = make(op, mode, extremes(kChunks));
      extreme.inputs.gates = gates;
      add(extreme);
    }
    Case other = make(op, mode, 32);
    other.options.stages = {true, true};
    add(other);
  }
  return cases;
}

std::vector<Case> product_of(const ops::Entry& op, const Modes& modes) {
  std::vector<Case> cases;
  for (const GateMode& mode : gate_modes(modes))
    for (Beta beta : beta_modes(modes))
      for (bool norm : modes.normalised ? std::vector{false, true} : std::vector{false})
        for (int64_t chunk : kChunks)
          for (int64_t key : kSizes)
            for (int64_t value : kSizes)
              for (const auto& lengths : kLengths)
                for (Precision precision : {Precision::f32, Precision::bf16})
                  for (Gates gates : {Gates::random, Gates::lowest, Gates::zero, Gates::at_bound}) {
                    if (gates == Gates::lowest && mode.lower_bound < 0) continue;
                    Case c = make(op, mode, chunk);
                    choose_precision(c.problem, precision);
                    set_sizes(c, key, value, lengths, kHeads[cases.size() % kHeads.size()]);
                    c.problem.beta = beta;
                    c.problem.l2norm = norm;
                    c.inputs.gates = gates;
                    c.inputs.seed = cases.size();
                    cases.push_back(c);
                  }
  return cases;
}

}  // namespace

std::vector<Case> cases_of(const ops::Entry& op, bool exhaustive) {
  Modes modes = modes_of(op);
  return exhaustive ? product_of(op, modes) : sample_of(op, modes);
}

namespace {

struct Shape {
  int64_t key, value;
  std::vector<int64_t> lengths;
  std::pair<int64_t, int64_t> heads;
};
const std::vector<Shape> kShapes = {{60, 36, {15, 0, 63}, {1, 2}}, {96, 16, {130, 0, 15}, {2, 2}},
                                    {256, 24, {63, 1}, {1, 1}},    {32, 16, {1000}, {1, 2}},
                                    {16, 60, {1}, {2, 4}},         {64, 128, {130}, {1, 1}}};
const std::vector<DType> kFormats = {DType::f32, DType::bf16, DType::f16};

Case device_case(const ops::Entry& op, const GateMode& mode, DType dtype, const Shape& shape) {
  Case c = make(op, mode, 16);
  c.problem.dtype = dtype;
  set_sizes(c, shape.key, shape.value, shape.lengths, shape.heads);
  return c;
}

// The same kernels with gates at their ends and, in bf16, keys that are hard to tell apart.
void add_hard_inputs(std::vector<Case>& cases, const Case& c) {
  for (Gates gates : {Gates::lowest, Gates::zero, Gates::at_bound, Gates::mixed}) {
    bool promised = c.problem.lower_bound < 0;
    if (promised && (gates == Gates::lowest || gates == Gates::mixed)) continue;
    cases.push_back(c);
    cases.back().inputs.gates = gates;
  }
  if (c.problem.dtype != DType::bf16) return;
  cases.push_back(c);
  cases.back().inputs.correlated_keys = true;
}

// Every gate mode and format at least once; everything else in turn, another turn for every op.
std::vector<Case> device_sample_of(const ops::Entry& op, const Modes& modes) {
  std::vector<Case> cases;
  auto gates = gate_modes(modes);
  auto betas = beta_modes(modes);
  size_t turn = op.name.size(), count = std::max(gates.size(), kFormats.size());
  for (size_t i = 0; i < count; ++i, ++turn) {
    Case c = device_case(op, gates[i % gates.size()], kFormats[turn % kFormats.size()],
                         kShapes[turn % kShapes.size()]);
    c.problem.beta = betas[turn % betas.size()];
    c.problem.l2norm = modes.normalised && i % 2;
    c.options.chunk_size = i == 2 ? 32 : 16;
    c.inputs.seed = turn;
    cases.push_back(c);
    if (i < 2) add_hard_inputs(cases, c);
  }
  return cases;
}

std::vector<Case> device_product_of(const ops::Entry& op, const Modes& modes) {
  std::vector<Case> cases;
  for (const GateMode& mode : gate_modes(modes))
    for (Beta beta : beta_modes(modes))
      for (bool norm : modes.normalised ? std::vector{false, true} : std::vector{false})
        for (DType dtype : kFormats)
          for (const Shape& shape : kShapes)
            for (int64_t chunk : {16, 32, 64}) {
              Case c = device_case(op, mode, dtype, shape);
              c.problem.beta = beta;
              c.problem.l2norm = norm;
              c.options.chunk_size = chunk;
              c.inputs.seed = cases.size();
              cases.push_back(c);
              add_hard_inputs(cases, c);
            }
  return cases;
}

}  // namespace

std::vector<Case> device_cases_of(const ops::Entry& op, bool exhaustive) {
  Modes modes = modes_of(op);
  return exhaustive ? device_product_of(op, modes) : device_sample_of(op, modes);
}

std::vector<Result> check_on(const Device& device, const Case& c) {
  if (c.inputs.gates != Gates::random) return finite_on(device, c);
  std::vector<Result> results = compare_on(device, c);
  auto add = [&](std::vector<Result> more) {
    results.insert(results.end(), more.begin(), more.end());
  };
  add(compare_decode_on(device, c));
  int64_t tokens = c.layout.lengths.front();
  if (tokens > 1) {
    Case few = c;
    few.layout = {1, 1, {tokens}};
    add(causal_on(device, few, tokens * 2 / 3));
  }
  return results;
}

std::vector<Result> check(const Case& c) {
  std::vector<Result> results;
  auto add = [&](std::vector<Result> more) {
    results.insert(results.end(), more.begin(), more.end());
  };
  if (c.inputs.gates != Gates::random)
    add(finite(c));
  else
    add(compare(
        c, precision_of(c.problem) == Precision::f32 ? Arithmetic::f64 : Arithmetic::emulated));
  int64_t tokens = c.layout.lengths.front();
  if (tokens > 1 && c.inputs.gates != Gates::lowest) {
    Case few = c;
    few.layout.heads = few.layout.value_heads = 1;
    add(causal(few, tokens * 2 / 3));
  }
  return results;
}

}  // namespace linnet::check
