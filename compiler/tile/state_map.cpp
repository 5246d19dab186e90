#include "compiler/tile/state_map.h"

#include <fmt/format.h>

#include "linnet/error.h"

namespace linnet {

using namespace chunk;
namespace arith = mlir::arith;
using mlir::Value;

namespace {

// How a value depends on the state and on the value channels of inputs.
enum class Kind {
  factor,    // on neither: the same for every value channel
  base,      // on inputs, zero where they are zero
  scaled,    // a multiple of the state, element by element, and a base
  mixed,     // a linear map of the state, and a base
  unsuited,  // in another way
};

bool holds_state(Kind kind) { return kind == Kind::scaled || kind == Kind::mixed; }

class Classifier {
 public:
  Classifier(const TileProgram& program, Value state) : program_(program), state_(state) {}

  Kind kind_of(Value value) {
    value = program_.origin(value);
    if (value == state_) return Kind::scaled;
    if (auto found = known_.find(value); found != known_.end()) return found->second;
    mlir::Operation* op = value.getDefiningOp();
    Kind kind = op ? kind_of(op) : Kind::unsuited;
    known_[value] = kind;
    return kind;
  }

 private:
  Kind kind_of(mlir::Operation* op) {
    if (auto input = llvm::dyn_cast<InputOp>(op)) {
      if (!has_axis(input.getType(), Axis::value)) return Kind::factor;
      return input.getScope() == Scope::token ? Kind::base : Kind::unsuited;
    }
    llvm::SmallVector<Kind> kinds;
    for (Value operand : op->getOperands()) kinds.push_back(kind_of(operand));
    if (llvm::is_contained(kinds, Kind::unsuited)) return Kind::unsuited;
    if (llvm::all_of(kinds, [](Kind k) { return k == Kind::factor; })) return Kind::factor;
    if (llvm::isa<arith::AddFOp, arith::SubFOp>(op)) return sum(kinds[0], kinds[1]);
    if (llvm::isa<arith::MulFOp>(op)) return product(kinds[0], kinds[1]);
    if (llvm::isa<arith::DivFOp>(op) && kinds[1] == Kind::factor) return kinds[0];
    if (llvm::isa<arith::NegFOp, RoundOp, ValidOp, MaskOp>(op)) return kinds[0];
    if (llvm::isa<BroadcastOp, CumsumOp, RowOp, PlaceRowOp>(op)) return mixed(kinds[0]);
    if (llvm::isa<MatmulOp>(op) && llvm::is_contained(kinds, Kind::factor))
      return mixed(product(kinds[0], kinds[1]));
    return Kind::unsuited;
  }
  static Kind mixed(Kind kind) { return kind == Kind::scaled ? Kind::mixed : kind; }
  static Kind sum(Kind a, Kind b) {
    return a == Kind::factor || b == Kind::factor ? Kind::unsuited : std::max(a, b);
  }
  static Kind product(Kind a, Kind b) {
    if (a == Kind::factor) return b;
    if (b == Kind::factor) return a;
    return holds_state(a) || holds_state(b) ? Kind::unsuited : Kind::base;
  }

  const TileProgram& program_;
  Value state_;
  llvm::DenseMap<Value, Kind> known_;
};

}  // namespace

StateMap state_map(const TileProgram& program, const Loop& loop) {
  auto refuse = [&](const char* why) {
    throw UserError(fmt::format("segment: expected 0 for {}, {}",
                                GraphOp(program.graph()).getSymName().str(), why));
  };
  if (loop.carried().size() != 1) refuse("whose scan carries more than one state");
  Value next = program.origin(loop.next()[0]);
  Kind kind = Classifier(program, loop.carried()[0]).kind_of(next);
  if (kind == Kind::factor || kind == Kind::unsuited)
    refuse("whose state does not change by one linear map for all value channels");
  llvm::DenseSet<mlir::Operation*> needed;
  std::vector<Value> open = {next};
  while (!open.empty()) {
    mlir::Operation* op = program.origin(open.back()).getDefiningOp();
    open.pop_back();
    bool own = op && llvm::is_contained(loop.body, op);
    if (own && needed.insert(op).second)
      open.insert(open.end(), op->operand_begin(), op->operand_end());
  }
  StateMap map{kind != Kind::mixed, {}};
  for (mlir::Operation* op : loop.body)
    if (needed.contains(op)) map.update.push_back(op);
  return map;
}

}  // namespace linnet
