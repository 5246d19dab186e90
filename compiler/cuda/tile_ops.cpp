// One function for each kind of op: the line that computes it.
#include "compiler/cuda/kernel.h"
#include "linnet/error.h"
#include "llvm/ADT/TypeSwitch.h"

namespace linnet::cuda {

using namespace chunk;
using mlir::Value;

namespace {

std::string without_parentheses(const std::string& text) {
  return text.starts_with("(") ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

void KernelEmitter::write_op(mlir::Operation* op) {
  if (is_step_ && llvm::isa<CumsumOp, RowOp, DecayDotOp, DecayApplyOp, InverseUnitLowerOp>(op))
    throw InternalError(
        fmt::format("cuda: {} of one token was not folded", op->getName().getStringRef().str()));
  llvm::TypeSwitch<mlir::Operation*>(op)
      .Case<MatmulOp>([&](MatmulOp o) { write_matmul(o); })
      .Case<CumsumOp>([&](CumsumOp o) { write_cumsum(o); })
      .Case<ReduceOp>([&](ReduceOp o) { write_reduce(o); })
      .Case<RowOp>([&](RowOp o) { write_row(o); })
      .Case<DecayDotOp>([&](DecayDotOp o) { write_decay_dot(o); })
      .Case<DecayApplyOp>([&](DecayApplyOp o) { write_decay_apply(o); })
      .Case<InverseUnitLowerOp>([&](InverseUnitLowerOp o) { write_inverse(o); })
      .Default([&](mlir::Operation* o) { write_elementwise(o); });
}

void KernelEmitter::define_tile(Value value, const std::string& expression) {
  std::string name = name_for(value);
  statement(
      fmt::format("const {} {} = {};", type_of(value), name, without_parentheses(expression)));
  homes_[value].registers = name;
}

// A rounded tile that only other loops read: storing it rounds it.
bool KernelEmitter::is_rounded_by_storing(mlir::Operation* op) {
  Value value = op->getResult(0);
  bool kept = llvm::isa<RoundOp>(op) && is_tile(value) &&
              program_.placement(value) == Placement::workspace && workspace_.at(value).flipped;
  if (!kept || homes_[origin(op->getOperand(0))].registers.empty()) return false;
  return llvm::all_of(value.getUsers(),
                      [](mlir::Operation* user) { return llvm::isa<YieldOp>(user); });
}

void KernelEmitter::write_elementwise(mlir::Operation* op) {
  Value value = op->getResult(0);
  if (is_rounded_by_storing(op)) {
    homes_[value].registers = tile(op->getOperand(0));
    return;
  }
  if (is_tile(value)) return define_tile(value, tile_expression(op));
  if (rank(value) == 1) {
    vector(value);
    reads_.clear();
    return;
  }
  std::string text = arithmetic(op, [&](Value v) { return number(v); }, "");
  std::string name = name_for(value);
  statement(fmt::format("const float {} = {};", name, without_parentheses(text)));
  homes_[value].scalar = name;
}

// The operands of a product as its template takes them. In a scan the one with value channels is in
// registers, on its side: (L R)^T = R^T L^T.
std::pair<std::string, std::string> KernelEmitter::operands(MatmulOp op) {
  std::string element = element_of(or_f32(op.getPrecision()));
  Value lhs = origin(op.getLhs()), rhs = origin(op.getRhs());
  if (is_step_) {
    std::string first = is_tile(op) ? tile(rhs) : vector(rhs);
    return {first, vector(lhs)};
  }
  if (!in_registers_flipped(op)) {
    if (is_scan_ && (in_registers_flipped(lhs) || in_registers_flipped(rhs)))
      throw InternalError("cuda: a scan sums over value channels");
    std::string first = view(lhs, element, op.getTransposeLhs());
    return {first, view(rhs, element, op.getTransposeRhs())};
  }
  if (!in_registers_flipped(rhs) || op.getTransposeRhs() || in_registers_flipped(lhs))
    throw InternalError("cuda: a scan sums over value channels");
  std::string first = tile(rhs);
  // Two products in a row share what they pack of a state; for a later one there is no room.
  auto reads_it = [&](mlir::Operation* other) {
    auto product = llvm::dyn_cast<MatmulOp>(other);
    return product && origin(product.getRhs()) == rhs;
  };
  auto here = llvm::find(body_order_, op.getOperation());
  if (element != "float" && std::count_if(body_order_.begin(), here, reads_it) > 1)
    first = packed_anew(rhs, first);
  return {first, view(lhs, element, !op.getTransposeLhs())};
}

void KernelEmitter::write_matmul(MatmulOp op) {
  if (is_step_ && !is_tile(op)) {
    auto [a, b] = operands(op);
    std::string name = name_for(op);
    statement(fmt::format("const float {} = dot<{}>({}, {});", name, length(op.getLhs()), a, b));
    homes_[op].scalar = name;
    return;
  }
  if (group_of(op).size() > 1 && is_scan_) return write_products(group_of(op));
  if (sums_bands(op)) return write_sums_over_bands(group_of(op));
  bool streamed = is_streamed(origin(op.getRhs()));
  define_tile(op, streamed ? streamed_product(op) : tile_expression(op));
}

// The second operand is a state of the workspace, which lies with its value channels first: sums
// over key channels.
std::string KernelEmitter::streamed_product(MatmulOp op) {
  Precision precision = or_f32(op.getPrecision());
  Value rhs = origin(op.getRhs());
  const Stored& stored = workspace_.at(rhs);
  int64_t rows = padded(value_dim_), columns = band_of(rows, stored.element);
  std::string first = view(op.getLhs(), element_of(precision), op.getTransposeLhs());
  Shared band =
      scratch("band", fmt::format("SharedTile<{}, {}, {}>", stored.element, rows, columns),
              rows * (columns + 8) * bytes_of(stored.element));
  reads_.push_back(band.place);
  memory_.release(band.place);
  return fmt::format("streamed_product<{}, {}, cta, {}>({}, {}, transposed({}))", type_of(op),
                     text_of(precision), stored.stride, first, record(rhs), band.name);
}

void KernelEmitter::write_cumsum(CumsumOp op) {
  std::string kind;
  if (op.getReverse() || op.getExclusive())
    kind = fmt::format("<Direction::{}, Own::{}>", op.getReverse() ? "reverse" : "forward",
                       op.getExclusive() ? "excluded" : "included");
  if (rank(op) == 2)
    return define_tile(op, fmt::format("cumsum{}({})", kind, tile(op.getSource())));
  std::string from = vector(op.getSource());
  std::vector<Range> reads = reads_;
  Shared to = declare_vector(op);
  reads_ = reads;
  statement(fmt::format("cumsum<Direction::{}, Own::{}, {}>({}, {});",
                        op.getReverse() ? "reverse" : "forward",
                        op.getExclusive() ? "excluded" : "included", tile_of(op).getDimSize(0),
                        to.name, from),
            {to.place});
}

void KernelEmitter::write_reduce(ReduceOp op) {
  Value source = origin(op.getSource());
  if (is_scan_ && in_registers_flipped(source))
    throw InternalError("cuda: a scan sums over value channels");
  if (rank(source) == 1) {
    std::string from = vector(source), name = name_for(op);
    statement(fmt::format("const float {} = total<{}>({});", name, length(source), from));
    homes_[op].scalar = name;
    return;
  }
  if (sums_bands(op) && group_of(op).size() > 1) return write_sums_over_bands(group_of(op));
  std::string from;
  if (is_streamed(source)) {
    band_ = "row";
    std::string name = fresh(name_of(source).empty() ? "bands" : name_of(source) + "_bands");
    from = tile(source);
    statement(fmt::format("const {0} {1} = sum_of_bands<{0}, {2}>([&](int row) {{ return {3}; }});",
                          type_of(source), name, padded(value_dim_), without_parentheses(from)));
    from = name;
  } else {
    from = without_parentheses(tile(source));
  }
  std::vector<Range> reads = reads_;
  auto partial = [&](int64_t numbers) { return scratch("partial", "float*", numbers * 4); };
  if (rank(op) == 0) {
    Shared sums = partial(warps_);
    std::string name = name_for(op);
    statement(fmt::format("const float {} = total({}, {});", name, from, sums.name), {sums.place});
    homes_[op].scalar = name;
    return memory_.release(sums.place);
  }
  Shared to = declare_vector(op);
  reads_ = reads;
  bool over_rows = (op.getDims()[0] == 0) != in_registers_flipped(source);
  if (over_rows) return statement(fmt::format("column_sums({}, {});", to.name, from), {to.place});
  Shared sums = partial(warps_ * padded(tile_of(source).getDimSize(0)));
  statement(fmt::format("row_sums({}, {}, {});", to.name, from, sums.name), {to.place, sums.place});
  memory_.release(sums.place);
}

void KernelEmitter::write_row(RowOp op) {
  Value source = origin(op.getSource());
  if (rank(source) == 1) {
    std::string from = vector(source), name = name_for(op);
    statement(fmt::format("const float {} = {}[{}];", name, from, op.getIndex()));
    homes_[op].scalar = name;
    return;
  }
  if (in_registers_flipped(source))
    throw InternalError("cuda: a row of a tile that lies on its side");
  std::string from = tile(source);
  std::vector<Range> reads = reads_;
  Shared to = declare_vector(op);
  reads_ = reads;
  statement(fmt::format("take_row({}, {}, {});", to.name, from, op.getIndex()), {to.place});
}

// The template arguments of a bounded form, and the constant its anchors are moved by.
std::string KernelEmitter::bound_arguments(BoundAttr bound, double& offset) const {
  bool anchored = bound && bound.getForm() == Form::anchored;
  int64_t block = bound ? bound.getBlock() : std::min<int64_t>(chunk_, 16);
  offset = anchored ? (block - 1) / 2.0 * bound.getLower().getValueAsDouble() : 0;
  return fmt::format("Form::{}, {}", anchored ? "anchored" : "pairwise", block);
}

void KernelEmitter::write_decay_dot(DecayDotOp op) {
  if (is_pairwise(op.getBoundAttr())) return write_decay_dots(group_of(op));
  Precision precision = or_f32(op.getPrecision());
  std::string a = view(op.getLhs(), ""), b = view(op.getRhs(), "");
  std::string rows = view(op.getRows(), "float"), columns = view(op.getColumns(), "float");
  double offset;
  std::string bound = bound_arguments(op.getBoundAttr(), offset), element = element_of(precision);
  std::vector<Range> reads = reads_;
  std::string name = name_for(op);
  Shared to = declare_tile(op, "float", false, name);
  auto operand = [&](const char* wish) {
    return scratch(wish, shared_type(op.getLhs(), element, false),
                   padded(chunk_) * (padded(key_dim_) + 8) * bytes_of(element));
  };
  bool in_place = can_be_scaled_in_place(op);
  Shared left = in_place ? in_shared(origin(op.getLhs()), "float") : operand("left");
  Shared right = operand("right");
  reads_ = reads;
  body_.comment(fmt::format("{0}_ij = sum_d {1}_id {2}_jd exp({3}_id - {4}_jd), i {5} j", name, a,
                            b, rows, columns, op.getTriangle() == Triangle::lower ? ">=" : ">"));
  statement(fmt::format("decay_dot<cta, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {});",
                        text_of(precision), text_of(op.getTriangle()), bound, to.name, a, b, rows,
                        columns, literal(offset), left.name, right.name),
            {to.place, left.place, right.place});
  memory_.release(left.place);
  memory_.release(right.place);
  if (in_place)
    std::erase_if(homes_[origin(op.getLhs())].shared,
                  [&](const Shared& shared) { return shared.name == left.name; });
}

void KernelEmitter::write_decay_apply(DecayApplyOp op) {
  if (is_pairwise(op.getBoundAttr())) return write_decay_applies(group_of(op));
  Precision precision = at_least_tf32(or_f32(op.getPrecision()));
  std::string matrix = view(op.getMatrix(), "float"), vectors = view(op.getVectors(), "");
  std::string rows = view(op.getRows(), "float"), columns = view(op.getColumns(), "float");
  double offset;
  std::string bound = bound_arguments(op.getBoundAttr(), offset);
  std::vector<Range> reads = reads_;
  Shared scaled = scratch("scaled", shared_type(op, "float", false),
                          padded(chunk_) * (padded(key_dim_) + 8) * 4);
  reads_ = reads;
  bool by_rows = op.getSide() == Side::rows;
  std::string name = name_for(op);
  body_.comment(fmt::format("{0}_{5} = sum_{6} {1}_ij {2}_{6} exp({3}_i - {4}_j)", name, matrix,
                            vectors, rows, columns, by_rows ? "i" : "j", by_rows ? "j" : "i"));
  statement(fmt::format("const {0} {1} = decay_apply<{0}, cta, {2}, Side::{3}, {4}, {5}>({6}, {7}, "
                        "{8}, {9}, {10}, {11});",
                        type_of(op), name, text_of(precision), stringifySide(op.getSide()).str(),
                        text_of(op.getTriangle()), bound, matrix, vectors, rows, columns,
                        literal(offset), scaled.name),
            {scaled.place});
  homes_[op].registers = name;
  memory_.release(scaled.place);
}

void KernelEmitter::write_inverse(InverseUnitLowerOp op) {
  std::string from = view(op.getSource(), "float");
  std::vector<Range> reads = reads_;
  std::string name = name_for(op);
  Shared to = declare_tile(op, "float", false, name);
  reads_ = reads;
  body_.comment(fmt::format("{} = (I + {})^-1", name, from));
  statement(fmt::format("inverse_unit_lower<cta, {}>({}, {});", text_of(or_f32(op.getPrecision())),
                        to.name, from),
            {to.place});
}

}  // namespace linnet::cuda
