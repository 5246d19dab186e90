#include "compiler/dialect/chunk.h"

#include <fmt/format.h>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "mlir/IR/DialectImplementation.h"

#include "compiler/dialect/chunk_enums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/dialect/chunk_attrs.cpp.inc"
#include "compiler/dialect/chunk_dialect.cpp.inc"

namespace linnet::chunk {

namespace {

constexpr char axis_letter(Axis axis) {
  return axis == Axis::token ? 'C' : axis == Axis::key ? 'K' : 'V';
}

// Prints tile types as !CxK, !KxV, !C: short, and named after their axes.
struct TileAliases : mlir::OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(mlir::Type type, llvm::raw_ostream& os) const override {
    auto tile = llvm::dyn_cast<mlir::RankedTensorType>(type);
    if (!tile || axes_of(type).empty()) return AliasResult::NoAlias;
    llvm::interleave(axes_of(type), os, [&](Axis axis) { os << axis_letter(axis); }, "x");
    if (!tile.getElementType().isF32()) os << '_' << tile.getElementType();
    return AliasResult::OverridableAlias;
  }
};

}  // namespace

void ChunkDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "compiler/dialect/chunk_attrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "compiler/dialect/chunk_ops.cpp.inc"
      >();
  addInterfaces<TileAliases>();
}

mlir::Operation* ChunkDialect::materializeConstant(mlir::OpBuilder& builder, mlir::Attribute value,
                                                   mlir::Type type, mlir::Location loc) {
  return mlir::arith::ConstantOp::materialize(builder, value, type, loc);
}

Tile tile_type(mlir::MLIRContext* context, llvm::ArrayRef<Axis> axes,
               llvm::ArrayRef<int64_t> sizes) {
  mlir::Attribute encoding = axes.empty() ? mlir::Attribute() : AxesAttr::get(context, axes);
  return Tile::get(sizes, mlir::Float32Type::get(context), encoding);
}

llvm::ArrayRef<Axis> axes_of(mlir::Type type) {
  auto axes =
      llvm::dyn_cast_or_null<AxesAttr>(llvm::cast<mlir::RankedTensorType>(type).getEncoding());
  return axes ? axes.getAxes() : llvm::ArrayRef<Axis>();
}

bool has_axis(mlir::Type type, Axis axis) { return llvm::is_contained(axes_of(type), axis); }

Tile drop_dims(Tile type, llvm::ArrayRef<int64_t> dims) {
  llvm::SmallVector<Axis> axes;
  llvm::SmallVector<int64_t> sizes;
  for (int64_t i = 0; i < type.getRank(); ++i) {
    if (llvm::is_contained(dims, i)) continue;
    axes.push_back(axes_of(type)[i]);
    sizes.push_back(type.getDimSize(i));
  }
  return tile_type(type.getContext(), axes, sizes);
}

Tile with_token_axis(Tile type, int64_t tokens) {
  llvm::SmallVector<Axis> axes{Axis::token};
  llvm::SmallVector<int64_t> sizes{tokens};
  axes.append(axes_of(type).begin(), axes_of(type).end());
  sizes.append(type.getShape().begin(), type.getShape().end());
  return tile_type(type.getContext(), axes, sizes);
}

std::string describe(mlir::Type type) {
  auto tile = llvm::cast<mlir::RankedTensorType>(type);
  if (tile.getRank() == 0) return "a scalar";
  if (axes_of(tile).empty()) return fmt::format("an unnamed tile of rank {}", tile.getRank());
  std::string names, sizes;
  for (auto [axis, size] : llvm::zip(axes_of(tile), tile.getShape())) {
    names += fmt::format("{}{}", names.empty() ? "" : " x ", stringifyAxis(axis).str());
    sizes += fmt::format("{}{}", sizes.empty() ? "" : " x ", size);
  }
  return fmt::format("{} ({})", names, sizes);
}

std::string name_of(mlir::Value value) {
  auto name = llvm::dyn_cast<mlir::NameLoc>(value.getLoc());
  return name ? name.getName().str() : std::string();
}

mlir::Location named(mlir::Location location, llvm::StringRef name) {
  if (name.empty()) return location;
  // The printer tells equal names apart by a suffix "_7"; a name that ends so itself would not
  // survive a round trip.
  llvm::StringRef stem = name.rtrim("0123456789");
  std::string plain = stem.size() < name.size() && stem.ends_with("_")
                          ? (stem.drop_back() + name.drop_front(stem.size())).str()
                          : name.str();
  return mlir::NameLoc::get(mlir::StringAttr::get(location.getContext(), plain), unnamed(location));
}

mlir::Location unnamed(mlir::Location location) {
  auto name = llvm::dyn_cast<mlir::NameLoc>(location);
  return name ? name.getChildLoc() : location;
}

void set_name(mlir::Value value, llvm::StringRef name) {
  value.setLoc(named(value.getLoc(), name));
}

std::string place_of(mlir::Location location) {
  if (auto file = llvm::dyn_cast<mlir::FileLineColLoc>(unnamed(location)))
    return fmt::format("{}:{}", file.getFilename().str(), file.getLine());
  return {};
}

bool is_elementwise(mlir::Operation* op) {
  return llvm::isa<mlir::arith::ArithDialect, mlir::math::MathDialect>(op->getDialect()) ||
         llvm::isa<SigmoidOp, SoftplusOp, RoundOp>(op);
}

bool is_contraction(mlir::Operation* op) {
  return llvm::isa<MatmulOp, DecayDotOp, DecayApplyOp, InverseUnitLowerOp>(op);
}

}  // namespace linnet::chunk
