#include "tests/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "tests/reference/laws.h"

namespace linnet::reference {
namespace {

const Op& find_op(const std::string& name) {
  const auto& table = op_table();
  auto op = std::find_if(table.begin(), table.end(), [&](auto& x) { return x.name == name; });
  if (op == table.end()) throw std::invalid_argument("reference: unknown op '" + name + "'");
  return *op;
}

// A case that has been checked, with the sizes that follow from it.
struct Problem {
  explicit Problem(const Case& c);

  int64_t elements(Layout) const;
  int64_t state_elements() const { return c.key_dim * c.value_dim; }
  int64_t output_elements() const { return tokens * c.value_heads * c.value_dim; }
  int64_t all_states_elements() const {
    return static_cast<int64_t>(c.lengths.size()) * c.value_heads * state_elements();
  }

  const Case& c;
  const Op& op;
  int64_t tokens;
  std::map<std::string, Layout> inputs;  // the op's and those of the gate activation
};

Problem::Problem(const Case& the_case)
    : c(the_case),
      op(find_op(c.op)),
      tokens(std::accumulate(c.lengths.begin(), c.lengths.end(), int64_t{0})),
      inputs(op.inputs) {
  auto require = [&](bool ok, const std::string& what) {
    if (!ok) throw std::invalid_argument("reference: " + op.name + ": " + what);
  };
  require(c.heads > 0 && c.value_heads > 0 && c.value_heads % c.heads == 0,
          "value_heads " + std::to_string(c.value_heads) + " is not a multiple of heads " +
              std::to_string(c.heads));
  require(c.key_dim > 0 && c.value_dim > 0, "key_dim and value_dim must be positive");
  require(std::all_of(c.lengths.begin(), c.lengths.end(), [](int64_t n) { return n >= 0; }),
          "a sequence has a negative length");
  require(!c.l2norm || op.allows_l2norm, "has no l2norm");
  require(c.beta == Beta::plain || inputs.contains("beta") || inputs.contains("beta1"),
          "has no beta to activate");
  if (c.gate == Gate::pre) return;
  auto g = inputs.find("g");
  require(g != inputs.end() && g->second.rows == Rows::token_value_head,
          "has no token gate to activate");
  inputs["dt_bias"] = {Rows::value_head, g->second.width};
  if (c.gate == Gate::softplus || c.has_A_log) inputs["A_log"] = {Rows::value_head, Width::one};
}

int64_t Problem::elements(Layout layout) const {
  const int64_t width = width_of(c, layout);
  switch (layout.rows) {
    case Rows::token_key_head:
      return tokens * c.heads * width;
    case Rows::token_value_head:
      return tokens * c.value_heads * width;
    case Rows::value_head:
      break;
  }
  return c.value_heads * width;
}

// The data of a tensor of the expected size.
const double* fetch(const Problem& p, const Tensors& tensors, const std::string& name,
                    int64_t expected) {
  auto found = tensors.find(name);
  if (found == tensors.end()) {
    throw std::invalid_argument("reference: " + p.op.name + ": tensor '" + name +
                                "' is missing, expected " + std::to_string(expected) + " elements");
  }
  if (static_cast<int64_t>(found->second.size()) != expected) {
    throw std::invalid_argument("reference: " + p.op.name + ": tensor '" + name + "' has " +
                                std::to_string(found->second.size()) + " elements, expected " +
                                std::to_string(expected));
  }
  return found->second.data();
}

// The states given under a name that may be missing: zeros.
std::vector<double> fetch_states(const Problem& p, const Tensors& tensors,
                                 const std::string& name) {
  const int64_t size = p.all_states_elements();
  if (!tensors.contains(name)) return std::vector<double>(size);
  const double* data = fetch(p, tensors, name, size);
  return {data, data + size};
}

template <class Known>
void refuse_unknown(const Problem& p, const Tensors& tensors, Known known) {
  for (const auto& [name, tensor] : tensors) {
    if (!known(name)) {
      throw std::invalid_argument("reference: " + p.op.name + ": does not take a tensor '" + name +
                                  "' of " + std::to_string(tensor.size()) + " elements");
    }
  }
}

std::map<std::string, Input> bind_inputs(const Problem& p, const Tensors& tensors) {
  refuse_unknown(p, tensors, [&](const std::string& name) {
    return name == "initial_state" || p.inputs.contains(name);
  });
  std::map<std::string, Input> bound;
  for (const auto& [name, layout] : p.inputs) {
    bound[name] = {layout, fetch(p, tensors, name, p.elements(layout))};
  }
  return bound;
}

// Calls body(first token, length, value head, offset of its state) for all sequences and heads.
template <class Body>
void for_each_scan(const Problem& p, Body body) {
  int64_t first = 0, state = 0;
  for (int64_t length : p.c.lengths) {
    for (int64_t head = 0; head < p.c.value_heads; ++head) {
      body(first, length, head, state);
      state += p.state_elements();
    }
    first += length;
  }
}

}  // namespace

const std::vector<std::string>& ops() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Op& op : op_table()) list.push_back(op.name);
    return list;
  }();
  return names;
}

Tensors forward(const Case& c, const Tensors& tensors) {
  const Problem p(c);
  const auto inputs = bind_inputs(p, tensors);
  std::vector<double> o(p.output_elements());
  std::vector<double> states = fetch_states(p, tensors, "initial_state");

  Tape tape(c.key_dim, c.value_dim);
  Token token(c, inputs, tape);
  for_each_scan(p, [&](int64_t first, int64_t length, int64_t head, int64_t state) {
    tape.restart(&states[state]);
    for (int64_t t = first; t < first + length; ++t) {
      token.move_to(t, head, o.data(), nullptr);
      p.op.law(token);
      tape.restart();
    }
    std::copy(tape.state().begin(), tape.state().end(), &states[state]);
  });
  return {{"o", std::move(o)}, {"final_state", std::move(states)}};
}

Tensors backward(const Case& c, const Tensors& tensors, const Tensors& output_gradients) {
  const Problem p(c);
  auto inputs = bind_inputs(p, tensors);
  refuse_unknown(p, output_gradients,
                 [](const std::string& name) { return name == "do" || name == "dfinal_state"; });
  const double* d_o = fetch(p, output_gradients, "do", p.output_elements());
  const std::vector<double> states = fetch_states(p, tensors, "initial_state");
  std::vector<double> d_states = fetch_states(p, output_gradients, "dfinal_state");

  Tensors gradients;
  for (auto& [name, input] : inputs) {
    auto& gradient = gradients["d" + name];
    gradient.resize(p.elements(input.layout));
    input.gradient = gradient.data();
  }

  std::vector<double> o(p.output_elements());  // computed again on the way
  Tape tape(c.key_dim, c.value_dim);
  Token token(c, inputs, tape);
  for_each_scan(p, [&](int64_t first, int64_t length, int64_t head, int64_t state) {
    auto run = [&](int64_t t) {
      token.move_to(t, head, o.data(), d_o);
      p.op.law(token);
    };
    // Keep the state before every segment of about sqrt(length) tokens; then, last segment first,
    // record the segment again from there and reverse it.
    const int64_t segment = std::max<int64_t>(1, std::lround(std::sqrt(length)));
    std::vector<std::vector<double>> checkpoints;
    tape.restart(&states[state]);
    for (int64_t t = 0; t < length; ++t) {
      if (t % segment == 0) checkpoints.push_back(tape.state());
      run(first + t);
      tape.restart();
    }
    std::vector<double> d_state(&d_states[state], &d_states[state] + p.state_elements());
    for (int64_t s = std::ssize(checkpoints) - 1; s >= 0; --s) {
      tape.restart(checkpoints[s].data());
      for (int64_t t = s * segment; t < std::min(length, (s + 1) * segment); ++t) run(first + t);
      tape.reverse(d_state);
    }
    std::copy(d_state.begin(), d_state.end(), &d_states[state]);
  });
  gradients["dinitial_state"] = std::move(d_states);
  return gradients;
}

}  // namespace linnet::reference
