#include "compiler/tile/program.h"

#include <fmt/format.h>

#include <functional>

#include "linnet/error.h"

namespace linnet {

using namespace chunk;
using mlir::Value;

bool is_fusible(mlir::Operation* op) {
  return is_elementwise(op) ||
         llvm::isa<BroadcastOp, MaskOp, ValidOp, PlaceRowOp, DecayMaskOp, MatmulOp>(op);
}

mlir::OwningOpRef<mlir::ModuleOp> with_value_channels(mlir::ModuleOp module, int64_t channels) {
  mlir::OwningOpRef<mlir::ModuleOp> copy = module.clone();
  auto narrow = [&](mlir::Type type) -> mlir::Type {
    auto tile = llvm::dyn_cast<Tile>(type);
    if (!tile || !has_axis(tile, Axis::value)) return type;
    llvm::SmallVector<int64_t> sizes(tile.getShape());
    for (auto [axis, size] : llvm::zip(axes_of(tile), sizes))
      if (axis == Axis::value) size = channels;
    return tile.clone(sizes);
  };
  copy->walk([&](mlir::Operation* op) {
    for (Value result : op->getResults()) result.setType(narrow(result.getType()));
    for (mlir::Region& region : op->getRegions())
      for (mlir::Block& block : region)
        for (Value argument : block.getArguments()) argument.setType(narrow(argument.getType()));
    if (auto constant = llvm::dyn_cast<mlir::arith::ConstantOp>(op))
      if (auto splat = llvm::dyn_cast<mlir::SplatElementsAttr>(constant.getValue()))
        constant.setValueAttr(splat.resizeSplat(llvm::cast<mlir::ShapedType>(constant.getType())));
  });
  return copy;
}

TileProgram::TileProgram(GraphOp graph, const Schedule& schedule)
    : graph_(graph), schedule_(schedule) {
  form_loops();
  count_passes();
  if (schedule.sink_products) sink_products();
  place();
  verify();
}

// A map joins the loop of the next scan, or of the last one if none follows; unfused, each stage is
// a loop.
void TileProgram::form_loops() {
  auto append = [&](Loop& loop, mlir::Block& block) {
    for (mlir::Operation& op : block.without_terminator()) {
      loop_of_op_[&op] = &loop - loops_.data();
      loop.body.push_back(&op);
    }
  };
  auto note_origins = [&](auto stage, size_t first) {
    auto yielded = stage.yield().getValues();
    for (size_t i = first; i < yielded.size(); ++i) origins_[stage->getResult(i)] = yielded[i];
  };
  loops_.reserve(16);
  bool open = false;  // the last loop still waits for its scan
  for (mlir::Operation& op : graph_.getBody().front()) {
    if (auto map = llvm::dyn_cast<MapOp>(op)) {
      bool later_scan = false;
      for (mlir::Operation* next = op.getNextNode(); next; next = next->getNextNode())
        later_scan |= llvm::isa<ScanOp>(next);
      bool joins_last = schedule_.fuse_stages && !loops_.empty() && (open || !later_scan);
      if (!joins_last) loops_.emplace_back();
      append(loops_.back(), map.block());
      note_origins(map, 0);
      open = schedule_.fuse_stages && later_scan;
    } else if (auto scan = llvm::dyn_cast<ScanOp>(op)) {
      if (!open) loops_.emplace_back();
      Loop& loop = loops_.back();
      loop.scan = scan;
      loop.order = scan.getReverse() ? Order::reverse : Order::forward;
      append(loop, scan.block());
      note_origins(scan, scan.getInit().size());
      open = false;
    }
  }
}

void TileProgram::count_passes() {
  std::optional<Order> order;
  int64_t pass = 0;
  for (const Loop& loop : loops_) {
    if (loop.scan) {
      if (order && *order != loop.order) ++pass;
      order = loop.order;
      passes_.resize(&loop - loops_.data() + 1, pass);
    }
  }
  passes_.resize(loops_.size(), pass);
}

bool TileProgram::has_value_blocks(const Loop& loop) const {
  size_t index = &loop - loops_.data();
  auto over_values = [](Value value) { return has_axis(value.getType(), Axis::value); };
  bool independent = llvm::all_of(loop.carried(), over_values);
  for (mlir::Operation* op : loop.body) {
    Value result = op->getResult(0);
    if (auto matmul = llvm::dyn_cast<MatmulOp>(op)) {
      Tile lhs = tile_of(matmul.getLhs());
      independent &= axes_of(lhs)[matmul.getTransposeLhs() ? 0 : 1] != Axis::value;
    } else if (auto reduce = llvm::dyn_cast<ReduceOp>(op)) {
      for (int64_t dim : reduce.getDims())
        independent &= axes_of(tile_of(reduce.getSource()))[dim] != Axis::value;
    }
    // Every block would store the same tile; and only blocks of registers are stored into a part
    // of one.
    if (placement(result) == Placement::workspace)
      independent &= over_values(result) && is_fusible(op);
  }
  for (auto output : GraphOp(graph_).getBody().getOps<OutputOp>())
    if (loop_of(output.getValue()).value_or(loops_.size() - 1) == index)
      independent &= over_values(output.getValue());
  return independent;
}

// Where stages are fused, a product that is added to another is summed on top of it. Where they are
// not, the product of a map is rounded on its way to the loop that adds it. Made by that loop it
// has the bits of fused stages, at the price of work in order instead of in any.
void TileProgram::sink_products() {
  llvm::DenseMap<Value, llvm::SmallVector<mlir::Operation*, 2>> readers;
  for (const Loop& loop : loops_) {
    for (mlir::Operation* op : loop.body)
      for (Value operand : op->getOperands()) readers[origin(operand)].push_back(op);
    for (Value next : loop.next()) readers[origin(next)].push_back(nullptr);
  }
  for (auto output : graph_.getBody().getOps<OutputOp>())
    readers[origin(output.getValue())].push_back(nullptr);
  auto only_reader = [&](mlir::Operation* op) -> mlir::Operation* {
    auto& list = readers[op->getResult(0)];
    bool by_element = list.size() == 1 && list[0] &&
                      (is_elementwise(list[0]) || llvm::isa<MaskOp, ValidOp>(list[0]));
    return by_element ? list[0] : nullptr;
  };
  std::function<bool(mlir::Operation*)> has_product = [&](mlir::Operation* op) {
    if (llvm::isa<MatmulOp>(op)) return true;
    return (is_elementwise(op) || llvm::isa<MaskOp, ValidOp>(op)) &&
           llvm::any_of(op->getOperands(), [&](Value operand) {
             mlir::Operation* source = origin(operand).getDefiningOp();
             return source && loop_of_op_.contains(source) && only_reader(source) &&
                    has_product(source);
           });
  };
  for (size_t from = 0; from < loops_.size(); ++from)
    for (size_t n = loops_[from].body.size(); n-- > 0;) {
      mlir::Operation* op = loops_[from].body[n];
      mlir::Operation* reader = only_reader(op);
      if (!reader || loop_of_op_[reader] == from || !has_product(op)) continue;
      size_t to = loop_of_op_[op] = loop_of_op_[reader];
      loops_[from].body.erase(loops_[from].body.begin() + n);
      loops_[to].body.insert(llvm::find(loops_[to].body, reader), op);
    }
}

Value TileProgram::origin(Value value) const {
  for (auto it = origins_.find(value); it != origins_.end(); it = origins_.find(value))
    value = it->second;
  return value;
}

std::optional<size_t> TileProgram::loop_of(Value value) const {
  value = origin(value);
  if (auto argument = llvm::dyn_cast<mlir::BlockArgument>(value)) {
    for (size_t i = 0; i < loops_.size(); ++i)
      if (llvm::is_contained(loops_[i].carried(), argument)) return i;
    return std::nullopt;
  }
  auto found = loop_of_op_.find(value.getDefiningOp());
  return found == loop_of_op_.end() ? std::nullopt : std::optional(found->second);
}

void TileProgram::place() {
  llvm::DenseMap<Value, unsigned> reads;
  llvm::DenseSet<Value> needs_memory;
  auto read = [&](Value value, bool memory, std::optional<size_t> from) {
    value = origin(value);
    ++reads[value];
    if (memory) needs_memory.insert(value);
    if (from && loop_of(value) && *loop_of(value) != *from)
      placements_[value] = Placement::workspace;
  };
  for (size_t i = 0; i < loops_.size(); ++i) {
    for (mlir::Operation* op : loops_[i].body) {
      // What reads whole tiles, not elements, reads them from memory.
      bool memory =
          !is_fusible(op) || llvm::isa<MatmulOp, DecayMaskOp, BroadcastOp, PlaceRowOp>(op);
      if (llvm::isa<ReduceOp>(op)) memory = false;
      for (Value operand : op->getOperands()) read(operand, memory, i);
    }
    for (Value next : loops_[i].next()) read(next, true, i);
  }
  for (auto output : graph_.getBody().getOps<OutputOp>())
    read(output.getValue(), true, std::nullopt);
  for (const Loop& loop : loops_) {
    for (Value argument : loop.carried())
      if (placement(argument) != Placement::workspace) placements_[argument] = Placement::carried;
    for (mlir::Operation* op : loop.body) {
      Value result = op->getResult(0);
      if (placements_.contains(result)) continue;
      bool fused = is_fusible(op) && !needs_memory.contains(result) &&
                   (reads[result] == 1 || llvm::isa<BroadcastOp, mlir::arith::ConstantOp>(op));
      placements_[result] = fused ? Placement::fused : Placement::scratch;
    }
    // A reduction goes row by row, which is no way to multiply matrices: products under it are made
    // before.
    for (mlir::Operation* op : loop.body)
      if (llvm::isa<ReduceOp>(op) && has_fused_product(op->getOperand(0)))
        placements_[origin(op->getOperand(0))] = Placement::scratch;
  }
}

bool TileProgram::has_fused_product(Value value) const {
  mlir::Operation* op = origin(value).getDefiningOp();
  if (!op || placement(origin(value)) != Placement::fused) return false;
  return llvm::isa<MatmulOp>(op) ||
         llvm::any_of(op->getOperands(), [&](Value operand) { return has_fused_product(operand); });
}

bool TileProgram::is_lower_triangular(Value value) const {
  mlir::Operation* op = origin(value).getDefiningOp();
  if (!op) return false;
  if (llvm::isa<MaskOp, DecayMaskOp, DecayDotOp, InverseUnitLowerOp>(op)) return true;
  if (llvm::isa<mlir::arith::MulFOp>(op))
    return llvm::any_of(op->getOperands(), [&](Value v) { return is_lower_triangular(v); });
  if (llvm::isa<mlir::arith::AddFOp, mlir::arith::SubFOp, mlir::arith::NegFOp>(op))
    return llvm::all_of(op->getOperands(), [&](Value v) { return is_lower_triangular(v); });
  if (auto matmul = llvm::dyn_cast<MatmulOp>(op))
    return !matmul.getTransposeLhs() && !matmul.getTransposeRhs() &&
           is_lower_triangular(matmul.getLhs()) && is_lower_triangular(matmul.getRhs());
  return false;
}

void TileProgram::verify() const {
  auto require = [](bool holds, const char* what) {
    if (!holds) throw InternalError(fmt::format("tile program: {}", what));
  };
  llvm::DenseSet<mlir::Operation*> done;
  mlir::Block* top = &GraphOp(graph_).getBody().front();
  for (const Loop& loop : loops_) {
    for (mlir::Operation* op : loop.body) {
      for (Value operand : op->getOperands()) {
        mlir::Operation* source = origin(operand).getDefiningOp();
        require(!source || source->getBlock() == top || done.contains(source),
                "an op comes before what it reads");
      }
      require(placements_.contains(op->getResult(0)), "a tile has no place");
      done.insert(op);
    }
    require((loop.order == Order::any) == !loop.scan, "a loop in order carries nothing");
  }
}

std::string TileProgram::print() const {
  static const char* orders[] = {"any order", "forward", "reverse"};
  static const char* places[] = {"fused", "scratch", "workspace", "carried"};
  std::string text;
  for (const Loop& loop : loops_) {
    text += fmt::format("loop over chunks of {}, {}\n", schedule_.chunk,
                        orders[static_cast<int>(loop.order)]);
    for (mlir::Operation* op : loop.body) {
      Value result = op->getResult(0);
      std::string name = name_of(result);
      text += fmt::format("  {:<10} {:<16} {:<20} {}\n",
                          places[static_cast<int>(placement(result))], name.empty() ? "-" : name,
                          op->getName().stripDialect().str(), describe(result.getType()));
    }
  }
  return text;
}

}  // namespace linnet
