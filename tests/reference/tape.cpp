#include "tests/reference/tape.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace linnet::reference {
namespace {

double dot(const double* a, const double* b, int64_t n) {
  // Eight partial sums, so that the loop vectorises without licence to reorder additions.
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t j = 0; j < 8; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  double total = 0;
  for (double lane : lanes) total += lane;
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

// y += c x
void add_scaled(double* __restrict y, double c, const double* __restrict x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += c * x[i];
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// a b with b = 0 winning over an infinite a: the limit where b vanishes exponentially.
double product_in_limit(double a, double b) { return b == 0 ? 0 : a * b; }

}  // namespace

void Tape::restart(const double* state) {
  if (states_.empty()) states_.emplace_back();
  current_ = 0;
  states_[0].assign(state, state + key_dim_ * value_dim_);
  restart();
}

void Tape::restart() {
  std::swap(states_[0], states_[current_]);
  current_ = 0;
  vectors_.clear();
  adjoints_.clear();
}

void Tape::reverse(std::vector<double>& state_gradient) {
  state_gradient_.swap(state_gradient);
  std::for_each(adjoints_.rbegin(), adjoints_.rend(), [](auto& adjoint) { adjoint(); });
  state_gradient_.swap(state_gradient);
}

std::vector<double>& Tape::next_state() {
  if (++current_ == states_.size()) states_.emplace_back(key_dim_ * value_dim_);
  return states_[current_];
}

Vec Tape::new_vector(int64_t size) {
  double* data = vectors_.emplace_back(2 * size).data();
  return {this, data, data + size, size};
}

void Tape::decay(Vec g) {
  const int64_t n = value_dim_;
  double* after = next_state().data();
  const double* before = states_[current_ - 1].data();
  for (int64_t d = 0; d < key_dim_; ++d) {
    const double alpha = std::exp(g[d]);
    for (int64_t v = 0; v < n; ++v) after[d * n + v] = alpha * before[d * n + v];
  }
  on_reverse([=, this] {
    for (int64_t d = 0; d < key_dim_; ++d) {
      const double alpha = std::exp(g[d]);
      double* gradient = &state_gradient_[d * n];
      g.add_gradient(d, alpha * dot(gradient, before + d * n, n));
      for (int64_t v = 0; v < n; ++v) gradient[v] *= alpha;
    }
  });
}

Vec Tape::read(Vec w) {
  const int64_t n = value_dim_;
  const double* state = states_[current_].data();
  Vec r = new_vector(n);
  double* out = vectors_.back().data();
  for (int64_t d = 0; d < key_dim_; ++d) add_scaled(out, w[d], state + d * n, n);
  on_reverse([=, this] {
    for (int64_t d = 0; d < key_dim_; ++d) {
      w.add_gradient(d, dot(state + d * n, r.gradient, n));
      add_scaled(&state_gradient_[d * n], w[d], r.gradient, n);
    }
  });
  return r;
}

void Tape::write(Vec u, Vec x) {
  const int64_t n = value_dim_;
  double* after = next_state().data();
  const double* before = states_[current_ - 1].data();
  for (int64_t d = 0; d < key_dim_; ++d) {
    const double c = u[d];
    for (int64_t v = 0; v < n; ++v) after[d * n + v] = before[d * n + v] + c * x.value[v];
  }
  on_reverse([=, this] {
    for (int64_t d = 0; d < key_dim_; ++d) {
      u.add_gradient(d, dot(&state_gradient_[d * n], x.value, n));
      add_scaled(x.gradient, u[d], &state_gradient_[d * n], n);
    }
  });
}

Vec Tape::l2norm(Vec x) {
  const double r = 1 / std::sqrt(dot(x.value, x.value, x.size) + 1e-6);
  Vec y = new_vector(x.size);
  double* out = vectors_.back().data();
  for (int64_t i = 0; i < x.size; ++i) out[i] = r * x[i];
  on_reverse([=] {
    const double along = dot(y.value, y.gradient, y.size);
    for (int64_t i = 0; i < x.size; ++i) x.add_gradient(i, r * (y.gradient[i] - y[i] * along));
  });
  return y;
}

Vec Tape::sigmoid(Vec z, double m) {
  return elementwise(
      z.size, [=](int64_t i) { return m * logistic(z[i]); },
      [=](int64_t i, double d) { z.add_gradient(i, d * m * logistic(z[i]) * logistic(-z[i])); });
}

Vec Tape::softplus_gate(Vec raw, Vec A_log, Vec dt_bias) {
  const double e_A = std::exp(A_log[0]);
  auto y = [=](int64_t i) { return raw[i] + dt_bias[i]; };
  auto gate = [=](int64_t i) {
    return -e_A * (std::max(y(i), 0.0) + std::log1p(std::exp(-std::abs(y(i)))));
  };
  return elementwise(raw.size, gate, [=](int64_t i, double d) {
    const double d_raw = -e_A * logistic(y(i)) * d;
    raw.add_gradient(i, d_raw);
    dt_bias.add_gradient(i, d_raw);
    A_log.add_gradient(0, product_in_limit(gate(i), d));
  });
}

Vec Tape::bounded_gate(Vec raw, Vec A_log, Vec dt_bias, double lower_bound) {
  const double e_A = A_log.size ? std::exp(A_log[0]) : 1;
  auto y = [=](int64_t i) { return raw[i] + dt_bias[i]; };
  auto gate = [=](int64_t i) { return lower_bound * logistic(e_A * y(i)); };
  return elementwise(raw.size, gate, [=](int64_t i, double d) {
    const double d_raw = lower_bound * logistic(e_A * y(i)) * logistic(-e_A * y(i)) * e_A * d;
    raw.add_gradient(i, d_raw);
    dt_bias.add_gradient(i, d_raw);
    if (A_log.size) A_log.add_gradient(0, product_in_limit(y(i), d_raw));
  });
}

void Tape::output(Vec x, double scale, double* o, const double* d_o) {
  for (int64_t i = 0; i < x.size; ++i) o[i] = scale * x[i];
  on_reverse([=] {
    for (int64_t i = 0; i < x.size; ++i) x.add_gradient(i, scale * d_o[i]);
  });
}

Vec operator+(Vec a, Vec b) {
  return a.tape->elementwise(
      std::max(a.size, b.size), [=](int64_t i) { return a[i] + b[i]; },
      [=](int64_t i, double d) {
        a.add_gradient(i, d);
        b.add_gradient(i, d);
      });
}

Vec operator-(Vec a, Vec b) {
  return a.tape->elementwise(
      std::max(a.size, b.size), [=](int64_t i) { return a[i] - b[i]; },
      [=](int64_t i, double d) {
        a.add_gradient(i, d);
        b.add_gradient(i, -d);
      });
}

Vec operator*(Vec a, Vec b) {
  return a.tape->elementwise(
      std::max(a.size, b.size), [=](int64_t i) { return a[i] * b[i]; },
      [=](int64_t i, double d) {
        a.add_gradient(i, d * b[i]);
        b.add_gradient(i, d * a[i]);
      });
}

Vec sum(Vec x) {
  auto total = [=](int64_t) {
    double s = 0;
    for (int64_t i = 0; i < x.size; ++i) s += x[i];
    return s;
  };
  return x.tape->elementwise(1, total, [=](int64_t, double d) {
    for (int64_t i = 0; i < x.size; ++i) x.add_gradient(i, d);
  });
}

}  // namespace linnet::reference
