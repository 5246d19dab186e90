// Values as expressions: in registers, in shared memory, or put together where they are read.
#include "compiler/cuda/kernel.h"
#include "linnet/error.h"
#include "llvm/ADT/TypeSwitch.h"

namespace linnet::cuda {

using namespace chunk;
namespace arith = mlir::arith;
namespace math = mlir::math;
using mlir::Value;

namespace {

std::string splat_of(arith::ConstantOp op) {
  auto values = llvm::cast<mlir::DenseElementsAttr>(op.getValue());
  return literal(values.getSplatValue<mlir::APFloat>().convertToFloat());
}

std::string letters(Value value, bool flipped, bool step) {
  std::string text;
  for (Axis axis : axes_of(value.getType())) {
    if (axis == Axis::token && step) continue;
    const char* letter = axis == Axis::token ? "C" : axis == Axis::key ? "K" : "V";
    text = text.empty() ? letter : flipped ? letter + ("x" + text) : text + "x" + letter;
  }
  return text;
}

llvm::SmallVector<Axis, 2> axes_but_tokens(Value value) {
  llvm::SmallVector<Axis, 2> axes;
  for (Axis axis : axes_of(value.getType()))
    if (axis != Axis::token) axes.push_back(axis);
  return axes;
}

InternalError cannot(const std::string& what, Value value) {
  return InternalError(
      fmt::format("cuda: cannot {} {} ({})", what, name_of(value), describe(value.getType())));
}

}  // namespace

Value KernelEmitter::origin(Value value) const {
  value = program_.origin(value);
  while (mlir::Operation* op = value.getDefiningOp()) {
    if (!is_passed(op)) break;
    value = program_.origin(op->getOperand(0));
  }
  return value;
}

// To one token sums over tokens and the like do nothing.
bool KernelEmitter::is_passed(mlir::Operation* op) const {
  if (!is_step_) return false;
  if (auto cumsum = llvm::dyn_cast<CumsumOp>(op)) return !cumsum.getExclusive();
  if (llvm::isa<ValidOp>(op)) return true;
  return llvm::isa<RowOp, PlaceRowOp, ReduceOp, BroadcastOp>(op) &&
         axes_but_tokens(op->getOperand(0)) == axes_but_tokens(op->getResult(0));
}

int64_t KernelEmitter::rank(Value value) const {
  return is_step_ ? axes_but_tokens(value).size() : axes_of(value.getType()).size();
}

bool KernelEmitter::is_tile(Value value) const {
  return rank(value) == 2 || (is_step_ && in_registers_flipped(value));
}

int64_t KernelEmitter::length(Value value) const {
  if (!is_step_) return tile_of(value).getDimSize(0);
  return has_axis(value.getType(), Axis::value) ? value_block_ : tile_of(value).getNumElements();
}

// Value channels lie along the rows of a scan's tiles, so that each warp has some of them for
// itself and a state never leaves its registers; K x V tiles lie so everywhere.
bool KernelEmitter::in_registers_flipped(Value value) const {
  auto axes = axes_of(value.getType());
  if (axes.size() != 2 || !has_axis(value.getType(), Axis::value)) return false;
  return is_scan_ || axes[0] == Axis::key;
}

bool KernelEmitter::is_streamed(Value value) const {
  return !is_scan_ && rank(value) == 2 && in_registers_flipped(value);
}

bool KernelEmitter::is_inlined(mlir::Operation* op) const {
  if (llvm::isa<arith::ConstantOp>(op) || is_passed(op)) return true;
  if (op->getBlock() == &program_.graph().getBody().front()) return false;
  if (joins_a_sum(op) || is_made_again(op)) return true;
  if (llvm::isa<MatmulOp>(op)) return false;
  Value result = op->getResult(0);
  if (is_streamed(result)) return true;  // only ever summed, band by band
  if (program_.placement(result) != Placement::fused) return false;
  return llvm::isa<BroadcastOp>(op) || (name_of(result).empty() && !joins_tiles(op));
}

// Where registers are short, what two tiles in registers make waits for its sum instead of them.
bool KernelEmitter::joins_tiles(mlir::Operation* op) const {
  return is_tight_ && llvm::isa<arith::MulFOp>(op) && is_tile(op->getResult(0)) &&
         llvm::all_of(op->getOperands(), [&](Value operand) {
           mlir::Operation* source = origin(operand).getDefiningOp();
           return source && llvm::is_contained(loop_.body, source) && is_tile(origin(operand)) &&
                  !is_inlined(source);
         });
}

namespace {

bool is_sum(mlir::Operation* op) { return llvm::isa<arith::AddFOp, arith::SubFOp>(op); }

}  // namespace

// A product, or a sum with products, that is read once, by another sum.
bool KernelEmitter::joins_a_sum(mlir::Operation* op) const {
  Value result = op->getResult(0);
  if (auto leader = leaders_.lookup(op); leader && groups_.lookup(leader).size() > 1) return false;
  if (!is_tile(result) || !result.hasOneUse() || program_.placement(result) != Placement::fused)
    return false;
  if (!is_sum(*result.getUsers().begin())) return false;
  if (auto matmul = llvm::dyn_cast<MatmulOp>(op)) return !is_streamed(origin(matmul.getRhs()));
  return is_sum(op) && llvm::any_of(op->getOperands(), [&](Value operand) {
           mlir::Operation* source = origin(operand).getDefiningOp();
           return source && source->getBlock() == op->getBlock() && joins_a_sum(source);
         });
}

void KernelEmitter::collect_terms(Value value, bool negative, bool top, std::vector<Term>& terms) {
  value = origin(value);
  mlir::Operation* op = value.getDefiningOp();
  bool opened = op && is_sum(op) && (top || is_inlined(op));
  if (!opened) return terms.push_back({value, negative});
  collect_terms(op->getOperand(0), negative, false, terms);
  collect_terms(op->getOperand(1), negative != llvm::isa<arith::SubFOp>(op), false, terms);
}

std::string KernelEmitter::plain_sum(const std::vector<Term>& terms, const std::string& type) {
  std::string text;
  for (const Term& term : terms) {
    bool number = is_uniform(term.value);
    std::string x = number ? uniform(term.value) : tile(term.value);
    if (text.empty())  // the first has to be a tile
      text = fmt::format(term.negative ? fmt::runtime("negative({})") : fmt::runtime("{}"),
                         number ? fmt::format("constant<{}>({})", type, x) : x);
    else
      text = fmt::format("({} {} {})", text, term.negative ? "-" : "+", x);
  }
  return text;
}

std::string KernelEmitter::sum(mlir::Operation* op) {
  std::vector<Term> terms, plain, products;
  collect_terms(op->getResult(0), false, true, terms);
  for (const Term& term : terms) {
    mlir::Operation* source = term.value.getDefiningOp();
    bool open = source && term.is_product() && is_inlined(source);
    (open ? products : plain).push_back(term);
  }
  std::string type = type_of(op->getResult(0)), text = plain_sum(plain, type);
  for (const Term& term : products) {
    auto matmul = term.value.getDefiningOp<MatmulOp>();
    std::string precision = precision_of(matmul);
    auto [a, b] = operands(matmul);
    if (text.empty() && !term.negative) {
      text = fmt::format("product<{}, {}>({}, {})", type, precision, a, b);
      continue;
    }
    if (text.empty()) text = fmt::format("constant<{}>(0.f)", type);
    if (text.starts_with("(")) text = text.substr(1, text.size() - 2);
    text = fmt::format("{}_product<{}>({}, {}, {})", term.negative ? "minus" : "plus", precision,
                       text, a, b);
  }
  return text;
}

std::pair<int64_t, int64_t> KernelEmitter::shape(Value value, bool flipped) const {
  Tile type = tile_of(value);
  auto size = [&](int i) {
    return is_scan_ && axes_of(type)[i] == Axis::value ? value_block_ : type.getDimSize(i);
  };
  return flipped ? std::pair(size(1), size(0)) : std::pair(size(0), size(1));
}

std::string KernelEmitter::type_of(Value value) {
  bool flipped = in_registers_flipped(value), by_rows = is_scan_ && flipped;
  auto [rows, columns] = shape(value, flipped);
  std::string name = letters(value, flipped, is_step_);
  if (is_streamed(value)) {
    name += "_band";
    rows = kBandRows;
  }
  const char* split = is_step_ && rank(value) == 1 ? "OneColumn" : by_rows ? "Rows" : "Columns";
  aliases_[name] = fmt::format("Tile<{}, {}, {}<{}>>", rows, columns, split, warps_);
  return name;
}

std::string KernelEmitter::shared_type(Value value, const std::string& element,
                                       bool flipped) const {
  auto [rows, columns] = shape(value, flipped);
  return fmt::format("SharedTile<{}, {}, {}>", element, rows, columns);
}

std::string KernelEmitter::fresh(const std::string& wish) {
  std::string name = wish;
  for (int i = 2; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", wish, i);
  return name;
}

std::string KernelEmitter::name_for(Value value) {
  std::string name = name_of(value);
  for (char& c : name)
    if (!llvm::isAlnum(c)) c = '_';
  if (!name.empty() && llvm::isDigit(name.front())) name = "x" + name;
  if (name == "do" || name == "if" || name == "or") name += "_";  // the gradient of o is no keyword
  return name.empty() ? fresh(fmt::format("t{}", ++temporaries_)) : fresh(name);
}

Shared KernelEmitter::declare_tile(Value value, const std::string& element, bool flipped,
                                   const std::string& name) {
  auto [rows, columns] = shape(value, flipped);
  Range place = allocate(padded(rows) * (padded(columns) + 8) * bytes_of(element));
  Shared shared{name, element, flipped, place, base_ != "shared"};
  declarations_.push_back(fmt::format("const {} {}({} + {});", shared_type(value, element, flipped),
                                      name, base_, place.begin));
  body_.line("{}", declarations_.back());
  homes_[value].shared.push_back(shared);
  return shared;
}

Shared KernelEmitter::declare_vector(Value value, const std::string& element) {
  Range place = memory_.allocate(padded(length(value)) * bytes_of(element));
  Shared shared{name_for(value), element, false, place, base_ != "shared"};
  declarations_.push_back(fmt::format("{0}* const {1} = reinterpret_cast<{0}*>({2} + {3});",
                                      element, shared.name, base_, place.begin));
  body_.line("{}", declarations_.back());
  homes_[value].shared.push_back(shared);
  return shared;
}

Shared KernelEmitter::scratch(const std::string& name, const std::string& type, int64_t bytes) {
  Shared shared{fresh(name), "", false, allocate(bytes)};
  if (type == "float*")
    body_.line("float* const {} = reinterpret_cast<float*>(shared + {});", shared.name,
               shared.place.begin);
  else
    body_.line("const {} {}(shared + {});", type, shared.name, shared.place.begin);
  return shared;
}

void KernelEmitter::statement(const std::string& text, const std::vector<Range>& writes) {
  if (memory_.access(reads_, writes)) body_.line("__syncthreads();");
  reads_.clear();
  body_.line("{}", text);
}

const Shared& KernelEmitter::in_shared(Value value, const std::string& element) {
  fetch_again(value);
  for (const Shared& shared : homes_[value].shared)
    if (element.empty() || shared.element == element) return shared;
  // A statement of its own, before the one that is being put together: what it reads may make room.
  std::vector<Range> outer;
  std::swap(outer, reads_);
  llvm::DenseSet<Value> named = named_;
  std::string text = tile(value), format = element.empty() ? "float" : element;
  std::string wish = homes_[value].registers;
  if (wish.empty())
    wish = homes_[value].shared.empty() ? name_of(value) : homes_[value].shared[0].name;
  Shared shared = declare_tile(value, format, false, fresh((wish.empty() ? "t" : wish) + "_s"));
  std::string to = shared.name;
  if (in_registers_flipped(value)) to = fmt::format("transposed({})", to);
  statement(fmt::format("store({}, {});", to, text), {shared.place});
  std::swap(outer, reads_);
  named_ = named;
  return homes_[value].shared.back();
}

std::string KernelEmitter::view(Value value, const std::string& element, bool flip) {
  value = origin(value);
  Shared shared = in_shared(value, element);
  reads_.push_back(shared.place);
  return shared.flipped != flip ? fmt::format("transposed({})", shared.name) : shared.name;
}

bool KernelEmitter::is_uniform(Value value) const {
  value = origin(value);
  mlir::Operation* op = value.getDefiningOp();
  if (!op) return false;
  if (auto constant = llvm::dyn_cast<arith::ConstantOp>(op)) return true;
  auto broadcast = llvm::dyn_cast<BroadcastOp>(op);
  return broadcast && rank(broadcast.getSource()) == 0;
}

std::string KernelEmitter::uniform(Value value) {
  mlir::Operation* op = origin(value).getDefiningOp();
  if (auto constant = llvm::dyn_cast<arith::ConstantOp>(op)) return splat_of(constant);
  return number(llvm::cast<BroadcastOp>(op).getSource());
}

std::string KernelEmitter::number(Value value) {
  value = origin(value);
  auto found = homes_.find(value);
  if (found != homes_.end() && !found->second.scalar.empty()) return found->second.scalar;
  if (is_step_ && found != homes_.end() && !found->second.shared.empty())
    return element_at(value, "0");
  mlir::Operation* op = value.getDefiningOp();
  if (op && llvm::isa<arith::ConstantOp>(op)) return uniform(value);
  if (op && is_inlined(op)) return arithmetic(op, [&](Value v) { return number(v); }, "");
  throw cannot("find the number", value);
}

std::string KernelEmitter::vector(Value value) {
  value = origin(value);
  Home& home = homes_[value];
  if (home.shared.empty()) {
    std::vector<Range> outer;
    std::swap(outer, reads_);
    std::string text = vector_element(value);
    Shared shared = declare_vector(value);
    statement(fmt::format("fill_vector<cta, {}>({}, [&](int i) {{ return {}; }});", length(value),
                          shared.name, text),
              {shared.place});
    std::swap(outer, reads_);
  }
  reads_.push_back(homes_[value].shared.front().place);
  return homes_[value].shared.front().name;
}

std::string KernelEmitter::element_at(Value value, const char* index) {
  std::string text = fmt::format("{}[{}]", vector(value), index);
  bool wide = homes_[value].shared.front().element == "float";
  return wide ? text : fmt::format("to_f32({})", text);
}

std::string KernelEmitter::vector_element(Value value) {
  value = origin(value);
  if (auto found = homes_.find(value); found != homes_.end() && !found->second.shared.empty())
    return element_at(value, "i");
  if (is_uniform(value)) return uniform(value);
  if (is_step_ && rank(value) == 0) return number(value);
  mlir::Operation* op = value.getDefiningOp();
  if (!op) throw cannot("find the vector", value);
  auto text = [&](Value v) { return vector_element(v); };
  if (auto valid = llvm::dyn_cast<ValidOp>(op))
    return fmt::format("(i < chunk.rows ? {} : 0.f)", text(valid.getSource()));
  if (auto place = llvm::dyn_cast<PlaceRowOp>(op))
    return fmt::format("(i == {} ? {} : 0.f)", place.getIndex(), number(place.getSource()));
  return arithmetic(op, text, "");
}

std::string KernelEmitter::tile(Value value) {
  value = origin(value);
  fetch_again(value);
  if (auto found = homes_.find(value); found != homes_.end()) {
    bool flip = in_registers_flipped(value);
    // Where registers are short a tile that is in shared memory does not wait in them as well.
    if (is_long_ && llvm::any_of(found->second.shared, [&](const Shared& shared) {
          return shared.element == "float" && shared.flipped == flip;
        }))
      return fmt::format("load<{}>({})", type_of(value), view(value, "float", flip));
    if (!found->second.registers.empty()) return found->second.registers;
    if (!found->second.shared.empty()) {
      if (is_step_) return fmt::format("over_rows<{}>({})", type_of(value), vector(value));
      return fmt::format("load<{}>({})", type_of(value), view(value, "", flip));
    }
  }
  mlir::Operation* op = value.getDefiningOp();
  if (is_streamed(value) && program_.placement(value) == Placement::workspace) {
    if (auto band = bands_.find(value); band != bands_.end())
      return fmt::format("load<{}>({})", type_of(value), band->second);
    const Stored& stored = workspace_.at(value);
    return fmt::format("read_block<{}, {}>({} + {} * {})", type_of(value), stored.stride,
                       record(value), band_, stored.stride);
  }
  if (is_uniform(value)) return fmt::format("constant<{}>({})", type_of(value), uniform(value));
  if (!op) throw cannot("find", value);
  return tile_expression(op);
}

// The text of an op that treats every element on its own. `splat_type` is the tile type to make of
// a number where an op has nothing but numbers; empty if numbers are what is asked for.
std::string KernelEmitter::arithmetic(mlir::Operation* op,
                                      llvm::function_ref<std::string(Value)> text,
                                      const std::string& splat_type) {
  std::vector<std::string> x;
  bool all_uniform = true;
  for (Value operand : op->getOperands()) {
    x.push_back(text(operand));
    all_uniform &= is_uniform(operand);
  }
  if (!splat_type.empty() &&
      (all_uniform || (llvm::isa<arith::SelectOp>(op) && is_uniform(op->getOperand(1))))) {
    size_t which = llvm::isa<arith::SelectOp>(op) ? 1 : 0;
    x[which] = fmt::format("constant<{}>({})", splat_type, x[which]);
  }
  auto infix = [&](const char* sign) { return fmt::format("({} {} {})", x[0], sign, x[1]); };
  auto call = [&](const std::string& name) {
    std::string list;
    for (const std::string& argument : x) list += (list.empty() ? "" : ", ") + argument;
    return fmt::format("{}({})", name, list);
  };
  return llvm::TypeSwitch<mlir::Operation*, std::string>(op)
      .Case<arith::AddFOp>([&](auto) { return infix("+"); })
      .Case<arith::SubFOp>([&](auto) { return infix("-"); })
      .Case<arith::MulFOp>([&](auto) { return infix("*"); })
      .Case<arith::DivFOp>([&](auto) { return call("quotient"); })
      .Case<arith::NegFOp>([&](auto) { return call("negative"); })
      .Case<arith::MaximumFOp>([&](auto) { return call("maximum"); })
      .Case<arith::CmpFOp>([&](auto) { return call("at_least"); })
      .Case<arith::SelectOp>([&](auto) { return call("choose"); })
      .Case<math::ExpOp>([&](auto) { return call("exponential"); })
      .Case<math::LogOp>([&](auto) { return call("logarithm"); })
      .Case<math::SqrtOp>([&](auto) { return call("square_root"); })
      .Case<math::RsqrtOp>([&](auto) { return call("reciprocal_root"); })
      .Case<math::TanhOp>([&](auto) { return call("hyperbolic_tangent"); })
      .Case<SigmoidOp>([&](auto) { return call("sigmoid"); })
      .Case<SoftplusOp>([&](auto) { return call("softplus"); })
      .Case<RoundOp>([&](RoundOp round) {
        return call(fmt::format("round_to<{}>", text_of(round.getPrecision())));
      })
      .Default([&](mlir::Operation* o) -> std::string {
        throw InternalError(fmt::format("cuda: no code for {}", o->getName().getStringRef().str()));
      });
}

std::string KernelEmitter::precision_of(MatmulOp op) const {
  return text_of(is_step_ ? Precision::f32 : or_f32(op.getPrecision()));
}

std::string KernelEmitter::broadcast(BroadcastOp op) {
  bool flipped = in_registers_flipped(op), along_rows = op.getDims()[0] == 1;
  return fmt::format("{}<{}>({})", along_rows != flipped ? "over_rows" : "over_columns",
                     type_of(op), vector(op.getSource()));
}

std::string KernelEmitter::tile_expression(mlir::Operation* op) {
  bool flipped = in_registers_flipped(op->getResult(0));
  return llvm::TypeSwitch<mlir::Operation*, std::string>(op)
      .Case<BroadcastOp>([&](BroadcastOp o) { return broadcast(o); })
      .Case<MaskOp>([&](MaskOp o) {
        return fmt::format("keep<{}>({})", text_of(o.getTriangle()), tile(o.getSource()));
      })
      .Case<ValidOp>([&](ValidOp o) {
        return fmt::format("{}({}, chunk.rows)", flipped ? "keep_columns" : "keep_rows",
                           tile(o.getSource()));
      })
      .Case<PlaceRowOp>([&](PlaceRowOp o) {
        if (flipped) throw cannot("place a row of", o);
        return fmt::format("place_row<{}>({}, {})", type_of(o), vector(o.getSource()),
                           o.getIndex());
      })
      .Case<DecayMaskOp>([&](DecayMaskOp o) {
        return fmt::format("decay_mask<{}, {}>({}, {})", type_of(o), text_of(o.getTriangle()),
                           vector(o.getRows()), vector(o.getColumns()));
      })
      .Case<MatmulOp>([&](MatmulOp o) {
        auto [a, b] = operands(o);
        return fmt::format("product<{}, {}>({}, {})", type_of(o), precision_of(o), a, b);
      })
      .Default([&](mlir::Operation* o) {
        if (is_sum(o)) return sum(o);
        auto text = [&](Value v) { return is_uniform(v) ? uniform(v) : tile(v); };
        return arithmetic(o, text, type_of(o->getResult(0)));
      });
}

}  // namespace linnet::cuda
