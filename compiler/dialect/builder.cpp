#include "compiler/dialect/builder.h"

#include <cassert>

namespace linnet::chunk {

using llvm::StringRef;
using mlir::Value;

std::optional<llvm::SmallVector<int64_t>> missing_dims(Tile smaller, Tile larger) {
  llvm::SmallVector<int64_t> missing;
  int64_t next = 0;
  for (int64_t i = 0; i < larger.getRank(); ++i) {
    bool same = next < smaller.getRank() && axes_of(smaller)[next] == axes_of(larger)[i] &&
                smaller.getDimSize(next) == larger.getDimSize(i);
    if (same)
      ++next;
    else
      missing.push_back(i);
  }
  if (next != smaller.getRank()) return std::nullopt;
  return missing;
}

Value Builder::input(StringRef name, Scope scope, Tile type, bool key_heads) {
  return make<InputOp>(name, type, name, scope, key_heads, RoleAttr(), PrecisionAttr());
}

void Builder::output(StringRef name, Value value, Scope scope, bool key_heads) {
  builder_.create<OutputOp>(location_, name, value, scope, key_heads, PrecisionAttr());
}

Value Builder::constant(Tile type, float value) {
  return builder_.create<mlir::arith::ConstantOp>(location_,
                                                  mlir::DenseElementsAttr::get(type, value));
}

template <class Op>
Value Builder::binary(Value a, Value b, StringRef name) {
  if (tile_of(a).getRank() < tile_of(b).getRank()) a = broadcast_to(a, tile_of(b));
  if (tile_of(b).getRank() < tile_of(a).getRank()) b = broadcast_to(b, tile_of(a));
  assert(a.getType() == b.getType() && "elementwise operands have one shape");
  return make<Op>(name, a, b);
}

Value Builder::add(Value a, Value b, StringRef name) {
  return binary<mlir::arith::AddFOp>(a, b, name);
}
Value Builder::sub(Value a, Value b, StringRef name) {
  return binary<mlir::arith::SubFOp>(a, b, name);
}
Value Builder::mul(Value a, Value b, StringRef name) {
  return binary<mlir::arith::MulFOp>(a, b, name);
}
Value Builder::div(Value a, Value b, StringRef name) {
  return binary<mlir::arith::DivFOp>(a, b, name);
}
Value Builder::maximum(Value a, Value b, StringRef name) {
  return binary<mlir::arith::MaximumFOp>(a, b, name);
}
Value Builder::neg(Value a, StringRef name) { return make<mlir::arith::NegFOp>(name, a); }
Value Builder::exp(Value a, StringRef name) { return make<mlir::math::ExpOp>(name, a); }
Value Builder::rsqrt(Value a, StringRef name) { return make<mlir::math::RsqrtOp>(name, a); }
Value Builder::sigmoid(Value a, StringRef name) { return make<SigmoidOp>(name, a.getType(), a); }
Value Builder::softplus(Value a, StringRef name) { return make<SoftplusOp>(name, a.getType(), a); }

Value Builder::keep_at_least(Value a, Value condition, Value bound) {
  Value kept = make<mlir::arith::CmpFOp>({}, mlir::arith::CmpFPredicate::OGE, condition, bound);
  return make<mlir::arith::SelectOp>({}, kept, a, constant(tile_of(a), 0));
}

Value Builder::matmul(Value a, bool transpose_a, Value b, bool transpose_b, StringRef name) {
  return make<MatmulOp>(name, a, b, transpose_a, transpose_b, PrecisionAttr());
}

Value Builder::cumsum(Value a, bool exclusive, bool reverse, StringRef name) {
  return make<CumsumOp>(name, a.getType(), a, exclusive, reverse);
}

Value Builder::mask(Value a, Triangle triangle, StringRef name) {
  return make<MaskOp>(name, a.getType(), a, triangle);
}

Value Builder::decay_mask(Value rows, Value columns, Triangle triangle, StringRef name) {
  return make<DecayMaskOp>(name, rows, columns, triangle);
}

Value Builder::decay_dot(Value a, Value b, Value rows, Value columns, Triangle triangle,
                         StringRef name) {
  return make<DecayDotOp>(name, a, b, rows, columns, triangle, BoundAttr(), PrecisionAttr());
}

Value Builder::decay_apply(Side side, Value matrix, Value vectors, Value rows, Value columns,
                           Triangle triangle, StringRef name) {
  return make<DecayApplyOp>(name, matrix, vectors, rows, columns, side, triangle, BoundAttr(),
                            PrecisionAttr());
}

Value Builder::inverse_unit_lower(Value a, StringRef name) {
  return make<InverseUnitLowerOp>(name, a.getType(), a, PrecisionAttr());
}

Value Builder::reduce(Value a, llvm::ArrayRef<int64_t> dims, StringRef name) {
  if (dims.empty()) return a;
  return make<ReduceOp>(name, a, builder_.getDenseI64ArrayAttr(dims));
}

Value Builder::broadcast(Value a, llvm::ArrayRef<int64_t> dims, Tile type) {
  return make<BroadcastOp>(name_of(a), type, a, builder_.getDenseI64ArrayAttr(dims));
}

Value Builder::broadcast_to(Value a, Tile type) {
  if (a.getType() == type) return a;
  auto dims = missing_dims(tile_of(a), type);
  assert(dims && "the broadcast source's axes are among the result's");
  return broadcast(a, *dims, type);
}

Value Builder::row(Value a, int64_t index, StringRef name) {
  return make<RowOp>(name, a, static_cast<uint64_t>(index));
}

Value Builder::place_row(Value a, int64_t index, Tile type) {
  return make<PlaceRowOp>({}, type, a, static_cast<uint64_t>(index));
}

Value Builder::valid(Value a, StringRef name) { return make<ValidOp>(name, a.getType(), a); }

}  // namespace linnet::chunk
