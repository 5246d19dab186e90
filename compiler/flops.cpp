#include "compiler/flops.h"

#include "compiler/passes/passes.h"

namespace linnet {

using namespace chunk;

namespace {

// 16 x 16 x 16 products that merge the diagonal blocks of an inverse: sum over d of (n - d)(d + 1).
int64_t inverse_flops(int64_t tokens) {
  int64_t blocks = (tokens + 15) / 16, products = 0;
  for (int64_t d = 1; d < blocks; ++d) products += (blocks - d) * (d + 1);
  return products * 2 * 16 * 16 * 16;
}

int64_t flops_of(mlir::Operation* op) {
  if (auto matmul = llvm::dyn_cast<MatmulOp>(op)) {
    auto lhs = tile_of(matmul.getLhs()), result = tile_of(matmul.getResult());
    return 2 * result.getNumElements() * lhs.getDimSize(matmul.getTransposeLhs() ? 0 : 1);
  }
  if (auto dot = llvm::dyn_cast<DecayDotOp>(op))
    return 2 * tile_of(dot.getResult()).getNumElements() * tile_of(dot.getLhs()).getDimSize(1);
  if (auto apply = llvm::dyn_cast<DecayApplyOp>(op))
    return 2 * tile_of(apply.getMatrix()).getNumElements() *
           tile_of(apply.getVectors()).getDimSize(1);
  if (auto inverse = llvm::dyn_cast<InverseUnitLowerOp>(op))
    return inverse_flops(tile_of(inverse).getDimSize(0));
  return 0;
}

}  // namespace

int64_t count_flops(GraphOp graph) {
  int64_t total = 0;
  graph.walk([&](mlir::Operation* op) { total += flops_of(op); });
  return total;
}

std::optional<int64_t> flops_by_hand(LawOp law, int64_t C) {
  auto state = tile_of(*law.getBody().getOps<StateOp>().begin());
  int64_t K = state.getDimSize(0), V = state.getDimSize(1), solved = 0, free = 0;
  for (auto write : law.getBody().getOps<WriteOp>()) {
    bool reads = false;
    walk_sources(write.getValue(),
                 [&](mlir::Operation* op) { return !(reads |= llvm::isa<ReadOp>(op)); });
    ++(reads ? solved : free);
  }
  if (solved == 0 && free == 1) return C * (4 * K * V + 2 * C * (K + V));
  if (solved == 1 && free == 0) return C * (6 * K * V + 2 * C * (2 * K + 2 * V)) + inverse_flops(C);
  if (solved == 1 && free == 1) return C * (8 * K * V + 2 * C * (4 * K + 4 * V)) + inverse_flops(C);
  return std::nullopt;
}

}  // namespace linnet
