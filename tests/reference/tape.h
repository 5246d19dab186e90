// A tape of the statements of a law: each runs at once on one head's state S [K,V] and on small
// vectors, and remembers its adjoint, so that the reverse pass is the list run backwards.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace linnet::reference {

class Tape;

// A vector (size 1: a scalar) and its gradient, which statements add to. It owns nothing: inputs
// point into the caller's tensors, so sharing (GVA, per-head constants) sums by itself.
struct Vec {
  Tape* tape = nullptr;
  const double* value = nullptr;
  double* gradient = nullptr;  // null when there will be no reverse pass
  int64_t size = 0;

  // A scalar stands for a vector of equal elements.
  int64_t at(int64_t i) const { return size == 1 ? 0 : i; }
  double operator[](int64_t i) const { return value[at(i)]; }
  void add_gradient(int64_t i, double x) const { gradient[at(i)] += x; }
};

class Tape {
 public:
  Tape(int64_t key_dim, int64_t value_dim) : key_dim_(key_dim), value_dim_(value_dim) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Forgets all statements; the second form keeps the state reached so far.
  void restart(const double* state);
  void restart();
  const std::vector<double>& state() const { return states_[current_]; }

  // Takes the gradient of the present state to that of the state at the last restart, adding to
  // the gradients of all vectors on the way.
  void reverse(std::vector<double>& state_gradient);

  // Statements on the state; MATH.md a'.
  void decay(Vec g);         // S <- diag(exp g) S
  Vec read(Vec w);           // S^T w
  void write(Vec u, Vec x);  // S <- S + u x^T

  // Front end; MATH.md b. A bounded gate without A_log gets an empty Vec.
  Vec l2norm(Vec x);
  Vec sigmoid(Vec z, double m);  // m sigmoid(z)
  Vec softplus_gate(Vec raw, Vec A_log, Vec dt_bias);
  Vec bounded_gate(Vec raw, Vec A_log, Vec dt_bias, double lower_bound);

  // o = scale x; do is null when there will be no reverse pass.
  void output(Vec x, double scale, double* o, const double* d_o);

  // Records element i of a new vector as value(i), with adjoint(i, d) to be called with its
  // gradient d; size is that of the result.
  template <class Value, class Adjoint>
  Vec elementwise(int64_t size, Value value, Adjoint adjoint) {
    Vec y = new_vector(size);
    double* out = vectors_.back().data();
    for (int64_t i = 0; i < size; ++i) out[i] = value(i);
    on_reverse([=] {
      for (int64_t i = 0; i < size; ++i) adjoint(i, y.gradient[i]);
    });
    return y;
  }

 private:
  // A zero vector living as long as the statements; its values are vectors_.back().
  Vec new_vector(int64_t size);
  void on_reverse(std::function<void()> adjoint) { adjoints_.push_back(std::move(adjoint)); }
  std::vector<double>& next_state();

  int64_t key_dim_, value_dim_;
  std::vector<std::vector<double>> states_;  // one per change of the state, buffers reused
  size_t current_ = 0;
  std::deque<std::vector<double>> vectors_;  // values followed by gradients
  std::vector<std::function<void()>> adjoints_;
  std::vector<double> state_gradient_;
};

// Elementwise; either side may be a scalar.
Vec operator+(Vec a, Vec b);
Vec operator-(Vec a, Vec b);
Vec operator*(Vec a, Vec b);
Vec sum(Vec x);

}  // namespace linnet::reference
