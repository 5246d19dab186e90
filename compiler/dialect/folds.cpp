// What folds on its own: trivial masks and sums, one-token chunks, and results of a scan that
// nobody reads.
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

#include "compiler/dialect/builder.h"
#include "compiler/dialect/chunk.h"

namespace linnet::chunk {

using mlir::failure;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;

namespace {

bool is_one_token(mlir::Value value) { return tile_of(value).getDimSize(0) == 1; }

mlir::Attribute splat(mlir::Type type, float value) {
  return mlir::DenseElementsAttr::get(llvm::cast<mlir::ShapedType>(type), value);
}

// A [1] vector as the only column of a [1, 1] tile.
mlir::Value as_square(Builder& b, mlir::Value row_sums) {
  return b.broadcast(row_sums, {1}, tile_type(b.context(), {Axis::token, Axis::token}, {1, 1}));
}

// The product of a [1, 1] tile with one row is a scaling.
struct OneTokenMatmul : mlir::OpRewritePattern<MatmulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(MatmulOp op, mlir::PatternRewriter& rewriter) const override {
    if (!llvm::all_of(tile_of(op.getLhs()).getShape(), [](int64_t n) { return n == 1; }) ||
        axes_of(op.getLhs().getType())[0] != axes_of(op.getLhs().getType())[1] ||
        op.getTransposeRhs())
      return failure();
    Builder b(rewriter, op.getLoc());
    mlir::Value factor = b.broadcast(b.reduce(op.getLhs(), {1}), {1}, tile_of(op.getRhs()));
    rewriter.replaceOp(op, b.mul(factor, op.getRhs()));
    return success();
  }
};

struct ZeroMatmul : mlir::OpRewritePattern<MatmulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(MatmulOp op, mlir::PatternRewriter& rewriter) const override {
    if (!mlir::matchPattern(op.getLhs(), mlir::m_AnyZeroFloat()) &&
        !mlir::matchPattern(op.getRhs(), mlir::m_AnyZeroFloat()))
      return failure();
    rewriter.replaceOp(op, Builder(rewriter, op.getLoc()).constant(tile_of(op.getResult()), 0));
    return success();
  }
};

struct OneTokenDecayDot : mlir::OpRewritePattern<DecayDotOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(DecayDotOp op, mlir::PatternRewriter& rewriter) const override {
    if (!is_one_token(op.getLhs())) return failure();
    Builder b(rewriter, op.getLoc());
    if (op.getTriangle() == Triangle::strict_lower) {
      rewriter.replaceOp(op, b.constant(tile_of(op.getResult()), 0));
      return success();
    }
    mlir::Value product = b.mul(op.getLhs(), op.getRhs());
    if (op.getRows() != op.getColumns())
      product = b.mul(product, b.exp(b.sub(op.getRows(), op.getColumns())));
    rewriter.replaceOp(op, as_square(b, b.reduce(product, {1})));
    return success();
  }
};

struct OneTokenDecayMask : mlir::OpRewritePattern<DecayMaskOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(DecayMaskOp op, mlir::PatternRewriter& rewriter) const override {
    if (!is_one_token(op.getRows())) return failure();
    Builder b(rewriter, op.getLoc());
    if (op.getTriangle() == Triangle::strict_lower || op.getRows() == op.getColumns())
      rewriter.replaceOp(
          op, b.constant(tile_of(op.getResult()), op.getTriangle() == Triangle::lower ? 1 : 0));
    else
      rewriter.replaceOp(op, as_square(b, b.exp(b.sub(op.getRows(), op.getColumns()))));
    return success();
  }
};

// The sum over a dimension of size one that a broadcast had added gives the source back.
struct ReduceOfBroadcast : mlir::OpRewritePattern<ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReduceOp op, mlir::PatternRewriter& rewriter) const override {
    auto broadcast = op.getSource().getDefiningOp<BroadcastOp>();
    if (!broadcast || broadcast.getDims() != op.getDims()) return failure();
    for (int64_t dim : op.getDims())
      if (tile_of(op.getSource()).getDimSize(dim) != 1) return failure();
    rewriter.replaceOp(op, broadcast.getSource());
    return success();
  }
};

struct BroadcastOfBroadcast : mlir::OpRewritePattern<BroadcastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(BroadcastOp op, mlir::PatternRewriter& rewriter) const override {
    auto inner = op.getSource().getDefiningOp<BroadcastOp>();
    if (!inner) return failure();
    llvm::SmallVector<int64_t> dims;
    for (int64_t i = 0, old = 0; i < tile_of(op).getRank(); ++i) {
      bool added = llvm::is_contained(op.getDims(), i) || llvm::is_contained(inner.getDims(), old);
      if (added) dims.push_back(i);
      if (!llvm::is_contained(op.getDims(), i)) ++old;
    }
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, op.getType(), inner.getSource(),
                                             rewriter.getDenseI64ArrayAttr(dims));
    return success();
  }
};

mlir::arith::NegFOp negation_of(Value value) { return value.getDefiningOp<mlir::arith::NegFOp>(); }

// A linear op of a negated operand is the negated op: signs move outward until a sum takes them in.
template <class Op>
struct PullNegation : mlir::OpRewritePattern<Op> {
  using mlir::OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, mlir::PatternRewriter& rewriter) const override {
    // Gates, the operands from the third on, are not linear.
    unsigned linear = std::min(op->getNumOperands(), 2u);
    for (unsigned i = 0; i < linear; ++i) {
      auto negation = negation_of(op->getOperand(i));
      if (!negation) continue;
      mlir::Operation* positive = rewriter.clone(*op);
      positive->setOperand(i, negation.getOperand());
      rewriter.replaceOpWithNewOp<mlir::arith::NegFOp>(op, positive->getResult(0));
      return success();
    }
    return failure();
  }
};

// a + -b and a - -b.
template <class Op, class Opposite>
struct AbsorbNegation : mlir::OpRewritePattern<Op> {
  using mlir::OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, mlir::PatternRewriter& rewriter) const override {
    auto negation = negation_of(op.getRhs());
    if (!negation) return failure();
    rewriter.replaceOpWithNewOp<Opposite>(op, op.getLhs(), negation.getOperand());
    return success();
  }
};

// Emitted tiles that are unused, come from outside the scan, or are emitted twice need not be
// results.
struct TrimScan : mlir::OpRewritePattern<ScanOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ScanOp op, mlir::PatternRewriter& rewriter) const override {
    unsigned carried = op.getInit().size();
    YieldOp yield = op.yield();
    llvm::SmallVector<unsigned> kept;
    llvm::SmallVector<mlir::Value> replacement(op->getNumResults());
    llvm::SmallVector<mlir::Value> values(yield.getValues().take_front(carried));
    llvm::DenseMap<mlir::Value, unsigned> first;
    for (unsigned i = carried; i < op->getNumResults(); ++i) {
      mlir::Value value = yield.getValues()[i];
      if (op.getResult(i).use_empty()) continue;
      if (value.getParentRegion() != &op.getBody()) {
        replacement[i] = value;
      } else if (auto [it, fresh] = first.try_emplace(value, values.size()); fresh) {
        kept.push_back(i);
        values.push_back(value);
      }
    }
    if (values.size() == op->getNumResults()) return failure();
    rewriter.setInsertionPoint(op);
    auto trimmed = rewriter.create<ScanOp>(op.getLoc(), mlir::TypeRange(mlir::ValueRange(values)),
                                           op.getInit(), op.getReverseAttr(), op.getStageAttr());
    for (unsigned i = 0; i < op->getNumResults(); ++i) {
      if (replacement[i]) continue;
      if (i < carried)
        replacement[i] = trimmed.getResult(i);
      else if (!op.getResult(i).use_empty())
        replacement[i] = trimmed.getResult(first[yield.getValues()[i]]);
    }
    rewriter.modifyOpInPlace(yield, [&] { yield.getValuesMutable().assign(values); });
    rewriter.inlineRegionBefore(op.getBody(), trimmed.getBody(), trimmed.getBody().end());
    rewriter.replaceOp(op, replacement);
    return success();
  }
};

}  // namespace

mlir::OpFoldResult CumsumOp::fold(FoldAdaptor) {
  if (!is_one_token(getSource())) return {};
  return getExclusive() ? mlir::OpFoldResult(splat(getType(), 0)) : getSource();
}

mlir::OpFoldResult MaskOp::fold(FoldAdaptor) {
  if (auto inner = getSource().getDefiningOp<MaskOp>())
    if (inner.getTriangle() == getTriangle() || inner.getTriangle() == Triangle::strict_lower)
      return getSource();
  if (!is_one_token(getSource())) return {};
  return getTriangle() == Triangle::lower ? mlir::OpFoldResult(getSource()) : splat(getType(), 0);
}

mlir::OpFoldResult InverseUnitLowerOp::fold(FoldAdaptor) {
  return is_one_token(getSource()) ? mlir::OpFoldResult(splat(getType(), 1)) : mlir::OpFoldResult();
}

mlir::OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  auto row = getSource().getDefiningOp<RowOp>();
  if (row && row.getSource().getType() == getType() && is_one_token(row.getSource()))
    return row.getSource();
  auto constant = llvm::dyn_cast_or_null<mlir::SplatElementsAttr>(adaptor.getSource());
  return constant ? splat(getType(), constant.getSplatValue<float>()) : mlir::Attribute();
}

mlir::OpFoldResult ReduceOp::fold(FoldAdaptor adaptor) {
  auto constant = llvm::dyn_cast_or_null<mlir::SplatElementsAttr>(adaptor.getSource());
  if (!constant) return {};
  int64_t count = tile_of(getSource()).getNumElements() / tile_of(getResult()).getNumElements();
  return splat(getType(), constant.getSplatValue<float>() * static_cast<float>(count));
}

mlir::OpFoldResult ValidOp::fold(FoldAdaptor) {
  auto input = getSource().getDefiningOp<InputOp>();
  bool zero_padded =
      (input && input.getScope() == Scope::token) || getSource().getDefiningOp<ValidOp>();
  return zero_padded ? getSource() : mlir::OpFoldResult();
}

void MatmulOp::getCanonicalizationPatterns(mlir::RewritePatternSet& set,
                                           mlir::MLIRContext* context) {
  using mlir::arith::AddFOp, mlir::arith::SubFOp, mlir::arith::MulFOp;
  set.add<OneTokenMatmul, ZeroMatmul>(context);
  set.add<PullNegation<MatmulOp>, PullNegation<MulFOp>, PullNegation<DecayDotOp>,
          PullNegation<DecayApplyOp>, PullNegation<MaskOp>, PullNegation<ReduceOp>,
          PullNegation<CumsumOp>, PullNegation<PlaceRowOp>, AbsorbNegation<AddFOp, SubFOp>,
          AbsorbNegation<SubFOp, AddFOp>>(context);
}
void DecayDotOp::getCanonicalizationPatterns(mlir::RewritePatternSet& set,
                                             mlir::MLIRContext* context) {
  set.add<OneTokenDecayDot>(context);
}
void DecayMaskOp::getCanonicalizationPatterns(mlir::RewritePatternSet& set,
                                              mlir::MLIRContext* context) {
  set.add<OneTokenDecayMask>(context);
}
void ReduceOp::getCanonicalizationPatterns(mlir::RewritePatternSet& set,
                                           mlir::MLIRContext* context) {
  set.add<ReduceOfBroadcast>(context);
}
void BroadcastOp::getCanonicalizationPatterns(mlir::RewritePatternSet& set,
                                              mlir::MLIRContext* context) {
  set.add<BroadcastOfBroadcast>(context);
}
void ScanOp::getCanonicalizationPatterns(mlir::RewritePatternSet& set, mlir::MLIRContext* context) {
  set.add<TrimScan>(context);
}

}  // namespace linnet::chunk
