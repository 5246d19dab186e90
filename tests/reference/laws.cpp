#include "tests/reference/laws.h"

namespace linnet::reference {
namespace {

// The laws. Order matters: MATH.md a, rules (i)-(iii).

void delta_step(Token& t, Vec k, Vec v, Vec beta) {
  Vec e = v - t.read(k);
  t.write(k, beta * e);
}

void linear_attention(Token& t) {
  t.write(t.key("k"), t.input("v"));
  t.output(t.read(t.key("q")));
}

void constant_decay(Token& t) {
  t.decay(t.input("g"));
  linear_attention(t);
}

void gated_linear_attention(Token& t) {
  t.decay(t.gate());
  linear_attention(t);
}

void delta_rule(Token& t) {
  delta_step(t, t.key("k"), t.input("v"), t.strength());
  t.output(t.read(t.key("q")));
}

void gated_delta_rule(Token& t) {
  t.decay(t.gate());
  delta_rule(t);
}

void comba(Token& t) {
  Vec r = t.read(t.key("p"));  // of the state not yet decayed
  t.decay(t.gate());
  t.write(t.key("k"), t.strength() * (t.input("v") - r));
  t.output(t.read(t.key("q")));
}

void gdn2(Token& t) {
  Vec k = t.key("k");
  t.decay(t.gate());
  t.write(k, t.input("w") * t.input("v") - t.read(t.input("b") * k));
  t.output(t.read(t.key("q")));
}

void rwkv6(Token& t) {
  Vec q = t.input("q"), k = t.input("k"), v = t.input("v");
  t.output(t.read(q) + sum(q * t.input("u") * k) * v);  // of the state before the token
  t.decay(t.gate());
  t.write(k, v);
}

void rwkv7(Token& t) {
  Vec r = t.read(t.input("a"));  // of the state not yet decayed
  t.decay(t.gate());
  t.write(t.input("b"), r);
  t.write(t.input("k"), t.input("v"));
  t.output(t.read(t.input("q")));
}

void gated_delta_product(Token& t) {
  t.decay(t.gate());
  delta_step(t, t.key("k1"), t.input("v1"), t.strength("beta1"));
  delta_step(t, t.key("k2"), t.input("v2"), t.strength("beta2"));
  t.output(t.read(t.key("q")));
}

constexpr Layout keys{Rows::token_key_head, Width::key};
constexpr Layout values{Rows::token_value_head, Width::value};
constexpr Layout vectors{Rows::token_value_head, Width::key};
constexpr Layout scalars{Rows::token_value_head, Width::one};
constexpr Layout head_vector{Rows::value_head, Width::key};
constexpr Layout head_scalar{Rows::value_head, Width::one};

}  // namespace

const std::vector<Op>& op_table() {
  using Inputs = std::map<std::string, Layout>;
  auto qkv_and = [](Inputs more) {
    more.insert({{"q", keys}, {"k", keys}, {"v", values}});
    return more;
  };
  static const std::vector<Op> table = {
      {"linear_attention", qkv_and({}), linear_attention},
      {"retention", qkv_and({{"g", head_scalar}}), constant_decay},
      {"lightning", qkv_and({{"g", head_scalar}}), constant_decay},
      {"simple_gla", qkv_and({{"g", scalars}}), gated_linear_attention},
      {"gla", qkv_and({{"g", vectors}}), gated_linear_attention},
      {"delta_rule", qkv_and({{"beta", scalars}}), delta_rule},
      {"gated_delta_rule", qkv_and({{"g", scalars}, {"beta", scalars}}), gated_delta_rule},
      {"kda", qkv_and({{"g", vectors}, {"beta", scalars}}), gated_delta_rule},
      {"comba", qkv_and({{"p", keys}, {"g", scalars}, {"beta", scalars}}), comba},
      {"gdn2", qkv_and({{"g", vectors}, {"b", vectors}, {"w", values}}), gdn2},
      {"rwkv6", qkv_and({{"g", vectors}, {"u", head_vector}}), rwkv6, false},
      {"rwkv7", qkv_and({{"a", keys}, {"b", keys}, {"g", vectors}}), rwkv7, false},
      {"gated_delta_product",
       {{"q", keys},
        {"k1", keys},
        {"v1", values},
        {"beta1", scalars},
        {"k2", keys},
        {"v2", values},
        {"beta2", scalars},
        {"g", scalars}},
       gated_delta_product},
  };
  return table;
}

int64_t width_of(const Case& c, Layout layout) {
  switch (layout.width) {
    case Width::key:
      return c.key_dim;
    case Width::value:
      return c.value_dim;
    case Width::one:
      break;
  }
  return 1;
}

void Token::move_to(int64_t token, int64_t value_head, double* o, const double* d_o) {
  const int64_t offset = (token * case_.value_heads + value_head) * case_.value_dim;
  token_ = token;
  value_head_ = value_head;
  o_ = o + offset;
  d_o_ = d_o ? d_o + offset : nullptr;
}

Vec Token::input(const std::string& name) const {
  const Input& input = inputs_.at(name);
  int64_t row = value_head_;
  if (input.layout.rows == Rows::token_value_head) row += token_ * case_.value_heads;
  if (input.layout.rows == Rows::token_key_head) {
    row = token_ * case_.heads + value_head_ / (case_.value_heads / case_.heads);
  }
  const int64_t width = width_of(case_, input.layout), offset = row * width;
  double* gradient = input.gradient ? input.gradient + offset : nullptr;
  return {&tape_, input.value + offset, gradient, width};
}

Vec Token::key(const std::string& name) const {
  return case_.l2norm ? tape_.l2norm(input(name)) : input(name);
}

Vec Token::strength(const std::string& name) const {
  switch (case_.beta) {
    case Beta::sigmoid:
      return tape_.sigmoid(input(name), 1);
    case Beta::twice_sigmoid:
      return tape_.sigmoid(input(name), 2);
    case Beta::plain:
      break;
  }
  return input(name);
}

Vec Token::gate() const {
  Vec g = input("g");
  if (case_.gate == Gate::pre) return g;
  Vec A_log = inputs_.contains("A_log") ? input("A_log") : Vec();
  Vec dt_bias = input("dt_bias");
  return case_.gate == Gate::softplus ? tape_.softplus_gate(g, A_log, dt_bias)
                                      : tape_.bounded_gate(g, A_log, dt_bias, case_.lower_bound);
}

}  // namespace linnet::reference
