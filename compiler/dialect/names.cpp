// Names of values: chunk ops print the name in their location as the SSA name, and arith and math
// ops are taught to do the same.
#include "compiler/dialect/chunk.h"

namespace linnet::chunk {

namespace {

void name_results(mlir::Operation* op, const mlir::OpAsmSetValueNameFn& set) {
  for (mlir::Value result : op->getResults())
    if (std::string name = name_of(result); !name.empty()) set(result, name);
}

template <class Op>
struct NamedByLocation : mlir::OpAsmOpInterface::ExternalModel<NamedByLocation<Op>, Op> {
  void getAsmResultNames(mlir::Operation* op, mlir::OpAsmSetValueNameFn set) const {
    name_results(op, set);
  }
};

template <class... Ops>
void attach(mlir::MLIRContext& context) {
  (Ops::template attachInterface<NamedByLocation<Ops>>(context), ...);
}

}  // namespace

void attach_names(mlir::MLIRContext& context) {
  using namespace mlir;
  attach<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::NegFOp,
         arith::MaximumFOp, arith::MinimumFOp, arith::CmpFOp, arith::SelectOp, math::ExpOp,
         math::LogOp, math::Log1pOp, math::SqrtOp, math::RsqrtOp, math::TanhOp, math::AbsFOp>(
      context);
}

#define NAMED(Op) \
  void Op::getAsmResultNames(mlir::OpAsmSetValueNameFn set) { name_results(getOperation(), set); }
NAMED(InputOp)
NAMED(StateOp)
NAMED(DecayOp)
NAMED(ReadOp)
NAMED(WriteOp)
NAMED(MatmulOp)
NAMED(CumsumOp)
NAMED(MaskOp)
NAMED(DecayMaskOp)
NAMED(DecayDotOp)
NAMED(DecayApplyOp)
NAMED(InverseUnitLowerOp)
NAMED(ReduceOp)
NAMED(BroadcastOp)
NAMED(RowOp)
NAMED(PlaceRowOp)
NAMED(ValidOp)
NAMED(SigmoidOp)
NAMED(SoftplusOp)
NAMED(RoundOp)
#undef NAMED

// A stage's results are called as what it yields.
void MapOp::getAsmResultNames(mlir::OpAsmSetValueNameFn set) {
  for (auto [result, value] : llvm::zip(getResults(), yield().getValues()))
    if (std::string name = name_of(value); !name.empty()) set(result, name);
}

void ScanOp::getAsmResultNames(mlir::OpAsmSetValueNameFn set) {
  for (auto [result, value] : llvm::zip(getResults(), yield().getValues()))
    if (std::string name = name_of(value); !name.empty()) set(result, name);
}

void ScanOp::getAsmBlockArgumentNames(mlir::Region& region, mlir::OpAsmSetValueNameFn set) {
  for (mlir::Value argument : region.getArguments())
    if (std::string name = name_of(argument); !name.empty()) set(argument, name);
}

}  // namespace linnet::chunk
