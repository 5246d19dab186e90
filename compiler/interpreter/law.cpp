// Runs a law as it is written, one token after another.
#include <fmt/format.h>

#include "compiler/interpreter/evaluate.h"
#include "compiler/interpreter/interpreter.h"
#include "linnet/error.h"

namespace linnet {

using namespace chunk;
using mlir::Value;
using Numbers = interpreter::Tile<double>;

namespace {

class LawRun {
 public:
  LawRun(LawOp law, const Layout& layout, const Tensors& inputs)
      : law_(law), layout_(layout), inputs_(inputs) {}

  Tensors run() {
    layout_.check();
    auto start = *law_.getBody().getOps<StateOp>().begin();
    int64_t size = tile_of(start).getNumElements(), first = 0;
    for (int64_t sequence = 0; sequence < static_cast<int64_t>(layout_.lengths.size());
         ++sequence) {
      for (head_ = 0; head_ < layout_.value_heads; ++head_) {
        Numbers state(tile_of(start).getShape());
        int64_t row = sequence * layout_.value_heads + head_;
        if (auto init = inputs_.find("initial_state"); init != inputs_.end()) {
          size_t states = layout_.lengths.size() * layout_.value_heads;
          if (init->second.size() != states * size)
            throw UserError(fmt::format("initial_state: expected {} numbers, got {}", states * size,
                                        init->second.size()));
          std::copy_n(init->second.begin() + row * size, size, state.data.begin());
        }
        for (int64_t t = first; t < first + layout_.lengths[sequence]; ++t)
          state = step(std::move(state), t);
        auto& finals = results_["final_state"];
        finals.resize(layout_.lengths.size() * layout_.value_heads * size);
        std::copy(state.data.begin(), state.data.end(), finals.begin() + row * size);
      }
      first += layout_.lengths[sequence];
    }
    return results_;
  }

 private:
  Numbers step(Numbers state, int64_t token) {
    llvm::DenseMap<Value, Numbers> values;
    for (mlir::Operation& op : law_.getBody().front()) {
      if (auto input = llvm::dyn_cast<InputOp>(op))
        values[input] = argument(input, token);
      else if (auto start = llvm::dyn_cast<StateOp>(op))
        values[start] = state;
      else if (auto decay = llvm::dyn_cast<DecayOp>(op))
        values[decay] = decayed(values[decay.getState()], values[decay.getGate()]);
      else if (auto read = llvm::dyn_cast<ReadOp>(op))
        values[read] = read_from(values[read.getState()], values[read.getVector()]);
      else if (auto write = llvm::dyn_cast<WriteOp>(op))
        values[write] =
            written(values[write.getState()], values[write.getKey()], values[write.getValue()]);
      else if (auto output = llvm::dyn_cast<OutputOp>(op))
        store(output, values[output.getValue()], token);
      else if (auto next = llvm::dyn_cast<NextOp>(op))
        return values[next.getState()];
      else {
        auto result = interpreter::evaluate<double>(
            &op, [&](Value v) -> const Numbers& { return values[v]; }, 1);
        values[op.getResult(0)] = *result;
      }
    }
    return state;
  }

  Numbers argument(InputOp input, int64_t token) {
    Numbers tile(tile_of(input).getShape());
    int64_t size = tile.data.size(),
            heads = input.getKeyHeads() ? layout_.heads : layout_.value_heads;
    int64_t head = input.getKeyHeads() ? head_ / (layout_.value_heads / layout_.heads) : head_;
    int64_t row = input.getScope() == Scope::token  ? token * heads + head
                  : input.getScope() == Scope::head ? head
                                                    : 0;
    auto found = inputs_.find(input.getName().str());
    if (found == inputs_.end() || static_cast<int64_t>(found->second.size()) < (row + 1) * size)
      throw UserError(
          fmt::format("{}: expected at least {} numbers", input.getName().str(), (row + 1) * size));
    std::copy_n(found->second.begin() + row * size, size, tile.data.begin());
    return tile;
  }

  void store(OutputOp output, const Numbers& value, int64_t token) {
    auto& result = results_[output.getName().str()];
    int64_t size = value.data.size();
    result.resize(layout_.tokens() * layout_.value_heads * size);
    std::copy(value.data.begin(), value.data.end(),
              result.begin() + (token * layout_.value_heads + head_) * size);
  }

  static Numbers decayed(Numbers state, const Numbers& gate) {
    for (int64_t d = 0; d < state.rows(); ++d)
      for (int64_t j = 0; j < state.columns(); ++j)
        state(d, j) *= std::exp(gate.data[gate.data.size() > 1 ? d : 0]);
    return state;
  }

  static Numbers read_from(const Numbers& state, const Numbers& vector) {
    Numbers result(llvm::ArrayRef<int64_t>(state.columns()));
    for (int64_t d = 0; d < state.rows(); ++d)
      for (int64_t j = 0; j < state.columns(); ++j) result.data[j] += vector.data[d] * state(d, j);
    return result;
  }

  static Numbers written(Numbers state, const Numbers& key, const Numbers& value) {
    for (int64_t d = 0; d < state.rows(); ++d)
      for (int64_t j = 0; j < state.columns(); ++j) state(d, j) += key.data[d] * value.data[j];
    return state;
  }

  LawOp law_;
  const Layout& layout_;
  const Tensors& inputs_;
  Tensors results_;
  int64_t head_ = 0;
};

}  // namespace

Tensors interpret(LawOp law, const Layout& layout, const Tensors& inputs) {
  return LawRun(law, layout, inputs).run();
}

}  // namespace linnet
