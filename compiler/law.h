// The language a recurrence is written in: the law of one token, as the paper has it.
//
//   void kda(Law& law) {
//     auto S = law.state();
//     auto q = law.key("q", normalised), k = law.key("k", normalised);
//     auto v = law.value("v"), g = law.gate("g", per_channel), beta = law.strength("beta");
//     decay(S, g);
//     auto e = let("e", v - read(S, k));
//     write(S, k, beta * e);
//     out("o", law.scale() * read(S, q));
//   }
//
// Every call remembers its line, so that a message about the law names the place.
#pragma once

#include <optional>
#include <source_location>
#include <string>

#include "compiler/dialect/chunk.h"

namespace linnet {

class Law;
using Place = std::source_location;

// A value of one token: a vector over key or value channels, or a scalar.
class Expr {
 public:
  Expr() = default;  // not declared: using it is an error that says so

 private:
  friend class Law;
  friend struct Operand;
  friend struct LawBuilder;
  Expr(Law* law, mlir::Value value) : law_(law), value_(value) {}
  Law* law_ = nullptr;
  mlir::Value value_;
};

// The state S of the law, [key, value].
class State {
 private:
  friend class Law;
  explicit State(Law* law) : law_(law) {}
  Law* law_;

  friend void decay(State, struct Operand);
  friend Expr read(State, struct Operand);
  friend void write(State, struct Operand, struct Operand);
};

// An expression or a number, with the line it is used on.
struct Operand {
  Operand(Expr expr, Place place = Place::current()) : expr(expr), place(place) {}
  Operand(double number, Place place = Place::current()) : number(number), place(place) {}
  Law* law() const { return expr.law_; }
  Expr expr;
  std::optional<double> number;
  Place place;
};

// The three steps on the state: S <- diag(exp g) S;  S^T w;  S <- S + u x^T.
void decay(State S, Operand g);
Expr read(State S, Operand w);
void write(State S, Operand u, Operand x);
// The token's result.
void out(const char* name, Operand x);
// Names a value; the name shows in graphs and kernels.
Expr let(const char* name, Operand x);

Expr operator+(Operand a, Operand b);
Expr operator-(Operand a, Operand b);
Expr operator*(Operand a, Operand b);
Expr operator/(Operand a, Operand b);
Expr operator-(Operand a);
Expr dot(Operand a, Operand b);
Expr exp(Operand a);
Expr log(Operand a);
Expr sqrt(Operand a);
Expr tanh(Operand a);
Expr sigmoid(Operand a);
Expr softplus(Operand a);

enum Trait { plain, normalised, per_value_head };  // normalised: may be divided by its l2 norm
enum Per { per_channel, per_token, per_head };     // what has a decay of its own

class Law {
 public:
  // Starts the law `name` in `module`, for these numbers of channels.
  Law(mlir::ModuleOp module, llvm::StringRef name, int64_t key_dim, int64_t value_dim);

  void summary(const char* text);
  State state() { return State(this); }
  // One vector a token over the key channels; shared by the value heads of a group unless
  // per_value_head.
  Expr key(const char* name, Trait trait = plain, Place place = Place::current());
  Expr value(const char* name, Place place = Place::current());
  Expr scalar(const char* name, Place place = Place::current());
  // The logarithm of a decay; fold-gate may compute it from a raw input.
  Expr gate(const char* name, Per per, Place place = Place::current());
  // A scalar in [0, 1] or [0, 2]; fold-gate may compute it from a logit.
  Expr strength(const char* name, Place place = Place::current());
  // A trained vector over key channels, one a head.
  Expr head_key(const char* name, Place place = Place::current());
  // The factor of the output, usually 1 / sqrt(K); given with the call.
  Expr scale(Place place = Place::current());

  // Closes the law: the state reached is the next token's.
  void finish();

 private:
  friend void decay(State, Operand);
  friend Expr read(State, Operand);
  friend void write(State, Operand, Operand);
  friend void out(const char*, Operand);
  friend Expr let(const char*, Operand);
  friend struct LawBuilder;

  Expr input(const char* name, chunk::Scope scope, llvm::ArrayRef<chunk::Axis> axes, Place place,
             bool key_heads = false, std::optional<chunk::Role> role = {});

  mlir::OpBuilder builder_;
  chunk::LawOp op_;
  int64_t key_dim_, value_dim_;
  mlir::Value state_;
  Expr scale_;
};

// A recurrence as ops/ defines it.
using LawFunction = void (*)(Law&);

// Builds the module that holds the law `name`.
mlir::OwningOpRef<mlir::ModuleOp> build_law(mlir::MLIRContext& context, llvm::StringRef name,
                                            LawFunction define, int64_t key_dim, int64_t value_dim);

}  // namespace linnet
