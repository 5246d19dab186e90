#include "compiler/cpu/gate_products.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;
namespace arith = mlir::arith;

CumsumOp running_sum(const TileProgram& program, Value value) {
  auto sum = program.origin(value).getDefiningOp<CumsumOp>();
  return sum && !sum.getReverse() ? sum : CumsumOp();
}

namespace {

// The sum over a chunk of the running sum whose last row a value is.
CumsumOp whole_sum(const TileProgram& program, Value value) {
  auto last = program.origin(value).getDefiningOp<RowOp>();
  if (!last) return {};
  CumsumOp sum = running_sum(program, last.getSource());
  bool is_whole = sum && !sum.getExclusive() &&
                  static_cast<int64_t>(last.getIndex()) == tile_of(sum).getDimSize(0) - 1;
  return is_whole ? sum : CumsumOp();
}

}  // namespace

std::optional<GateProduct> GateProducts::of(mlir::Operation* op) const {
  using Over = GateProduct::Over;
  if (program_.schedule().chunk == 1) return std::nullopt;
  auto found = [&](CumsumOp sum, Over over) -> std::optional<GateProduct> {
    if (sum->getBlock() != op->getBlock()) return std::nullopt;
    return GateProduct{program_.origin(sum.getSource()), over};
  };
  if (auto mask = llvm::dyn_cast<DecayMaskOp>(op)) {
    CumsumOp rows = running_sum(program_, mask.getRows()),
             columns = running_sum(program_, mask.getColumns());
    if (!rows || !columns || rows->getBlock() != op->getBlock() ||
        program_.origin(rows.getSource()) != program_.origin(columns.getSource()))
      return std::nullopt;
    auto product = found(columns, Over::between);
    if (product) product->mask = mask;
    return product;
  }
  if (!llvm::isa<mlir::math::ExpOp>(op)) return std::nullopt;
  Value exponent = program_.origin(op->getOperand(0));
  if (CumsumOp sum = whole_sum(program_, exponent)) return found(sum, Over::all);
  if (CumsumOp sum = running_sum(program_, exponent))
    return found(sum, sum.getExclusive() ? Over::before : Over::so_far);
  auto rest = exponent.getDefiningOp<arith::SubFOp>();
  auto all = rest ? program_.origin(rest.getLhs()).getDefiningOp<BroadcastOp>() : BroadcastOp();
  CumsumOp sum = all ? whole_sum(program_, all.getSource()) : CumsumOp();
  if (!sum || running_sum(program_, rest.getRhs()) != sum) return std::nullopt;
  return found(sum, Over::after);
}

Buffer GateProducts::make_steps(Value gate) {
  gate = program_.origin(gate);
  return scratch_.form_of(gate, kSteps, scratch_.shaped({}, tile_of(gate)), [&](Buffer to) {
    int64_t vectors = to.stride / e_.lanes();
    int64_t together = vectors % 4 == 0 ? 4 : 1;  // the steps of one wait for each other
    e_.loop(e_.i64(0), e_.i64(to.rows), 1, [&](Value i) {
      e_.loop(e_.i64(0), e_.i64(to.stride), together * e_.lanes(), [&](Value j) {
        Values x = blocks_.evaluate(gate, {i, j, 1, together, std::nullopt});
        for (int64_t v = 0; v < together; ++v) {
          Value index = e_.add(e_.add(e_.mul(i, to.stride), j), v * e_.lanes());
          e_.store(e_.exp(x[v]), e_.at(to.pointer, index));
        }
      });
    });
  });
}

void GateProducts::emit(const GateProduct& product, Buffer to) {
  Buffer steps = make_steps(product.gate);
  if (product.mask) return emit_mask(product.mask, steps, to);
  if (product.over != GateProduct::Over::all) return emit_running(product, steps, to);
  if (tile_of(product.gate).getRank() == 1) {
    Values all = e_.loop(e_.i64(0), e_.i64(steps.columns), 1, {e_.f32(1)},
                         [&](Value i, const Values& so_far) -> Values {
                           return {e_.fmul(so_far[0], e_.load(e_.at(steps.pointer, i)))};
                         });
    return e_.store(all[0], to.pointer);
  }
  e_.loop(e_.i64(0), e_.i64(steps.stride), e_.lanes(), [&](Value j) {
    Values all = e_.loop(e_.i64(0), e_.i64(steps.rows), 1, {e_.splat(1.f)},
                         [&](Value i, const Values& so_far) -> Values {
                           return {e_.fmul(so_far[0], blocks_.load(steps, i, j))};
                         });
    e_.store(all[0], e_.at(to.pointer, j));
  });
}

void GateProducts::emit_running(const GateProduct& product, Buffer steps, Buffer to) {
  constexpr int64_t kTogether = 8;  // vectors of a row in registers
  bool so_far = product.over == GateProduct::Over::so_far;
  bool from_the_end = product.over == GateProduct::Over::after;
  if (tile_of(product.gate).getRank() == 1) {  // the tokens lie beside each other
    e_.loop(e_.i64(0), e_.i64(to.columns), 1, {e_.f32(1)},
            [&](Value turn, const Values& last) -> Values {
              Value i = from_the_end ? e_.sub(e_.i64(to.columns - 1), turn) : turn;
              Value next = e_.fmul(last[0], e_.load(e_.at(steps.pointer, i)));
              e_.store(so_far ? next : last[0], e_.at(to.pointer, i));
              return {next};
            });
    if (so_far) wholes_[product.gate] = {e_.at(to.pointer, e_.i64(to.columns - 1))};
    return;
  }
  int64_t vectors = to.stride / e_.lanes();
  for (int64_t first = 0; first < vectors; first += kTogether) {
    int64_t count = std::min(kTogether, vectors - first);
    Values ones(count, e_.splat(1.f));
    e_.loop(e_.i64(0), e_.i64(to.rows), 1, ones, [&](Value turn, const Values& last) {
      Value i = from_the_end ? e_.sub(e_.i64(to.rows - 1), turn) : turn;
      Values next;
      for (int64_t v = 0; v < count; ++v) {
        Value index = e_.add(e_.mul(i, to.stride), (first + v) * e_.lanes());
        next.push_back(e_.fmul(last[v], e_.load_vector(e_.at(steps.pointer, index))));
        e_.store(so_far ? next[v] : last[v], e_.at(to.pointer, index));
      }
      return next;
    });
  }
  if (so_far)
    wholes_[product.gate] = {e_.at(to.pointer, e_.i64((to.rows - 1) * to.stride)), 1, to.columns,
                             to.stride};
}

// A row is the one above it, decayed by one more token.
void GateProducts::emit_mask(DecayMaskOp mask, Buffer steps, Buffer to) {
  bool rows_before = running_sum(program_, mask.getRows()).getExclusive(),
       columns_before = running_sum(program_, mask.getColumns()).getExclusive();
  // A column that sees its own token's decay starts below it; a row that does not, without it.
  bool below = mask.getTriangle() == Triangle::strict_lower || (rows_before && !columns_before);
  int64_t vectors = to.stride / e_.lanes();
  e_.loop(e_.i64(0), e_.i64(to.rows), 1, Values(vectors, e_.splat(0.f)), [&](Value i, Values row) {
    Value step = e_.splat(e_.load(e_.at(steps.pointer, i)));
    auto up_to = [&](int64_t v, bool strictly) {
      return e_.columns_up_to(e_.i64(v * e_.lanes()), i, strictly);
    };
    auto decay = [&] {
      for (Value& x : row) x = e_.fmul(x, step);
    };
    auto start = [&] {  // what is beyond the token is zero
      for (int64_t v = 0; v < vectors; ++v) {
        Value own = e_.select(up_to(v, false), e_.splat(1.f), e_.splat(0.f));
        row[v] = e_.select(up_to(v, true), row[v], own);
      }
    };
    if (columns_before) start();
    if (!rows_before) decay();
    if (!columns_before && !rows_before) start();
    for (int64_t v = 0; v < vectors; ++v) {
      Value kept = e_.select(up_to(v, below), row[v], e_.splat(0.f));
      Value at = e_.add(e_.mul(i, to.stride), v * e_.lanes());
      e_.store(kept, e_.at(to.pointer, at));
    }
    if (rows_before) decay();
    if (!columns_before && rows_before) start();
    return row;
  });
}

std::optional<Buffer> GateProducts::made(const GateProduct& product) const {
  auto found = wholes_.find(product.gate);
  if (product.over != GateProduct::Over::all || found == wholes_.end()) return std::nullopt;
  return found->second;
}

std::vector<mlir::Operation*> GateProducts::in_order(llvm::ArrayRef<mlir::Operation*> body) const {
  std::vector<mlir::Operation*> order, later;
  for (mlir::Operation* op : body) {
    if (auto product = of(op); product && product->over == GateProduct::Over::all) {
      later.push_back(op);
      continue;
    }
    llvm::erase_if(later, [&](mlir::Operation* all) {
      bool reads = llvm::any_of(op->getOperands(), [&](Value operand) {
        return program_.origin(operand) == all->getResult(0);
      });
      if (reads) order.push_back(all);
      return reads;
    });
    order.push_back(op);
  }
  llvm::append_range(order, later);
  return order;
}

}  // namespace linnet::cpu
