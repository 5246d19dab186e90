#include "compiler/interpreter/interpreter.h"

#include <fmt/format.h>

#include <numeric>

#include "compiler/interpreter/evaluate.h"
#include "linnet/error.h"

namespace linnet {

using namespace chunk;
using interpreter::evaluate;
using interpreter::TileRef;
using mlir::Value;

int64_t Layout::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

void Layout::check() const {
  if (heads < 1 || value_heads < 1 || value_heads % heads != 0)
    throw UserError(
        fmt::format("value_heads: expected a multiple of heads ({}), got {}", heads, value_heads));
  for (int64_t length : lengths)
    if (length < 0)
      throw UserError(fmt::format("lengths: expected no negative length, got {}", length));
}

namespace {

// The numbers of one argument that belong to one token, sequence or head.
int64_t row_size(mlir::Type type, Scope scope, bool is_graph) {
  auto tile = llvm::cast<chunk::Tile>(type);
  int64_t size = tile.getNumElements();
  return is_graph && scope == Scope::token ? size / tile.getDimSize(0) : size;
}

int64_t row_count(Scope scope, bool key_heads, const Layout& layout) {
  int64_t heads = key_heads ? layout.heads : layout.value_heads;
  switch (scope) {
    case Scope::token:
      return layout.tokens() * heads;
    case Scope::sequence:
      return static_cast<int64_t>(layout.lengths.size()) * heads;
    case Scope::head:
      return heads;
    case Scope::constant:
      return 1;
  }
  llvm_unreachable("every scope is listed");
}

const std::vector<double>& fetch(const Tensors& inputs, const std::string& name, int64_t size) {
  auto found = inputs.find(name);
  if (found == inputs.end())
    throw UserError(fmt::format("{}: expected {} numbers, got no such input", name, size));
  if (static_cast<int64_t>(found->second.size()) != size)
    throw UserError(
        fmt::format("{}: expected {} numbers, got {}", name, size, found->second.size()));
  return found->second;
}

// One run over one sequence and head after another, in the arithmetic T.
template <class T>
class Run {
  using Tile = interpreter::Tile<T>;

  // A value: one tile a chunk, or one for all.
  struct Slot {
    std::vector<TileRef<T>> tiles;
    bool uniform = false;
  };

 public:
  Run(GraphOp graph, const Layout& layout, const Tensors& inputs)
      : graph_(graph), layout_(layout), inputs_(inputs), chunk_(graph.getChunkSize()) {}

  Tensors run() {
    layout_.check();
    for (auto output : graph_.getBody().getOps<OutputOp>())
      results_[output.getName().str()].assign(
          row_count(output.getScope(), output.getKeyHeads(), layout_) *
              row_size(output.getValue().getType(), output.getScope(), true),
          0);
    for (auto input : graph_.getBody().getOps<InputOp>()) load(input);
    first_token_ = 0;
    for (sequence_ = 0; sequence_ < static_cast<int64_t>(layout_.lengths.size()); ++sequence_) {
      length_ = layout_.lengths[sequence_];
      chunks_ = (length_ + chunk_ - 1) / chunk_;
      for (head_ = 0; head_ < layout_.value_heads; ++head_) {
        slots_.clear();
        run_block(graph_.getBody().front());
      }
      first_token_ += length_;
    }
    Tensors tensors;
    for (auto output : graph_.getBody().getOps<OutputOp>()) {
      auto& from = results_[output.getName().str()];
      auto& to = tensors[output.getName().str()];
      auto precision = output.getStorage().value_or(Precision::f32);
      for (T x : from) to.push_back(interpreter::round_to(x, precision));
    }
    return tensors;
  }

 private:
  int64_t valid_rows(int64_t chunk) const { return std::min(chunk_, length_ - chunk * chunk_); }
  int64_t head_of(bool key_heads) const {
    return key_heads ? head_ / (layout_.value_heads / layout_.heads) : head_;
  }

  // The inputs in T, rounded to how they are stored.
  void load(InputOp input) {
    std::string name = input.getName().str();
    int64_t size = row_count(input.getScope(), input.getKeyHeads(), layout_) *
                   row_size(input.getType(), input.getScope(), true);
    auto& values = loaded_[name];
    if (input.getScope() == Scope::sequence && !inputs_.contains(name)) {
      values.assign(size, 0);
      return;
    }
    auto precision = input.getStorage().value_or(Precision::f32);
    for (double x : fetch(inputs_, name, size))
      values.push_back(interpreter::round_to(static_cast<T>(x), precision));
  }

  // Where the argument's row for this sequence and head begins.
  int64_t row_of(Scope scope, bool key_heads) const {
    int64_t heads = key_heads ? layout_.heads : layout_.value_heads;
    if (scope == Scope::sequence) return sequence_ * heads + head_of(key_heads);
    return scope == Scope::head ? head_of(key_heads) : 0;
  }
  int64_t token_row(int64_t token, bool key_heads) const {
    return (first_token_ + token) * (key_heads ? layout_.heads : layout_.value_heads) +
           head_of(key_heads);
  }

  Slot slot_of(InputOp input) {
    const auto& values = loaded_[input.getName().str()];
    auto shape = tile_of(input).getShape();
    int64_t width = row_size(input.getType(), input.getScope(), true);
    Slot slot;
    if (input.getScope() != Scope::token) {
      Tile tile(shape);
      std::copy_n(values.begin() + row_of(input.getScope(), input.getKeyHeads()) * width, width,
                  tile.data.begin());
      slot.uniform = true;
      slot.tiles.push_back(std::make_shared<const Tile>(std::move(tile)));
      return slot;
    }
    for (int64_t c = 0; c < chunks_; ++c) {
      Tile tile(shape);
      for (int64_t i = 0; i < valid_rows(c); ++i)
        std::copy_n(values.begin() + token_row(c * chunk_ + i, input.getKeyHeads()) * width, width,
                    tile.data.begin() + i * width);
      slot.tiles.push_back(std::make_shared<const Tile>(std::move(tile)));
    }
    return slot;
  }

  void store(OutputOp output) {
    auto& values = results_[output.getName().str()];
    int64_t width = row_size(output.getValue().getType(), output.getScope(), true);
    auto add = [&](int64_t row, const T* data) {
      for (int64_t d = 0; d < width; ++d) values[row * width + d] += data[d];
    };
    bool keys = output.getKeyHeads();
    if (output.getScope() == Scope::sequence)
      return add(row_of(Scope::sequence, keys), get(output.getValue(), 0).data.data());
    for (int64_t c = 0; c < chunks_; ++c) {
      const Tile& tile = get(output.getValue(), c);
      if (output.getScope() == Scope::head)
        add(row_of(Scope::head, keys), tile.data.data());
      else
        for (int64_t i = 0; i < valid_rows(c); ++i)
          add(token_row(c * chunk_ + i, keys), tile.data.data() + i * width);
    }
  }

  const Tile& get(Value value, int64_t chunk) {
    const Slot& slot = slots_.find(value)->second;
    return *slot.tiles[slot.uniform ? 0 : chunk];
  }

  void run_block(mlir::Block& block) {
    for (mlir::Operation& op : block) {
      if (auto input = llvm::dyn_cast<InputOp>(op))
        slots_[input] = slot_of(input);
      else if (auto output = llvm::dyn_cast<OutputOp>(op))
        store(output);
      else if (auto scan = llvm::dyn_cast<ScanOp>(op))
        run_scan(scan);
      else if (auto map = llvm::dyn_cast<MapOp>(op))
        run_map(map);
      else if (!llvm::isa<YieldOp>(op))
        run_op(op);
    }
  }

  void run_op(mlir::Operation& op) {
    Slot slot;
    slot.uniform = llvm::all_of(op.getOperands(), [&](Value v) { return slots_[v].uniform; }) &&
                   !llvm::isa<ValidOp>(op);
    for (int64_t c = 0; c < (slot.uniform ? 1 : chunks_); ++c)
      slot.tiles.push_back(
          evaluate<T>(&op, [&](Value v) -> const Tile& { return get(v, c); }, valid_rows(c)));
    slots_[op.getResult(0)] = std::move(slot);
  }

  void run_map(MapOp map) {
    run_block(map.block());
    for (auto [result, value] : llvm::zip(map.getResults(), map.yield().getValues())) {
      Slot slot = slots_[value];
      slots_[result] = std::move(slot);
    }
  }

  void run_scan(ScanOp scan) {
    unsigned carried = scan.getInit().size();
    std::vector<TileRef<T>> carries;
    for (Value init : scan.getInit()) carries.push_back(slots_[init].tiles[0]);
    std::vector<Slot> emitted(scan->getNumResults() - carried);
    for (Slot& slot : emitted) slot.tiles.resize(chunks_);
    for (int64_t step = 0; step < chunks_; ++step) {
      int64_t c = scan.getReverse() ? chunks_ - 1 - step : step;
      llvm::DenseMap<Value, TileRef<T>> local;
      for (auto [argument, tile] : llvm::zip(scan.block().getArguments(), carries))
        local[argument] = tile;
      auto ref = [&](Value v) -> TileRef<T> {
        if (auto found = local.find(v); found != local.end()) return found->second;
        const Slot& slot = slots_[v];
        return slot.tiles[slot.uniform ? 0 : c];
      };
      for (mlir::Operation& op : scan.block().without_terminator())
        local[op.getResult(0)] =
            evaluate<T>(&op, [&](Value v) -> const Tile& { return *ref(v); }, valid_rows(c));
      auto yielded = scan.yield().getValues();
      for (unsigned i = 0; i < carried; ++i) carries[i] = ref(yielded[i]);
      for (unsigned i = carried; i < yielded.size(); ++i)
        emitted[i - carried].tiles[c] = ref(yielded[i]);
    }
    for (unsigned i = 0; i < carried; ++i) slots_[scan->getResult(i)] = Slot{{carries[i]}, true};
    for (unsigned i = 0; i < emitted.size(); ++i)
      slots_[scan->getResult(carried + i)] = std::move(emitted[i]);
  }

  GraphOp graph_;
  const Layout& layout_;
  const Tensors& inputs_;
  int64_t chunk_;
  std::map<std::string, std::vector<T>> loaded_, results_;

  int64_t sequence_ = 0, head_ = 0, first_token_ = 0, length_ = 0, chunks_ = 0;
  llvm::DenseMap<Value, Slot> slots_;
};

}  // namespace

Tensors interpret(GraphOp graph, const Layout& layout, const Tensors& inputs,
                  Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::f64) return Run<double>(graph, layout, inputs).run();
  return Run<float>(graph, layout, inputs).run();
}

}  // namespace linnet
