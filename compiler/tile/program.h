// The tile program: a staged graph as loops over chunks, with a place for every tile. The step both
// back ends start from; nothing in it knows a particular recurrence.
#pragma once

#include <string>
#include <vector>

#include "compiler/dialect/chunk.h"
#include "linnet/schedule.h"

namespace linnet {

// In which order a loop takes the chunks of a sequence.
enum class Order { any, forward, reverse };

enum class Placement {
  fused,      // computed where its one reader needs it, never in memory
  scratch,    // in memory for one turn of its loop
  workspace,  // kept for another loop, one tile a chunk
  carried,    // from one turn to the next
};

struct Loop {
  using Range = mlir::ValueRange;
  Order order = Order::any;
  chunk::ScanOp scan;                  // what it carries; null for a map
  std::vector<mlir::Operation*> body;  // the ops of one turn, in order

  // What it carries: as seen by the body, what it starts from, and what the body makes of it.
  Range carried() const {
    return scan ? Range(chunk::ScanOp(scan).block().getArguments()) : Range();
  }
  Range init() const { return scan ? Range(chunk::ScanOp(scan).getInit()) : Range(); }
  Range next() const {
    return scan ? Range(chunk::ScanOp(scan).yield().getValues()).take_front(init().size())
                : Range();
  }
};

class TileProgram {
 public:
  // Loops and placements for a graph that split-stages has staged.
  TileProgram(chunk::GraphOp graph, const Schedule& schedule);

  chunk::GraphOp graph() const { return graph_; }
  const Schedule& schedule() const { return schedule_; }
  const std::vector<Loop>& loops() const { return loops_; }

  // The value a stage's result stands for: what the stage yields. Final carried values stay as they
  // are.
  mlir::Value origin(mlir::Value value) const;
  Placement placement(mlir::Value value) const { return placements_.lookup(value); }
  // The loop a value is computed in; nothing for inputs.
  std::optional<size_t> loop_of(mlir::Value value) const;
  // Loops that go through a sequence in one direction are one pass over it; those in any order
  // belong to the next loop that carries something, or to the last. What a pass leaves for a later
  // one is needed of all chunks, what it leaves for itself of a few at a time.
  int64_t pass_of(size_t loop) const { return passes_[loop]; }
  // Whether a loop can compute a block of value channels by itself: it sums over none of them.
  bool has_value_blocks(const Loop& loop) const;
  // Whether the tile has no entries above (transposed: below) its diagonal.
  bool is_lower_triangular(mlir::Value value) const;

  // Every tile has one place, every use comes after its definition, carried values have one loop.
  // Throws InternalError.
  void verify() const;
  // One line a loop and tile, for people.
  std::string print() const;

 private:
  void form_loops();
  void count_passes();
  void sink_products();
  void place();
  bool has_fused_product(mlir::Value value) const;

  chunk::GraphOp graph_;
  Schedule schedule_;
  std::vector<Loop> loops_;
  std::vector<int64_t> passes_;
  llvm::DenseMap<mlir::Value, mlir::Value> origins_;
  llvm::DenseMap<mlir::Operation*, size_t> loop_of_op_;
  llvm::DenseMap<mlir::Value, Placement> placements_;
};

// True for ops whose result can be computed element by element inside the reader's loops:
// arithmetic, masks, broadcasts, and products.
bool is_fusible(mlir::Operation* op);
// The same graph of fewer value channels, in a module of its own: every op is there, in the same
// order.
mlir::OwningOpRef<mlir::ModuleOp> with_value_channels(mlir::ModuleOp module, int64_t channels);

}  // namespace linnet
