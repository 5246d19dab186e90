#include "compiler/cpu/blocks.h"

#include <fmt/format.h>

#include "linnet/error.h"
#include "llvm/ADT/TypeSwitch.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;
namespace arith = mlir::arith;
namespace math = mlir::math;

MatmulOp BlockEvaluator::fused_product(Value value) {
  value = program_.origin(value);
  return memory_.in_memory(value) ? MatmulOp() : value.getDefiningOp<MatmulOp>();
}

void BlockEvaluator::for_each_product(Value value, llvm::function_ref<void(MatmulOp)> call) {
  mlir::Operation* op = program_.origin(value).getDefiningOp();
  if (auto matmul = llvm::dyn_cast<MatmulOp>(op)) return call(matmul);
  if (!is_fusible(op) || llvm::isa<BroadcastOp, DecayMaskOp>(op)) return;
  for (Value operand : op->getOperands()) {
    operand = program_.origin(operand);
    if (operand.getDefiningOp() && !memory_.in_memory(operand)) for_each_product(operand, call);
  }
}

Values BlockEvaluator::evaluate(Value value, const Block& block) {
  value = program_.origin(value);
  if (memory_.in_memory(value)) return load(value, block);
  return compute(value.getDefiningOp(), block);
}

Values BlockEvaluator::load_view(Value pointer, int64_t row_step, int64_t column_step,
                                 const Block& block) {
  Values result;
  for (int64_t i = 0; i < block.rows; ++i) {
    Value start = row_step ? e_.mul(row(block, i), row_step) : e_.i64(0);
    Value scalar = column_step ? Value() : e_.splat(e_.load(e_.at(pointer, start)));
    for (int64_t v = 0; v < block.vectors; ++v)
      result.push_back(scalar ? scalar
                              : e_.load_vector(e_.at(pointer, e_.add(start, column(block, v)))));
  }
  return result;
}

Values BlockEvaluator::load(Value value, const Block& block) {
  Buffer buffer = memory_.buffer_of(value);
  if (buffer.step) {
    Values result;
    for (int64_t i = 0; i < block.rows; ++i)
      for (int64_t v = 0; v < block.vectors; ++v)
        result.push_back(load(buffer, row(block, i), column(block, v)));
    return result;
  }
  return load_view(buffer.pointer, buffer.rows == 1 ? 0 : buffer.stride,
                   buffer.columns == 1 && buffer.rows == 1 ? 0 : 1, block);
}

Values BlockEvaluator::load_broadcast(BroadcastOp op, const Block& block) {
  Value source = program_.origin(op.getSource());
  if (auto constant = source.getDefiningOp<arith::ConstantOp>()) {
    float number = llvm::cast<mlir::SplatElementsAttr>(constant.getValue()).getSplatValue<float>();
    return Values(block.rows * block.vectors, e_.splat(number));
  }
  Value pointer = memory_.buffer_of(source).pointer;
  if (tile_of(source).getRank() == 0) return load_view(pointer, 0, 0, block);
  bool over_rows = llvm::is_contained(op.getDims(), block.across ? 1 : 0);
  return over_rows ? load_view(pointer, 0, 1, block) : load_view(pointer, 1, 0, block);
}

Values BlockEvaluator::compute(mlir::Operation* op, const Block& block) {
  auto select_rows = [&](Value source, auto keep) {
    Values values = evaluate(source, block);
    for (int64_t i = 0; i < block.rows; ++i) {
      Value kept = keep(row(block, i));
      for (int64_t v = 0; v < block.vectors; ++v)
        values[i * block.vectors + v] =
            e_.select(kept, values[i * block.vectors + v], e_.splat(0.f));
    }
    return values;
  };
  auto compare = [&](arith::CmpIPredicate predicate, Value a, Value b) -> Value {
    return e_.builder().create<arith::CmpIOp>(e_.loc(), predicate, a, b);
  };
  return llvm::TypeSwitch<mlir::Operation*, Values>(op)
      .Case<arith::ConstantOp>([&](arith::ConstantOp o) {
        float number = llvm::cast<mlir::SplatElementsAttr>(o.getValue()).getSplatValue<float>();
        return Values(block.rows * block.vectors, e_.splat(number));
      })
      .Case<BroadcastOp>([&](BroadcastOp o) { return load_broadcast(o, block); })
      .Case<MatmulOp>([&](MatmulOp o) {
        return accumulate(o, false, Values(block.rows * block.vectors, e_.splat(0.f)), block);
      })
      .Case<arith::AddFOp>([&](auto o) { return sum(o, false, block); })
      .Case<arith::SubFOp>([&](auto o) { return sum(o, true, block); })
      .Case<MaskOp>([&](MaskOp o) {
        Values values = evaluate(o.getSource(), block);
        for (int64_t i = 0; i < block.rows; ++i)
          for (int64_t v = 0; v < block.vectors; ++v) {
            Value kept = e_.columns_up_to(column(block, v), row(block, i),
                                          o.getTriangle() == Triangle::strict_lower);
            Value& value = values[i * block.vectors + v];
            value = e_.select(kept, value, e_.splat(0.f));
          }
        return values;
      })
      .Case<DecayMaskOp>([&](DecayMaskOp o) { return decay_mask(o, block); })
      .Case<ValidOp>([&](ValidOp o) {
        // A vector over tokens is one row: its lanes are the tokens.
        if (tile_of(o).getRank() == 1) {
          Values values = evaluate(o.getSource(), block);
          for (int64_t v = 0; v < block.vectors; ++v)
            values[v] = e_.select(e_.columns_up_to(column(block, v), memory_.valid_rows(), true),
                                  values[v], e_.splat(0.f));
          return values;
        }
        return select_rows(o.getSource(), [&](Value i) {
          return compare(arith::CmpIPredicate::slt, i, memory_.valid_rows());
        });
      })
      .Case<PlaceRowOp>([&](PlaceRowOp o) {
        Value source = program_.origin(o.getSource());
        Values values;
        if (tile_of(o).getRank() == 1) {  // one number placed among the tokens
          Value number = e_.splat(e_.load(memory_.buffer_of(source).pointer));
          for (int64_t v = 0; v < block.vectors; ++v) {
            Value up_to = e_.columns_up_to(column(block, v), e_.i64(o.getIndex()), false);
            Value below = e_.columns_up_to(column(block, v), e_.i64(o.getIndex()), true);
            values.push_back(
                e_.select(below, e_.splat(0.f), e_.select(up_to, number, e_.splat(0.f))));
          }
          return values;
        }
        values = load_view(memory_.buffer_of(source).pointer, 0, 1, block);
        for (int64_t i = 0; i < block.rows; ++i) {
          Value here = compare(arith::CmpIPredicate::eq, row(block, i), e_.i64(o.getIndex()));
          for (int64_t v = 0; v < block.vectors; ++v)
            values[i * block.vectors + v] =
                e_.select(here, values[i * block.vectors + v], e_.splat(0.f));
        }
        return values;
      })
      .Case<RoundOp>(
          [&](RoundOp o) { return evaluate(o.getSource(), block); })  // sums are f32 here anyway
      .Default([&](mlir::Operation* o) { return elementwise(o, block); });
}

// a + b and a - b; a product among them adds up on top of the other side.
Values BlockEvaluator::sum(mlir::Operation* op, bool subtract, const Block& block) {
  Value a = op->getOperand(0), b = op->getOperand(1);
  if (MatmulOp product = fused_product(b))
    return accumulate(product, subtract, evaluate(a, block), block);
  if (MatmulOp product = fused_product(a); product && !subtract)
    return accumulate(product, false, evaluate(b, block), block);
  Values x = evaluate(a, block), y = evaluate(b, block);
  for (size_t i = 0; i < x.size(); ++i) x[i] = subtract ? e_.fsub(x[i], y[i]) : e_.fadd(x[i], y[i]);
  return x;
}

// sums += (-) lhs rhs: one scalar of the left times one vector of the right at a time, skipping
// what is known zero.
Values BlockEvaluator::accumulate(MatmulOp op, bool negate, Values sums, const Block& block) {
  constexpr int64_t kChains = 4;
  if (is_product_of_rows(op)) return add_dots(op, negate, sums, block);
  Value left = program_.origin(op.getLhs()), right = program_.origin(op.getRhs());
  bool transposed = op.getTransposeLhs(), right_transposed = op.getTransposeRhs();
  if (block.across) {
    std::swap(left, right);
    transposed = !std::exchange(right_transposed, !transposed);
  }
  Buffer a = memory_.buffer_of(left);
  Buffer b = right_transposed ? memory_.transposed(right) : memory_.buffer_of(right);
  int64_t depth = tile_of(left).getDimSize(transposed ? 0 : 1);
  // Rows of a lower triangular side end at the diagonal, and start there where it is transposed.
  int64_t from = 0, to = depth;
  bool triangular = block.known_row && program_.is_lower_triangular(left);
  int64_t corner = triangular ? *block.known_row : 0;
  int64_t corner_end = triangular ? std::min(depth, corner + block.rows) : 0;
  if (triangular) (transposed ? from : to) = transposed ? corner_end : corner;
  auto step_of = [&](Value k, Values acc, int64_t first_row, int64_t end_row) {
    if (block.at_step.product == op) block.at_step.call(k);
    Values right_vectors = held_.lookup(right);
    for (int64_t v = right_vectors.size(); v < block.vectors; ++v)
      right_vectors.push_back(
          e_.load_vector(e_.at(b.pointer, e_.add(b.row_start(e_, k), column(block, v)))));
    for (int64_t i = first_row; i < end_row; ++i) {
      Value index = transposed ? e_.add(a.row_start(e_, k), row(block, i))
                               : e_.add(a.row_start(e_, row(block, i)), k);
      Value scalar = e_.load(e_.at(a.pointer, index));
      if (negate) scalar = e_.builder().create<arith::NegFOp>(e_.loc(), scalar);
      Value x = e_.splat(scalar);
      for (int64_t v = 0; v < block.vectors; ++v) {
        Value& sum = acc[i * block.vectors + v];
        sum = e_.fma(x, right_vectors[v], sum);
      }
    }
    return acc;
  };
  auto step = [&](Value k, const Values& acc) { return step_of(k, acc, 0, block.rows); };
  // On the diagonal a token is left out of the rows it is not seen by: even what is no number does
  // not get there.
  auto pass_corner = [&] {
    for (int64_t k = corner; k < corner_end; ++k)
      sums = step_of(e_.i64(k), sums, transposed ? 0 : k - corner,
                     transposed ? k - corner + 1 : block.rows);
  };
  if (transposed) pass_corner();
  // A single sum would wait for itself at every step.
  if (sums.size() == 1 && to - from >= 2 * kChains) {
    Values chains(kChains, e_.splat(0.f));
    chains[0] = sums[0];
    int64_t whole = from + (to - from) / kChains * kChains;
    chains = e_.loop(e_.i64(from), e_.i64(whole), kChains, chains, [&](Value k, const Values& acc) {
      Values next;
      for (int64_t n = 0; n < kChains; ++n) next.push_back(step(e_.add(k, n), {acc[n]})[0]);
      return next;
    });
    sums[0] = e_.fadd(e_.fadd(chains[0], chains[1]), e_.fadd(chains[2], chains[3]));
    from = whole;
  }
  sums = e_.loop_by_two(from, to, sums, step);
  if (!transposed) pass_corner();
  return sums;
}

// Of one token: rows times a row, one number each.
Values BlockEvaluator::add_dots(MatmulOp op, bool negate, Values sums, const Block& block) {
  Buffer a = memory_.buffer_of(op.getLhs()), b = memory_.buffer_of(op.getRhs());
  for (int64_t i = 0; i < block.rows; ++i) {
    Value dot = e_.splat(0.f);
    for (int64_t at = 0; at < a.columns; at += e_.lanes()) {
      Value x = load(a, row(block, i), e_.i64(at)), y = load(b, e_.i64(0), e_.i64(at));
      if (at + e_.lanes() > a.columns) {  // beyond them may be anything
        Value there = e_.columns_up_to(e_.i64(at), e_.i64(a.columns), true);
        x = e_.select(there, x, e_.splat(0.f));
        y = e_.select(there, y, e_.splat(0.f));
      }
      dot = e_.fma(x, y, dot);
    }
    Value number = e_.splat(e_.total(dot));
    for (int64_t v = 0; v < block.vectors; ++v) {
      Value& sum = sums[i * block.vectors + v];
      sum = negate ? e_.fsub(sum, number) : e_.fadd(sum, number);
    }
  }
  return sums;
}

Values BlockEvaluator::decay_mask(DecayMaskOp op, const Block& block) {
  Value rows = memory_.buffer_of(program_.origin(op.getRows())).pointer;
  Value columns = memory_.buffer_of(program_.origin(op.getColumns())).pointer;
  Values own = load_view(rows, 1, 0, block), other = load_view(columns, 0, 1, block), result;
  for (int64_t i = 0; i < block.rows; ++i)
    for (int64_t v = 0; v < block.vectors; ++v) {
      int64_t at = i * block.vectors + v;
      Value kept = e_.columns_up_to(column(block, v), row(block, i),
                                    op.getTriangle() == Triangle::strict_lower);
      Value exponent = e_.select(kept, e_.fsub(own[at], other[at]), e_.splat(0.f));
      result.push_back(e_.select(kept, e_.exp(exponent), e_.splat(0.f)));
    }
  return result;
}

Values BlockEvaluator::elementwise(mlir::Operation* op, const Block& block) {
  std::vector<Values> operands;
  for (Value operand : op->getOperands()) operands.push_back(evaluate(operand, block));
  auto& builder = e_.builder();
  Values result;
  for (size_t n = 0; n < operands[0].size(); ++n) {
    Value x = operands[0][n];
    result.push_back(
        llvm::TypeSwitch<mlir::Operation*, Value>(op)
            .Case<math::ExpOp>([&](auto) { return e_.exp(x); })
            .Case<math::LogOp>([&](auto) { return e_.log(x); })
            .Case<math::TanhOp>([&](auto) { return e_.tanh(x); })
            .Case<math::SqrtOp>([&](auto) { return builder.create<math::SqrtOp>(e_.loc(), x); })
            .Case<math::RsqrtOp>([&](auto) {
              return builder.create<arith::DivFOp>(e_.loc(), e_.splat(1.f),
                                                   builder.create<math::SqrtOp>(e_.loc(), x));
            })
            .Case<SigmoidOp>([&](auto) { return e_.sigmoid(x); })
            .Case<SoftplusOp>([&](auto) { return e_.softplus(x); })
            .Case<arith::NegFOp>([&](auto) { return builder.create<arith::NegFOp>(e_.loc(), x); })
            .Case<arith::MulFOp>([&](auto) { return e_.fmul(x, operands[1][n]); })
            .Case<arith::DivFOp>(
                [&](auto) { return builder.create<arith::DivFOp>(e_.loc(), x, operands[1][n]); })
            .Case<arith::MaximumFOp>([&](auto) {
              return builder.create<arith::MaximumFOp>(e_.loc(), x, operands[1][n]);
            })
            .Case<arith::CmpFOp>([&](arith::CmpFOp o) {
              return builder.create<arith::CmpFOp>(e_.loc(), o.getPredicate(), x, operands[1][n]);
            })
            .Case<arith::SelectOp>(
                [&](auto) { return e_.select(x, operands[1][n], operands[2][n]); })
            .Default([](mlir::Operation* o) -> Value {
              throw InternalError(
                  fmt::format("cpu: no vector code for {}", o->getName().getStringRef().str()));
            }));
  }
  return result;
}

}  // namespace linnet::cpu
