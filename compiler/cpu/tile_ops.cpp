#include "compiler/cpu/tile_ops.h"

#include <fmt/format.h>

#include "compiler/cpu/gate_products.h"
#include "linnet/error.h"
#include "llvm/ADT/TypeSwitch.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;
namespace arith = mlir::arith;

void TileOps::for_each_vector(Buffer buffer, llvm::function_ref<void(Value)> body) {
  e_.loop(e_.i64(0), e_.i64(buffer.rows * buffer.stride), e_.lanes(), body);
}

void TileOps::fill_zero(Buffer to) {
  for_each_vector(to, [&](Value at) { e_.store(e_.splat(0.f), e_.at(to.pointer, at)); });
}

void TileOps::copy(Buffer from, Buffer to) {
  auto move = [&](Value source, Value target) {
    Value x = e_.load_vector(e_.at(from.pointer, source)), at = e_.at(to.pointer, target);
    to.past_caches ? e_.store_past_caches(x, at) : e_.store(x, at);
  };
  if (from.step || to.step)
    return e_.loop(e_.i64(0), e_.i64(to.rows), 1, [&](Value i) {
      e_.loop(e_.i64(0), e_.i64(to.stride), e_.lanes(), [&](Value j) {
        move(e_.add(from.row_start(e_, i), j), e_.add(to.row_start(e_, i), j));
      });
    });
  for_each_vector(to, [&](Value at) { move(at, at); });
}

void TileOps::add_to(Buffer from, Buffer to) {
  for_each_vector(to, [&](Value at) {
    Value sum =
        e_.fadd(e_.load_vector(e_.at(to.pointer, at)), e_.load_vector(e_.at(from.pointer, at)));
    e_.store(sum, e_.at(to.pointer, at));
  });
}

// Square blocks of whole vectors in registers; what is left over one by one.
void TileOps::transpose(Buffer from, Buffer to) {
  int64_t lanes = e_.lanes(), whole = from.rows / lanes * lanes;
  auto block = [&](Value row, Value column, int64_t columns) {
    Values rows;
    for (int64_t i = 0; i < lanes; ++i)
      rows.push_back(
          e_.load_vector(e_.at(from.pointer, e_.add(from.row_start(e_, e_.add(row, i)), column))));
    e_.transpose(rows);
    for (int64_t j = 0; j < columns; ++j)
      e_.store(rows[j], e_.at(to.pointer, e_.add(to.row_start(e_, e_.add(column, j)), row)));
  };
  int64_t full = from.columns / lanes * lanes;
  e_.loop(e_.i64(0), e_.i64(whole), lanes, [&](Value row) {
    e_.loop(e_.i64(0), e_.i64(full), lanes, [&](Value column) { block(row, column, lanes); });
    if (full < from.columns) block(row, e_.i64(full), from.columns - full);
  });
  e_.loop(e_.i64(whole), e_.i64(from.rows), 1, [&](Value i) {
    e_.loop(e_.i64(0), e_.i64(from.columns), 1, [&](Value j) {
      Value x = e_.load(e_.at(from.pointer, e_.add(from.row_start(e_, i), j)));
      e_.store(x, e_.at(to.pointer, e_.add(to.row_start(e_, j), i)));
    });
  });
}

// One token goes over whole rows of the state, as they lie in memory.
int64_t TileOps::block_width(Buffer to) const {
  const Schedule& schedule = program_.schedule();
  return std::min(schedule.chunk == 1 ? kRowVectors : schedule.register_vectors,
                  to.stride / e_.lanes());
}

void TileOps::emit_across(Value value, Buffer to, Value first_row, int64_t rows,
                          std::optional<int64_t> known_row, const TurnHook& during, bool across) {
  int64_t vectors = to.stride / e_.lanes(), wide = block_width(to), whole = vectors / wide * wide;
  auto block = [&](Block b) {
    Values values = blocks_.evaluate(value, b);
    for (int64_t i = 0; i < b.rows; ++i)
      for (int64_t v = 0; v < b.vectors; ++v) {
        Value index = e_.add(e_.add(to.row_start(e_, e_.add(b.first_row, i)), b.first_column),
                             v * e_.lanes());
        Value part = values[i * b.vectors + v];
        to.past_caches ? e_.store_past_caches(part, e_.at(to.pointer, index))
                       : e_.store_as(part, to.pointer, index, to.storage);
      }
  };
  e_.loop(e_.i64(0), e_.i64(whole * e_.lanes()), wide * e_.lanes(), [&](Value j) {
    Block here{first_row, j, rows, wide, known_row, across};
    if (during) {
      int64_t turns = vectors / wide;
      Value before = e_.mul(e_.divide(first_row, rows), turns);
      here.at_step =
          during(e_.add(before, e_.divide(j, wide * e_.lanes())), to.rows / rows * turns);
    }
    block(here);
  });
  if (whole < vectors)
    block({first_row, e_.i64(whole * e_.lanes()), rows, vectors - whole, known_row, across});
}

void TileOps::emit_blocks(Value value, Buffer to, bool triangular, const TurnHook& during,
                          bool across) {
  int64_t high = std::min(program_.schedule().chunk == 1 ? 1 : block_rows_, to.rows);
  int64_t whole = to.rows / high * high;
  if (triangular)
    for (int64_t i = 0; i < whole; i += high)
      emit_across(value, to, e_.i64(i), high, i, during, across);
  else
    e_.loop(e_.i64(0), e_.i64(whole), high,
            [&](Value i) { emit_across(value, to, i, high, std::nullopt, during, across); });
  if (whole < to.rows) emit_across(value, to, e_.i64(whole), to.rows - whole, whole, {}, across);
}

bool TileOps::is_better_across(MatmulOp op) const {
  if (op.getTransposeLhs() || !op.getTransposeRhs()) return false;
  int64_t rows = tile_of(op.getLhs()).getDimSize(0), columns = tile_of(op.getRhs()).getDimSize(0);
  return rows >= program_.schedule().register_vectors * e_.lanes() && columns >= 4 * rows;
}

void TileOps::emit_some_rows(Value value, Buffer to, Value first_row, int64_t rows) {
  int64_t high = std::min(block_rows_, rows);
  e_.loop(e_.i64(0), e_.i64(rows / high * high), high,
          [&](Value i) { emit_across(value, to, e_.add(first_row, i), high, std::nullopt); });
  if (rows % high)
    emit_across(value, to, e_.add(first_row, rows / high * high), rows % high, std::nullopt);
}

void TileOps::emit(mlir::Operation* op, Buffer to, const TurnHook& during) {
  llvm::TypeSwitch<mlir::Operation*>(op)
      .Case<CumsumOp>([&](CumsumOp o) { cumsum(o, to); })
      .Case<ReduceOp>([&](ReduceOp o) { reduce(o, to); })
      .Case<InverseUnitLowerOp>([&](InverseUnitLowerOp o) { inverse(o, to); })
      .Case<DecayDotOp>([&](DecayDotOp o) { decay_dot(o, to, during); })
      .Case<DecayApplyOp>([&](DecayApplyOp o) { decay_apply(o, to); })
      .Default([](mlir::Operation* o) {
        throw InternalError(fmt::format("cpu: no code for {}", o->getName().getStringRef().str()));
      });
}

void TileOps::cumsum(CumsumOp op, Buffer to) {
  bool vector = tile_of(op).getRank() == 2;
  int64_t steps = vector ? to.rows : to.columns, width = vector ? to.stride : 1,
          stride = vector ? to.stride : 1;
  e_.loop(e_.i64(0), e_.i64(width), vector ? e_.lanes() : 1, [&](Value j) {
    Value zero = vector ? e_.splat(0.f) : e_.f32(0);
    e_.loop(e_.i64(0), e_.i64(steps), 1, {zero}, [&](Value turn, const Values& running) -> Values {
      Value i = op.getReverse() ? e_.sub(e_.i64(steps - 1), turn) : turn;
      Value index = e_.add(e_.mul(i, stride), j);
      Value x = vector ? blocks_.evaluate(op.getSource(), {i, j, 1, 1, std::nullopt})[0]
                       : e_.load(e_.at(memory_.buffer_of(op.getSource()).pointer, index));
      Value sum = e_.fadd(running[0], x);
      e_.store(op.getExclusive() ? running[0] : sum, e_.at(to.pointer, index));
      return {sum};
    });
  });
}

// Sums over columns, over rows, or over both; the last vector of a row counts only the columns
// there are.
void TileOps::reduce(ReduceOp op, Buffer to) {
  Tile type = tile_of(op.getSource());
  bool matrix = type.getRank() == 2;
  int64_t rows = matrix ? type.getDimSize(0) : 1,
          columns = matrix ? type.getDimSize(1) : type.getDimSize(0);
  int64_t vectors = (columns + e_.lanes() - 1) / e_.lanes();
  bool over_rows = matrix && llvm::is_contained(op.getDims(), 0);
  bool over_columns = llvm::is_contained(op.getDims(), matrix ? 1 : 0);
  auto value_at = [&](Value i, int64_t v) {
    Value x = blocks_.evaluate(op.getSource(), {i, e_.i64(v * e_.lanes()), 1, 1, std::nullopt})[0];
    if ((v + 1) * e_.lanes() <= columns) return x;
    return e_.select(e_.columns_up_to(e_.i64(v * e_.lanes()), e_.i64(columns), true), x,
                     e_.splat(0.f));
  };
  if (over_rows && !over_columns) {
    Values sums = e_.loop(e_.i64(0), e_.i64(rows), 1, Values(vectors, e_.splat(0.f)),
                          [&](Value i, const Values& acc) {
                            Values next;
                            for (int64_t v = 0; v < vectors; ++v)
                              next.push_back(e_.fadd(acc[v], value_at(i, v)));
                            return next;
                          });
    for (int64_t v = 0; v < vectors; ++v)
      e_.store(sums[v], e_.at(to.pointer, e_.i64(v * e_.lanes())));
    return;
  }
  auto row_sum = [&](Value i) {
    Value sum = value_at(i, 0);
    for (int64_t v = 1; v < vectors; ++v) sum = e_.fadd(sum, value_at(i, v));
    return sum;
  };
  if (over_rows || !matrix) {
    Values sum = e_.loop(
        e_.i64(0), e_.i64(rows), 1, {e_.splat(0.f)},
        [&](Value i, const Values& acc) -> Values { return {e_.fadd(acc[0], row_sum(i))}; });
    e_.store(e_.total(sum[0]), to.pointer);
    return;
  }
  e_.loop(e_.i64(0), e_.i64(rows), 1,
          [&](Value i) { e_.store(e_.total(row_sum(i)), e_.at(to.pointer, i)); });
}

// Forward substitution, Z_i = e_i - sum_j<i A_ij Z_j, by blocks of rows and a vector of columns in
// registers: first what the rows before the block give, then those of the block one after another.
void TileOps::inverse(InverseUnitLowerOp op, Buffer to) {
  Buffer a = memory_.buffer_of(op.getSource());
  auto rows_from = [&](Value first, int64_t count) {
    // Of A, some rows below the block's first and some columns to the right of `column`.
    auto minus_a = [&](Value column, int64_t i, int64_t j) {
      Value start = e_.at(a.pointer, e_.add(e_.mul(first, a.stride), column));
      Value factor = e_.load(e_.at(start, e_.i64(i * a.stride + j)));
      return e_.splat(e_.builder().create<arith::NegFOp>(e_.loc(), factor));
    };
    e_.loop(e_.i64(0), e_.add(first, 1), e_.lanes(), [&](Value column) {
      Value place = e_.at(to.pointer, e_.add(e_.mul(first, to.stride), column));
      Values z;
      for (int64_t i = 0; i < count; ++i)
        z.push_back(e_.load_vector(e_.at(place, e_.i64(i * to.stride))));
      z = e_.loop(column, first, 1, z, [&](Value j, Values sums) {
        Value before = blocks_.load(to, j, column);
        for (int64_t i = 0; i < count; ++i) sums[i] = e_.fma(minus_a(j, i, 0), before, sums[i]);
        return sums;
      });
      for (int64_t j = 0; j < count; ++j) {
        e_.store(z[j], e_.at(place, e_.i64(j * to.stride)));
        for (int64_t i = j + 1; i < count; ++i) z[i] = e_.fma(minus_a(first, i, j), z[j], z[i]);
      }
    });
  };
  fill_zero(to);
  e_.loop(e_.i64(0), e_.i64(to.rows * to.stride), to.stride + 1,
          [&](Value at) { e_.store(e_.f32(1), e_.at(to.pointer, at)); });
  int64_t whole = to.rows / e_.lanes() * e_.lanes();
  e_.loop(e_.i64(0), e_.i64(whole), e_.lanes(), [&](Value i) { rows_from(i, e_.lanes()); });
  if (whole < to.rows) rows_from(e_.i64(whole), to.rows - whole);
}

std::optional<Value> TileOps::stepwise_gate(mlir::Operation* op) {
  if (!llvm::isa<DecayDotOp, DecayApplyOp>(op)) return std::nullopt;
  CumsumOp rows = running_sum(program_, op->getOperand(2)),
           columns = running_sum(program_, op->getOperand(3));
  if (!rows || !columns ||
      program_.origin(rows.getSource()) != program_.origin(columns.getSource()))
    return std::nullopt;
  Value gate = program_.origin(rows.getSource());
  bool here =
      gate.getDefiningOp<InputOp>() || program_.loop_of(gate) == program_.loop_of(op->getResult(0));
  return here ? std::optional(gate) : std::nullopt;
}

// As the walk takes it up.
Value TileOps::row_of_scores(DecayDotOp op, Value i, Value channel) {
  auto [rows_before, columns_before] = sees_before(op);
  Value x = blocks_.evaluate(op.getLhs(), {i, channel, 1, 1, std::nullopt})[0];
  if (rows_before || !columns_before) return x;
  return e_.fmul(x, blocks_.load(memory_.steps(*stepwise_gate(op)), i, channel));
}

// Along a row of scores from the diagonal to the left, each step multiplies the row's vector by one
// more token's decay: no exponential a pair, nothing above one, and no difference of large sums.
void TileOps::walk_along_row(DecayDotOp op, Buffer b, Buffer to, Value i, Value last, Value channel,
                             const Values& row, bool add) {
  Buffer step = memory_.steps(*stepwise_gate(op));
  auto [rows_before, columns_before] = sees_before(op);
  auto load = [&](const Buffer& x, Value i, size_t v) {
    return blocks_.load(x, i, e_.add(channel, v * e_.lanes()));
  };
  // Where the row does not see its own token's decay but the column does, the walk starts one to
  // the left.
  bool skip_diagonal = rows_before && !columns_before;
  Value begin = e_.i64(skip_diagonal ? 1 : 0), end = e_.add(e_.sub(i, last), 1);
  e_.loop(begin, end, 1, row, [&](Value t, const Values& decayed) {
    Value j = e_.sub(i, t);
    Value sum = e_.fmul(decayed[0], load(b, j, 0));
    for (size_t v = 1; v < row.size(); ++v) sum = e_.fma(decayed[v], load(b, j, v), sum);
    Value place = e_.at(to.pointer, e_.add(e_.mul(i, to.stride), j));
    Value score = e_.total(sum);
    if (add) score = e_.fadd(score, e_.load(place));
    e_.store(score, place);
    // The step to column j - 1; at the first column it goes nowhere.
    Value next = columns_before
                     ? e_.builder().create<arith::MaxSIOp>(e_.loc(), e_.add(j, -1), e_.i64(0))
                     : j;
    Values further;
    for (size_t v = 0; v < row.size(); ++v)
      further.push_back(e_.fmul(decayed[v], load(step, next, v)));
    return further;
  });
  if (op.getTriangle() == Triangle::strict_lower && !skip_diagonal)
    e_.store(e_.f32(0), e_.at(to.pointer, e_.add(e_.mul(i, to.stride), i)));
}

std::pair<bool, bool> TileOps::sees_before(mlir::Operation* op) {
  return {running_sum(program_, op->getOperand(2)).getExclusive(),
          running_sum(program_, op->getOperand(3)).getExclusive()};
}

// The same walk for the adjoints: to the left along a row, or down along a column.
void TileOps::decay_apply_stepwise(DecayApplyOp op, Buffer to) {
  Buffer matrix = memory_.buffer_of(op.getMatrix()), vectors = memory_.buffer_of(op.getVectors());
  Buffer step = memory_.steps(*stepwise_gate(op));
  auto [rows_before, columns_before] = sees_before(op);
  bool by_rows = op.getSide() == Side::rows;
  bool own_step = !rows_before && columns_before;  // the pair on the diagonal decays
  bool skip = (rows_before && !columns_before);    // it is not there at all
  bool drop = op.getTriangle() == Triangle::strict_lower && !skip;  // or not wanted
  e_.loop(e_.i64(0), e_.i64(to.rows), 1, [&](Value own) {
    Value count = by_rows ? e_.add(own, 1) : e_.sub(e_.i64(to.rows), own);
    e_.loop(e_.i64(0), e_.i64(to.stride), e_.lanes(), [&](Value d) {
      Value decay = own_step ? blocks_.load(step, own, d) : e_.splat(1.f);
      auto walk = [&](Value t, const Values& state) -> Values {
        Value other = by_rows ? e_.sub(own, t) : e_.add(own, t);
        Value i = by_rows ? own : other, j = by_rows ? other : own;
        Value weight = e_.load(e_.at(matrix.pointer, e_.add(e_.mul(i, matrix.stride), j)));
        Value sum =
            e_.fma(e_.splat(weight), e_.fmul(blocks_.load(vectors, other, d), state[0]), state[1]);
        Value next = by_rows ? e_.builder().create<arith::MaxSIOp>(
                                   e_.loc(), e_.add(other, columns_before ? -1 : 0), e_.i64(0))
                             : e_.minimum(e_.add(other, rows_before ? 0 : 1), e_.i64(to.rows - 1));
        return {e_.fmul(state[0], blocks_.load(step, next, d)), sum};
      };
      Values state{decay, e_.splat(0.f)};
      if (drop) {  // pass the diagonal without adding it
        Value next = by_rows ? e_.builder().create<arith::MaxSIOp>(
                                   e_.loc(), e_.add(own, columns_before ? -1 : 0), e_.i64(0))
                             : e_.minimum(e_.add(own, rows_before ? 0 : 1), e_.i64(to.rows - 1));
        state[0] = e_.fmul(decay, blocks_.load(step, next, d));
      }
      state = e_.loop(e_.i64(skip || drop ? 1 : 0), count, 1, state, walk);
      e_.store(state[1], e_.at(to.pointer, e_.add(e_.mul(own, to.stride), d)));
    });
  });
}

Value TileOps::decay_between(Buffer rows, Buffer columns, Value i, Value j, Value d) {
  return e_.exp(e_.fsub(blocks_.load(rows, i, d), blocks_.load(columns, j, d)));
}

// E3: every pair of rows and columns under the triangle, one exponential a channel.
void TileOps::decay_dot(DecayDotOp op, Buffer to, const TurnHook& during) {
  if (stepwise_gate(op)) {
    fill_zero(to);
    Buffer columns = memory_.buffer_of(op.getRhs());
    int64_t group = (e_.lanes() == 16 ? 16 : 8) * e_.lanes();  // stays in registers
    return e_.loop(e_.i64(0), e_.i64(to.rows), 1, [&](Value i) {
      if (during) during(i, to.rows);
      for (int64_t first = 0; first < columns.stride; first += group) {
        Values row;
        for (int64_t c = first; c < std::min(first + group, columns.stride); c += e_.lanes())
          row.push_back(row_of_scores(op, i, e_.i64(c)));
        walk_along_row(op, columns, to, i, e_.i64(0), e_.i64(first), row, first > 0);
      }
    });
  }
  Buffer a = memory_.buffer_of(op.getLhs()), b = memory_.buffer_of(op.getRhs());
  Buffer rows = memory_.buffer_of(op.getRows()), columns = memory_.buffer_of(op.getColumns());
  bool strict = op.getTriangle() == Triangle::strict_lower;
  fill_zero(to);
  e_.loop(e_.i64(0), e_.i64(to.rows), 1, [&](Value i) {
    e_.loop(e_.i64(0), strict ? i : e_.add(i, 1), 1, [&](Value j) {
      Values sum =
          e_.loop(e_.i64(0), e_.i64(a.stride), e_.lanes(), {e_.splat(0.f)},
                  [&](Value d, const Values& acc) -> Values {
                    Value x = blocks_.load(a, i, d), y = blocks_.load(b, j, d);
                    return {e_.fma(e_.fmul(x, y), decay_between(rows, columns, i, j, d), acc[0])};
                  });
      e_.store(e_.total(sum[0]), e_.at(to.pointer, e_.add(e_.mul(i, to.stride), j)));
    });
  });
}

void TileOps::decay_apply(DecayApplyOp op, Buffer to) {
  if (stepwise_gate(op)) return decay_apply_stepwise(op, to);
  Buffer matrix = memory_.buffer_of(op.getMatrix()), vectors = memory_.buffer_of(op.getVectors());
  Buffer rows = memory_.buffer_of(op.getRows()), columns = memory_.buffer_of(op.getColumns());
  bool strict = op.getTriangle() == Triangle::strict_lower, by_rows = op.getSide() == Side::rows;
  // `own` is the result's row; the others are the columns up to it, or the rows from it on.
  e_.loop(e_.i64(0), e_.i64(to.rows), 1, [&](Value own) {
    Value from = by_rows ? e_.i64(0) : strict ? e_.add(own, 1) : own;
    Value end = by_rows ? (strict ? own : e_.add(own, 1)) : e_.i64(to.rows);
    e_.loop(e_.i64(0), e_.i64(to.stride), e_.lanes(), [&](Value d) {
      Values sum =
          e_.loop(from, end, 1, {e_.splat(0.f)}, [&](Value other, const Values& acc) -> Values {
            Value i = by_rows ? own : other, j = by_rows ? other : own;
            Value weight =
                e_.splat(e_.load(e_.at(matrix.pointer, e_.add(e_.mul(i, matrix.stride), j))));
            Value x = blocks_.load(vectors, other, d);
            return {e_.fma(e_.fmul(weight, x), decay_between(rows, columns, i, j, d), acc[0])};
          });
      e_.store(sum[0], e_.at(to.pointer, e_.add(e_.mul(own, to.stride), d)));
    });
  });
}

}  // namespace linnet::cpu
