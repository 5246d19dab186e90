// decode: one token a chunk. The dialect's own folds leave masks, inverses and running sums of one
// row as zeros, ones and copies; what adds or multiplies those zeros goes here, and the plain
// recurrence is what is left (MATH.md g).
#include "compiler/passes/passes.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace linnet {

using namespace chunk;
using mlir::failure;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;

namespace {

bool is_zero(Value value) { return mlir::matchPattern(value, mlir::m_AnyZeroFloat()); }

// x - x: a decay measured from its own end.
struct DropDifference : mlir::OpRewritePattern<mlir::arith::SubFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(mlir::arith::SubFOp op,
                                mlir::PatternRewriter& rewriter) const override {
    if (op.getLhs() != op.getRhs()) return failure();
    rewriter.replaceOpWithNewOp<mlir::arith::ConstantOp>(
        op, mlir::DenseElementsAttr::get(tile_of(op), 0.0f));
    return success();
  }
};

// x + 0, x - 0 and 0 * x. Such zeros were selected by a mask: nothing infinite was dropped.
template <class Op>
struct DropZero : mlir::OpRewritePattern<Op> {
  using mlir::OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, mlir::PatternRewriter& rewriter) const override {
    constexpr bool product = std::is_same_v<Op, mlir::arith::MulFOp>,
                   sum = std::is_same_v<Op, mlir::arith::AddFOp>;
    Value a = op.getLhs(), b = op.getRhs(), result;
    if (is_zero(b)) result = product ? b : a;
    if (is_zero(a) && (product || sum)) result = product ? a : b;
    if (!result) return failure();
    rewriter.replaceOp(op, result);
    return success();
  }
};

struct ExpOfZero : mlir::OpRewritePattern<mlir::math::ExpOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(mlir::math::ExpOp op,
                                mlir::PatternRewriter& rewriter) const override {
    if (!is_zero(op.getOperand())) return failure();
    rewriter.replaceOpWithNewOp<mlir::arith::ConstantOp>(
        op, mlir::DenseElementsAttr::get(tile_of(op), 1.0f));
    return success();
  }
};

// The decay of the one token is also that of the chunk: its exponential is taken once.
struct ExpOfRow : mlir::OpRewritePattern<mlir::math::ExpOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(mlir::math::ExpOp op,
                                mlir::PatternRewriter& rewriter) const override {
    auto row = op.getOperand().getDefiningOp<RowOp>();
    if (!row) return failure();
    Value all = rewriter.create<mlir::math::ExpOp>(op.getLoc(), row.getSource());
    rewriter.replaceOpWithNewOp<RowOp>(op, op.getType(), all, row.getIndex());
    return success();
  }
};

struct Decode : mlir::PassWrapper<Decode, mlir::OperationPass<GraphOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Decode)
  llvm::StringRef getArgument() const override { return "decode"; }
  void runOnOperation() override {
    mlir::MLIRContext* context = &getContext();
    mlir::RewritePatternSet patterns(context);
    for (mlir::RegisteredOperationName name : context->getRegisteredOperations())
      name.getCanonicalizationPatterns(patterns, context);
    patterns.add<DropZero<mlir::arith::AddFOp>, DropZero<mlir::arith::SubFOp>,
                 DropZero<mlir::arith::MulFOp>, DropDifference, ExpOfZero, ExpOfRow>(context);
    if (failed(mlir::applyPatternsAndFoldGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

}  // namespace

std::unique_ptr<mlir::Pass> decode() { return std::make_unique<Decode>(); }

}  // namespace linnet
