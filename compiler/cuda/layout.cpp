#include "compiler/cuda/layout.h"

#include <fmt/format.h>

#include "linnet/error.h"

namespace linnet::cuda {

using namespace chunk;
using mlir::Value;

std::string element_of(Precision precision) {
  if (precision == Precision::bf16) return "bf16";
  if (precision == Precision::f16) return "f16";
  return "float";
}

int64_t bytes_of(const std::string& element) { return element == "float" ? 4 : 2; }

std::string text_of(Triangle triangle) { return "Triangle::" + stringifyTriangle(triangle).str(); }

int64_t band_of(int64_t numbers, const std::string& element) {
  return numbers * bytes_of(element) > 512 ? 16 : 32;
}

std::string text_of(Precision precision) {
  return "Precision::" + stringifyPrecision(precision).str();
}

std::string literal(double x) {
  std::string text = fmt::format("{:.9g}", x);
  if (text.find_first_of(".en") == std::string::npos) text += ".";
  return text + "f";
}

Precision at_least_tf32(Precision precision) {
  return element_of(precision) == "float" ? precision : Precision::tf32;
}

Precision or_f32(std::optional<Precision> precision) { return precision.value_or(Precision::f32); }

namespace {

// What a stored tile may be rounded to without its readers seeing: the format it was rounded to
// before, or the one all of them round it to as operands of products.
std::string storage_of(const TileProgram& program, Value value) {
  if (auto round = value.getDefiningOp<RoundOp>()) return element_of(round.getPrecision());
  auto own = program.loop_of(value);
  std::optional<std::string> common;
  for (size_t i = 0; i < program.loops().size(); ++i) {
    if (own && *own == i) continue;
    for (mlir::Operation* op : program.loops()[i].body)
      for (Value operand : op->getOperands()) {
        if (program.origin(operand) != value) continue;
        auto matmul = llvm::dyn_cast<MatmulOp>(op);
        std::string wanted = matmul ? element_of(or_f32(matmul.getPrecision())) : "float";
        if (common && *common != wanted) return "float";
        common = wanted;
      }
  }
  return common.value_or("float");
}

}  // namespace

Workspace::Workspace(const TileProgram& program) {
  for (const Loop& loop : program.loops()) {
    bool in_scan = loop.order != Order::any;
    for (Value carried : loop.carried()) place(program, carried, in_scan);
    for (mlir::Operation* op : loop.body) place(program, op->getResult(0), in_scan);
  }
  bytes_ = (bytes_ + 127) / 128 * 128;
}

void Workspace::place(const TileProgram& program, Value value, bool in_scan) {
  if (program.placement(value) != Placement::workspace) return;
  Tile type = tile_of(value);
  Stored tile{bytes_, "float", false, 1, 1};
  if (type.getRank() == 1) tile.stride = padded(type.getDimSize(0));
  if (type.getRank() == 2) {
    tile.element = storage_of(program, value);
    tile.flipped = in_scan && has_axis(type, Axis::value);
    tile.rows = padded(type.getDimSize(tile.flipped ? 1 : 0));
    tile.stride = padded(type.getDimSize(tile.flipped ? 0 : 1));
  }
  index_[value] = stored_.size();
  stored_.push_back(tile);
  bytes_ += (tile.rows * tile.stride * bytes_of(tile.element) + 31) / 32 * 32;  // whole sectors
}

const Stored& Workspace::at(Value value) const {
  auto found = index_.find(value);
  if (found == index_.end())
    throw InternalError("cuda: " + name_of(value) + " has no place in the workspace");
  return stored_[found->second];
}

}  // namespace linnet::cuda
