#include "compiler/law.h"

#include <fmt/format.h>

#include "compiler/dialect/builder.h"
#include "linnet/error.h"

namespace linnet {

using chunk::Axis;
using chunk::describe;
using chunk::Scope;
using chunk::tile_of;
using mlir::Value;

namespace {

[[noreturn]] void refuse(Place place, const std::string& message) {
  throw UserError(fmt::format("{}:{}: {}", place.file_name(), place.line(), message));
}

mlir::Location location(mlir::MLIRContext* context, Place place) {
  return mlir::FileLineColLoc::get(context, place.file_name(), place.line(), place.column());
}

}  // namespace

// The law's ops at a place: what the free functions of the language are made of.
struct LawBuilder {
  LawBuilder(Law* law, Place place) : law(law), place(place) {
    if (!law)
      refuse(place,
             "a value that no input or expression defined; declare it first, e.g. law.key(\"w\")");
  }
  chunk::Builder ops() {
    return chunk::Builder(law->builder_, location(law->builder_.getContext(), place));
  }
  Expr expr(Value value) { return Expr(law, value); }

  Value value(const Operand& operand, const char* what) {
    if (operand.number) return ops().scalar(static_cast<float>(*operand.number));
    if (!operand.expr.law_)
      refuse(place, fmt::format("{} is not declared; declare it first, e.g. law.key(\"w\")", what));
    return operand.expr.value_;
  }

  // Both sides with one shape: a scalar goes with anything.
  std::pair<Value, Value> matched(const Operand& a, const Operand& b, const char* symbol) {
    Value x = value(a, "the left side"), y = value(b, "the right side");
    if (tile_of(x).getRank() == 0) x = ops().broadcast_to(x, tile_of(y));
    if (tile_of(y).getRank() == 0) y = ops().broadcast_to(y, tile_of(x));
    if (x.getType() != y.getType())
      refuse(place, fmt::format("{}: expected equal axes or a scalar, got {} and {}", symbol,
                                describe(x.getType()), describe(y.getType())));
    return {x, y};
  }

  Value vector(const Operand& operand, Axis axis, int64_t size, const char* what) {
    Value x = value(operand, what);
    if (tile_of(x).getRank() != 1 || !chunk::has_axis(x.getType(), axis))
      refuse(place, fmt::format("{}: expected {} ({}), got {}", what, stringifyAxis(axis).str(),
                                size, describe(x.getType())));
    return x;
  }

  Law* law;
  Place place;
};

namespace {

template <class F>
Expr binary(const Operand& a, const Operand& b, const char* symbol, F op) {
  LawBuilder build(a.law() ? a.law() : b.law(), a.place);
  auto [x, y] = build.matched(a, b, symbol);
  auto ops = build.ops();
  return build.expr(op(ops, x, y));
}

template <class F>
Expr unary(const Operand& a, F op) {
  LawBuilder build(a.law(), a.place);
  auto ops = build.ops();
  return build.expr(op(ops, build.value(a, "the argument")));
}

template <class Op>
Expr math_unary(const Operand& a) {
  return unary(
      a, [](chunk::Builder& b, Value x) -> Value { return b.raw().create<Op>(b.location(), x); });
}

}  // namespace

void decay(State S, Operand g) {
  LawBuilder build(S.law_, g.place);
  Value gate = build.value(g, "the gate of decay");
  if (tile_of(gate).getRank() != 0)
    build.vector(g, Axis::key, S.law_->key_dim_, "the gate of decay");
  auto ops = build.ops();
  S.law_->state_ =
      ops.raw().create<chunk::DecayOp>(chunk::named(ops.location(), "S"), S.law_->state_, gate);
}

Expr read(State S, Operand w) {
  LawBuilder build(S.law_, w.place);
  Value vector = build.vector(w, Axis::key, S.law_->key_dim_, "the vector of read");
  auto ops = build.ops();
  return build.expr(ops.raw().create<chunk::ReadOp>(ops.location(), S.law_->state_, vector));
}

void write(State S, Operand u, Operand x) {
  LawBuilder build(S.law_, u.place);
  Value direction = build.vector(u, Axis::key, S.law_->key_dim_, "the direction of write");
  Value value = build.vector(x, Axis::value, S.law_->value_dim_, "the value of write");
  auto ops = build.ops();
  S.law_->state_ = ops.raw().create<chunk::WriteOp>(chunk::named(ops.location(), "S"),
                                                    S.law_->state_, direction, value);
}

void out(const char* name, Operand x) {
  LawBuilder build(x.law(), x.place);
  for (auto other : x.law()->op_.getBody().getOps<chunk::OutputOp>())
    if (other.getName() == name) refuse(x.place, fmt::format("output {} is given twice", name));
  build.ops().output(name, build.vector(x, Axis::value, x.law()->value_dim_, "the value of out"),
                     Scope::token);
}

Expr let(const char* name, Operand x) {
  LawBuilder build(x.law(), x.place);
  chunk::set_name(build.value(x, "the value of let"), name);
  return x.expr;
}

Expr operator+(Operand a, Operand b) {
  return binary(a, b, "+", [](auto& ops, Value x, Value y) { return ops.add(x, y); });
}
Expr operator-(Operand a, Operand b) {
  return binary(a, b, "-", [](auto& ops, Value x, Value y) { return ops.sub(x, y); });
}
Expr operator*(Operand a, Operand b) {
  return binary(a, b, "*", [](auto& ops, Value x, Value y) { return ops.mul(x, y); });
}
Expr operator/(Operand a, Operand b) {
  return binary(a, b, "/", [](auto& ops, Value x, Value y) { return ops.div(x, y); });
}
Expr dot(Operand a, Operand b) {
  return binary(a, b, "dot",
                [](auto& ops, Value x, Value y) { return ops.reduce(ops.mul(x, y), {0}); });
}
Expr operator-(Operand a) {
  return unary(a, [](auto& ops, Value x) { return ops.neg(x); });
}
Expr sigmoid(Operand a) {
  return unary(a, [](auto& ops, Value x) { return ops.sigmoid(x); });
}
Expr softplus(Operand a) {
  return unary(a, [](auto& ops, Value x) { return ops.softplus(x); });
}
Expr exp(Operand a) { return math_unary<mlir::math::ExpOp>(a); }
Expr log(Operand a) { return math_unary<mlir::math::LogOp>(a); }
Expr sqrt(Operand a) { return math_unary<mlir::math::SqrtOp>(a); }
Expr tanh(Operand a) { return math_unary<mlir::math::TanhOp>(a); }

Law::Law(mlir::ModuleOp module, llvm::StringRef name, int64_t key_dim, int64_t value_dim)
    : builder_(module.getBodyRegion()), key_dim_(key_dim), value_dim_(value_dim) {
  op_ = builder_.create<chunk::LawOp>(builder_.getUnknownLoc(), name, mlir::StringAttr());
  builder_.setInsertionPointToStart(&op_.getBody().emplaceBlock());
  auto type =
      chunk::tile_type(builder_.getContext(), {Axis::key, Axis::value}, {key_dim, value_dim});
  state_ = builder_.create<chunk::StateOp>(chunk::named(builder_.getUnknownLoc(), "S"), type);
}

void Law::summary(const char* text) { op_.setSummary(text); }

Expr Law::input(const char* name, Scope scope, llvm::ArrayRef<Axis> axes, Place place,
                bool key_heads, std::optional<chunk::Role> role) {
  for (auto other : op_.getBody().getOps<chunk::InputOp>())
    if (other.getName() == name) refuse(place, fmt::format("input {} is declared twice", name));
  llvm::SmallVector<int64_t> sizes;
  for (Axis axis : axes) sizes.push_back(axis == Axis::key ? key_dim_ : value_dim_);
  mlir::Value value =
      chunk::Builder(builder_, location(builder_.getContext(), place))
          .input(name, scope, chunk::tile_type(builder_.getContext(), axes, sizes), key_heads);
  if (role) value.getDefiningOp<chunk::InputOp>().setRole(*role);
  return Expr(this, value);
}

Expr Law::key(const char* name, Trait trait, Place place) {
  auto role = trait == normalised ? std::optional(chunk::Role::normalised) : std::nullopt;
  return input(name, Scope::token, Axis::key, place, trait != per_value_head, role);
}
Expr Law::value(const char* name, Place place) {
  return input(name, Scope::token, Axis::value, place);
}
Expr Law::scalar(const char* name, Place place) { return input(name, Scope::token, {}, place); }
Expr Law::gate(const char* name, Per per, Place place) {
  return input(name, per == per_head ? Scope::head : Scope::token,
               per == per_channel ? llvm::ArrayRef(Axis::key) : llvm::ArrayRef<Axis>(), place,
               false, chunk::Role::gate);
}
Expr Law::strength(const char* name, Place place) {
  return input(name, Scope::token, {}, place, false, chunk::Role::strength);
}
Expr Law::head_key(const char* name, Place place) {
  return input(name, Scope::head, Axis::key, place);
}
Expr Law::scale(Place place) {
  if (!scale_.law_) scale_ = input("scale", Scope::constant, {}, place);
  return scale_;
}

void Law::finish() {
  if (op_.getBody().getOps<chunk::OutputOp>().empty())
    throw UserError(fmt::format("law {}: expected an output, e.g. out(\"o\", read(S, q)); got none",
                                op_.getSymName().str()));
  builder_.create<chunk::NextOp>(builder_.getUnknownLoc(), state_);
}

mlir::OwningOpRef<mlir::ModuleOp> build_law(mlir::MLIRContext& context, llvm::StringRef name,
                                            LawFunction define, int64_t key_dim,
                                            int64_t value_dim) {
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  Law law(*module, name, key_dim, value_dim);
  define(law);
  law.finish();
  return module;
}

}  // namespace linnet
