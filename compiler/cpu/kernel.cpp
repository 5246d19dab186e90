#include "compiler/cpu/kernel.h"

#include <fmt/format.h>

#include "compiler/arguments.h"
#include "compiler/cpu/gate_products.h"
#include "compiler/cpu/matrix_products.h"
#include "compiler/cpu/spared_tiles.h"
#include "compiler/cpu/states.h"
#include "compiler/cpu/token_step.h"
#include "compiler/cpu/workspace.h"
#include "linnet/error.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;

namespace {

// The arguments of a graph in the kernel's order, with how they are stored. Results that are summed
// over heads or sequences leave the kernel in f32.
void for_each_argument(GraphOp graph, bool grouped,
                       llvm::function_ref<void(llvm::StringRef, Precision)> call) {
  for (auto input : graph.getBody().getOps<InputOp>())
    call(input.getName(), input.getStorage().value_or(Precision::f32));
  for (auto output : graph.getBody().getOps<OutputOp>()) {
    bool summed = (output.getKeyHeads() && grouped) || output.getScope() == Scope::head;
    call(output.getName(), summed ? Precision::f32 : output.getStorage().value_or(Precision::f32));
  }
}

class Kernel : public Memory {
 public:
  Kernel(const TileProgram& program, const Target& target, mlir::OpBuilder& builder,
         const MemoryOptions& memory)
      : program_(program),
        e_(builder, target),
        blocks_(e_, program, *this),
        tile_ops_(e_, target, program, *this, blocks_),
        scratch_(e_),
        gates_(e_, program, blocks_, scratch_),
        prefetches_(e_, target.narrow_unit == NarrowUnit::none),
        products_(e_, program, *this, blocks_, tile_ops_, scratch_, prefetches_,
                  target.narrow_unit),
        chunk_(program.graph().getChunkSize()),
        in_parts_(!program.schedule().fuse_stages),
        reads_rows_ahead_(target.reads_rows_ahead),
        memory_(memory),
        workspace_(e_, program, scratch_, target.stores_past_caches, memory.value_channels),
        states_(e_, tile_ops_, scratch_, memory.state_v_first),
        rows_(e_, tile_ops_, scratch_, chunk_) {}

  // The function of the loops [first, last).
  void emit(Value arguments, size_t first, size_t last) {
    read_arguments(arguments);
    products_.start();
    if (chunk_ > 1)
      emit_head(first, last);
    else
      e_.loop(e_.i64(0), heads_, 1, [&](Value head) {
        for (auto& [name, argument] : bound_)
          argument.pointer =
              e_.at(argument.pointer, e_.mul(head, argument.head_step), e_.builder().getI8Type());
        emit_head(first, last);
      });
    products_.finish();
  }

  bool uses_matrix_unit() const { return products_.use_tiles(); }
  int64_t scratch_used() const { return scratch_.used(); }
  const Workspace& workspace() const { return workspace_; }

  // Memory
  bool in_memory(Value value) override {
    value = program_.origin(value);
    if (llvm::isa<mlir::BlockArgument>(value)) return true;
    if (llvm::isa<InputOp>(value.getDefiningOp())) return true;
    if (value.getDefiningOp()->getBlock() == &program_.graph().getBody().front())
      return false;  // constants
    if (value == evaluating) return false;
    if (made_.contains(value)) return true;
    return program_.placement(value) != Placement::fused && !spared_.made_again.contains(value);
  }

  Buffer buffer_of(Value value) override {
    value = program_.origin(value);
    if (auto found = buffers_.find(value); found != buffers_.end()) return found->second;
    if (workspace_.has(value)) return workspace_.at(value);
    if (auto row = value.getDefiningOp<RowOp>()) return row_in(row);
    throw InternalError(fmt::format("cpu: {} has no memory", name_of(value)));
  }

  Buffer transposed(Value value) override {
    return scratch_.form_of(program_.origin(value), kTransposed);
  }
  Buffer steps(Value gate) override { return scratch_.form_of(program_.origin(gate), kSteps); }
  Value valid_rows() override { return rows_.valid(); }
  void keep(Value value, Buffer buffer) override {
    buffers_[value] = buffer;
    made_.insert(value);
  }
  void make(Value value, Buffer target) override {
    value = program_.origin(value);
    if (products_.emit(value, target)) return;
    if (auto product = value.getDefiningOp<MatmulOp>();
        product && !in_memory(value) && tile_ops_.is_better_across(product))
      return make_across(product, target);
    bool triangular = false;
    TurnHook during;
    if (!in_memory(value))
      blocks_.for_each_product(value, [&](MatmulOp matmul) {
        if (matmul.getTransposeRhs() && !BlockEvaluator::is_product_of_rows(matmul))
          make_transposed(matmul.getRhs());
        triangular |= program_.is_lower_triangular(matmul.getLhs());
        if (!during) during = prefetches_.share_of(matmul);
      });
    tile_ops_.emit_blocks(value, target, triangular, during);
  }

 private:
  void emit_head(size_t first, size_t last) {
    load_constants();
    Value chunks = divide_up(tokens_);
    for (size_t i = first; i < last; ++i) emit_loop(program_.loops()[i], i, chunks);
    store_sums();
  }

  Value divide_up(Value tokens) {
    Value sum = e_.add(tokens, chunk_ - 1);
    return e_.builder().create<mlir::arith::DivSIOp>(e_.loc(), sum, e_.i64(chunk_));
  }

  void read_arguments(Value arguments) {
    auto slot = [&](int64_t i) { return e_.at(arguments, e_.i64(i), e_.builder().getI64Type()); };
    tokens_ = e_.load_int(slot(0));
    scratch_.start(e_.load_pointer(slot(1)));
    workspace_.start(e_.load_pointer(slot(2)), e_.load_pointer(slot(8)), e_.load_int(slot(11)));
    carry_from_ = e_.load_int(slot(9));
    carry_to_ = e_.load_int(slot(10));
    states_.asked = {e_.load_int(slot(3)), e_.load_int(slot(4)), e_.load_int(slot(5)),
                     e_.load_int(slot(6))};
    heads_ = e_.load_int(slot(7));
    int64_t i = CpuKernel::kFirstArgument;
    for_each_argument(program_.graph(), memory_.grouped,
                      [&](llvm::StringRef name, Precision storage) {
                        bound_[name.str()] = {e_.load_pointer(slot(i)), e_.load_int(slot(i + 1)),
                                              storage, e_.load_int(slot(i + 2))};
                        i += CpuKernel::kArgumentSlots;
                      });
  }

  // A row where the tile it belongs to lies.
  Buffer row_in(RowOp row) {
    Buffer source = buffer_of(row.getSource());
    bool vector = tile_of(row.getSource()).getRank() == 1;
    Value index = e_.i64(row.getIndex());
    Value offset = vector ? index : source.row_start(e_, index);
    return {e_.at(source.pointer, offset), 1, vector ? 1 : source.columns, source.stride};
  }

  // Inputs that are the same for every chunk.
  void load_constants() {
    for (auto input : program_.graph().getBody().getOps<InputOp>()) {
      if (input.getScope() == Scope::token || input.getScope() == Scope::sequence) continue;
      Buffer buffer = buffers_[input] = scratch_.take(tile_of(input));
      Bound& from = bound(input);
      for (int64_t i = 0; i < buffer.rows; ++i)
        tile_ops_.load_row(
            e_.at(from.pointer, e_.i64(i * buffer.columns), e_.type_of(from.storage)), from.storage,
            e_.at(buffer.pointer, e_.i64(i * buffer.stride)), buffer.columns);
    }
    for (auto output : program_.graph().getBody().getOps<OutputOp>()) {
      if (output.getScope() != Scope::head || in_parts_) continue;
      Buffer buffer = sums_[output] = scratch_.take(tile_of(output.getValue()));
      tile_ops_.fill_zero(buffer);
    }
  }

  void emit_loop(const Loop& loop, size_t index, Value chunks) {
    if (chunk_ > 1) spared_ = SparedTiles(loop, program_, products_, tile_ops_, gates_, e_.lanes());
    for (auto [argument, init] : llvm::zip(loop.carried(), loop.init()))
      load_state(loop, argument, init);
    products_.begin(loop);
    e_.loop(e_.i64(0), chunks, 1, [&](Value turn) {
      Value chunk = loop.order == Order::reverse ? e_.sub(e_.sub(chunks, turn), e_.i64(1)) : turn;
      emit_turn(loop, index, chunk);
    });
    if (in_parts_ && loop.scan)
      e_.when(is_given(carry_to_), [&] { carry_on(loop); }, [&] { store_states(loop); });
    else
      store_states(loop);
    workspace_.finish();
    forget_turn();
  }

  void store_states(const Loop& loop) {
    for (auto output : program_.graph().getBody().getOps<OutputOp>())
      for (size_t i = 0; i < loop.carried().size(); ++i)
        if (output.getValue() == loop.scan->getOpResult(i)) {
          Bound& to = bound(output);
          if (buffers_.lookup(loop.carried()[i]).step) continue;  // it is there already
          states_.store(buffers_.lookup(loop.carried()[i]), to);
        }
  }

  // To the call for the sequence's next part.
  void carry_on(const Loop& loop) {
    Value memory = pointer_to(carry_to_);
    for (Value carried : loop.carried())
      tile_ops_.copy(buffers_.lookup(carried), workspace_.carried_at(memory, loop, carried));
  }

  Value is_given(Value address) {
    return e_.builder().create<mlir::arith::CmpIOp>(e_.loc(), mlir::arith::CmpIPredicate::ne,
                                                    address, e_.i64(0));
  }
  Value pointer_to(Value address) {
    return e_.builder().create<mlir::LLVM::IntToPtrOp>(e_.loc(), e_.pointer_type(), address);
  }
  void load_state(const Loop& loop, Value argument, Value init) {
    auto input = program_.origin(init).getDefiningOp<InputOp>();
    if (!input) throw InternalError("cpu: a scan starts from something that is not an input");
    const Bound& from = bound(input);
    OutputOp last = final_state(loop);
    bool in_place =
        chunk_ == 1 && last && !in_parts_ && states_.can_lie_in_place(tile_of(argument), from);
    if (in_place && memory_.state_v_first) {
      auto step = token_step(loop);
      in_place = step && step->can_walk_values();
    }
    if (in_place) {
      buffers_[argument] = states_.place(tile_of(argument), from, bound(last));
      return;
    }
    Buffer state = buffers_[argument] = scratch_.take(tile_of(argument));
    if (!in_parts_) return states_.load(from, state);
    e_.when(
        is_given(carry_from_),
        [&] {
          Value memory = pointer_to(carry_from_);
          tile_ops_.copy(workspace_.carried_at(memory, loop, argument), state);
        },
        [&] { states_.load(from, state); });
  }

  // Where the one state of a loop over tokens in their order goes in the end, if the graph says so.
  static OutputOp final_state(const Loop& loop) {
    if (loop.order != Order::forward || loop.carried().size() != 1) return {};
    for (mlir::Operation* user : loop.scan->getOpResult(0).getUsers())
      if (auto output = llvm::dyn_cast<OutputOp>(user)) return output;
    return {};
  }

  void emit_turn(const Loop& loop, size_t index, Value chunk) {
    Value first = e_.mul(chunk, chunk_);
    rows_.go_to(first,
                chunk_ == 1 ? e_.i64(1) : e_.minimum(e_.i64(chunk_), e_.sub(tokens_, first)));
    workspace_.go_to(chunk);
    for (InputOp input : token_inputs(loop, index))
      buffers_[input] = rows_.load(input, bound(input), spared_.read_in_place.contains(input));
    for (auto [value, output] : spared_.written_in_place)
      buffers_[value] = rows_.place(value, bound(output));
    plan_prefetches(loop, index, first);
    if (final_state(loop)) states_.keep(buffers_.lookup(loop.carried()[0]), chunk);
    for (Value argument : loop.carried())
      if (workspace_.has(argument))
        tile_ops_.copy(buffers_.lookup(argument), workspace_.at(argument));

    made_.clear();
    gates_.start_turn();
    Values next;
    for (Value value : loop.next()) next.push_back(program_.origin(value));
    std::optional<TokenStep> step = token_step(loop);
    std::optional<NextState> ahead;
    if (step) {
      ahead.emplace(e_, buffers_.lookup(loop.carried()[0]), walking(loop));
      ahead->ask_between_ops();
    }
    for (mlir::Operation* op : gates_.in_order(loop.body)) {
      Value result = op->getResult(0);
      if (step && step->makes(op)) continue;
      if (auto product = gates_.of(op); product && !workspace_.has(result)) {
        auto made = gates_.made(*product);
        keep(result, made ? *made : scratch_.place(result));
        if (!made) gates_.emit(*product, buffers_.lookup(result));
        continue;
      }
      if (auto row = llvm::dyn_cast<RowOp>(op)) {
        if (workspace_.has(result)) tile_ops_.copy(row_in(row), target_of(result));
        continue;
      }
      if (program_.placement(result) == Placement::fused) continue;
      if (spared_.made_again.contains(result) || spared_.never_read.contains(result)) continue;
      if (llvm::is_contained(next, result) && updates_in_place(loop, result)) continue;
      if (products_.is_only_packed(result)) {
        products_.pass_by(result);
        continue;
      }
      emit_root(op, target_of(result));
      if (ahead) ahead->ask_between_ops();
    }
    if (step) step->emit(e_, *this, blocks_, scratch_, *ahead, walking(loop));
    store_outputs(index, chunk);
    if (step) return;
    for (size_t i = 0; i < next.size(); ++i) update_carry(loop, i, next[i]);
  }

  std::optional<TokenStep> token_step(const Loop& loop) {
    if (chunk_ > 1) return std::nullopt;
    auto step = TokenStep::of(loop, program_, blocks_);
    return step && updates_in_place(loop, program_.origin(loop.next()[0])) ? step : std::nullopt;
  }

  Walking walking(const Loop& loop) {
    if (memory_.state_v_first && buffers_.lookup(loop.carried()[0]).step) return Walking::values;
    return reads_rows_ahead_ ? Walking::rows : Walking::columns;
  }

  Buffer target_of(Value result) {
    if (spared_.written_in_place.contains(result)) return buffers_.lookup(result);
    return buffers_[result] =
               workspace_.has(result) ? workspace_.at(result) : scratch_.place(result);
  }

  // A carried tile may be overwritten by its next value if that is read element by element only.
  bool updates_in_place(const Loop& loop, Value next) {
    bool safe = next.hasOneUse();
    evaluating = next;
    blocks_.for_each_product(next, [&](MatmulOp op) {
      for (Value operand : op.getOperands())
        safe &= !llvm::is_contained(loop.carried(), program_.origin(operand));
    });
    evaluating = Value();
    return safe && is_fusible(next.getDefiningOp());
  }

  void update_carry(const Loop& loop, size_t i, Value next) {
    Value argument = loop.carried()[i];
    if (next == argument) return;
    products_.begin_update(argument);
    if (next.getDefiningOp() && !buffers_.contains(next) && updates_in_place(loop, next))
      emit_root(next.getDefiningOp(), buffers_.lookup(argument));
    else
      tile_ops_.copy(buffer_of(next), buffers_.lookup(argument));
    products_.end_update(argument);
  }

  void emit_root(mlir::Operation* op, Buffer target) {
    if (auto gate = tile_ops_.stepwise_gate(op)) gates_.make_steps(*gate);
    if (auto scores = llvm::dyn_cast<DecayDotOp>(op);
        scores && products_.emit_scores(scores, target))
      return;
    if (auto product = gates_.of(op)) return gates_.emit(*product, target);
    if (!is_fusible(op)) return tile_ops_.emit(op, target, prefetches_.share_of(op));
    evaluating = op->getResult(0);
    make(op->getResult(0), target);
    evaluating = Value();
  }

  void make_transposed(Value value) {
    value = program_.origin(value);
    Buffer from = buffer_of(value);
    scratch_.form_of(value, kTransposed, {{}, from.columns, from.rows, scratch_.padded(from.rows)},
                     [&](Buffer to) { tile_ops_.transpose(from, to); });
  }

  void make_across(MatmulOp product, Buffer target) {
    make_transposed(product.getLhs());
    Buffer across{{}, target.columns, target.rows, scratch_.padded(target.rows)};
    across.pointer = scratch_.place(product, kTransposed, across.rows * across.stride);
    tile_ops_.emit_blocks(product, across, false, prefetches_.share_of(product), true);
    tile_ops_.transpose(across, target);
  }

  // What the next turn starts with.
  void plan_prefetches(const Loop& loop, size_t index, Value first) {
    prefetches_.start(loop, chunk_, [&](MatmulOp op) { return products_.steps(op); });
    Value next = e_.add(first, loop.order == Order::reverse ? -chunk_ : chunk_);
    auto plan = [&](llvm::StringRef name, Tile type, bool write) {
      int64_t columns = type.getRank() == 2 ? type.getDimSize(1) : 1;
      Bound& at = bound_[name.str()];
      mlir::Type number = e_.type_of(at.storage);
      // Of single tokens few follow each other: the next head's row lies behind this one's.
      Value offset = chunk_ == 1 ? e_.add(e_.mul(first, at.step), columns) : e_.mul(next, at.step);
      Value row = e_.at(at.pointer, offset, number);
      prefetches_.add(row, at.step, columns, number, write);
    };
    for (InputOp input : token_inputs(loop, index)) plan(input.getName(), tile_of(input), false);
    for (auto output : program_.graph().getBody().getOps<OutputOp>())
      if (output.getScope() == Scope::token && program_.loop_of(output.getValue()) == index)
        plan(output.getName(), tile_of(output.getValue()), true);
    if (chunk_ == 1) return prefetches_.ask_for_all();
    workspace_.plan_prefetches(loop, index, prefetches_);
  }

  // What a turn reads of the caller's tokens, first things first.
  llvm::SetVector<InputOp> token_inputs(const Loop& loop, size_t index) {
    llvm::SetVector<InputOp> inputs;
    auto note = [&](Value value) {
      auto input = program_.origin(value).getDefiningOp<InputOp>();
      if (input && input.getScope() == Scope::token) inputs.insert(input);
    };
    for (mlir::Operation* op : loop.body) llvm::for_each(op->getOperands(), note);
    for (auto output : program_.graph().getBody().getOps<OutputOp>())
      if (index + 1 == program_.loops().size()) note(output.getValue());
    return inputs;
  }

  Bound& bound(InputOp input) { return bound_[input.getName().str()]; }
  Bound& bound(OutputOp output) { return bound_[output.getName().str()]; }

  void store_outputs(size_t index, Value chunk) {
    for (auto output : program_.graph().getBody().getOps<OutputOp>()) {
      Value value = program_.origin(output.getValue());
      auto loop = program_.loop_of(value);
      if (output.getScope() == Scope::sequence ||
          (loop ? *loop : program_.loops().size() - 1) != index)
        continue;
      if (spared_.written_in_place.contains(value)) {
        rows_.finish(value, bound(output));
        continue;
      }
      Buffer buffer = in_memory(value) ? buffer_of(value) : materialised_constant(value);
      if (output.getScope() == Scope::token)
        rows_.store(buffer, value, bound(output));
      else if (in_parts_)
        store_of_chunk(buffer, bound(output), chunk);
      else
        tile_ops_.add_to(buffer, sums_.lookup(output));
    }
  }

  // Who calls for parts of a sequence adds up what its chunks give.
  void store_of_chunk(Buffer buffer, const Bound& to, Value chunk) {
    Value start = e_.at(to.pointer, e_.mul(chunk, buffer.rows * buffer.columns));
    tile_ops_.store_rows(buffer, start, e_.i64(buffer.columns), to.storage, e_.i64(buffer.rows));
  }

  Buffer materialised_constant(Value value) {
    Buffer buffer = scratch_.place(value);
    tile_ops_.emit_blocks(value, buffer, false);
    return buffer;
  }

  void store_sums() {
    for (auto output : program_.graph().getBody().getOps<OutputOp>()) {
      if (output.getScope() != Scope::head || in_parts_) continue;
      Buffer buffer = sums_.lookup(output);
      Bound& to = bound(output);
      tile_ops_.store_rows(buffer, to.pointer, e_.i64(buffer.columns), to.storage,
                           e_.i64(buffer.rows));
    }
  }

  // Addresses made for one loop are not seen by the next: only what is the same for all chunks
  // stays.
  void forget_turn() {
    llvm::DenseMap<Value, Buffer> kept;
    for (auto& [value, buffer] : buffers_) {
      auto input = value.getDefiningOp<InputOp>();
      if (input && (input.getScope() == Scope::head || input.getScope() == Scope::constant))
        kept[value] = buffer;
    }
    buffers_ = kept;
    scratch_.forget_forms();
  }

  const TileProgram& program_;
  Emitter e_;
  BlockEvaluator blocks_;
  TileOps tile_ops_;
  Scratch scratch_;
  GateProducts gates_;
  Prefetches prefetches_;
  MatrixProducts products_;
  int64_t chunk_;
  bool in_parts_;  // a function a loop, called for parts of a sequence
  bool reads_rows_ahead_;
  MemoryOptions memory_;
  Workspace workspace_;
  States states_;
  TokenRows rows_;
  std::map<std::string, Bound> bound_;
  Value heads_, tokens_, carry_from_, carry_to_;
  llvm::DenseMap<Value, Buffer> buffers_;
  llvm::DenseMap<mlir::Operation*, Buffer> sums_;
  SparedTiles spared_;
  llvm::DenseSet<Value> made_;  // fused values made ahead of what reads them
};

}  // namespace

CpuKernel emit_kernel(mlir::ModuleOp module, const Programs& programs, const Target& target,
                      const MemoryOptions& memory) {
  const TileProgram& program = programs.whole;
  CpuKernel kernel;
  kernel.arguments = arguments_of(program.graph());
  size_t argument = 0;
  for_each_argument(program.graph(), memory.grouped, [&](llvm::StringRef, Precision storage) {
    kernel.arguments[argument++].storage = dtype_of(storage);
  });
  kernel.chunk = program.graph().getChunkSize();
  bool whole = program.schedule().fuse_stages;
  size_t loops = program.loops().size();
  for (size_t first = 0; first < loops; first = whole ? loops : first + 1) {
    const Loop& loop = program.loops()[first];
    auto builder = mlir::OpBuilder::atBlockEnd(module.getBody());
    auto pointer = mlir::LLVM::LLVMPointerType::get(module.getContext());
    auto function = builder.create<mlir::func::FuncOp>(
        module.getLoc(), fmt::format("entry{}", first), builder.getFunctionType(pointer, {}));
    builder.setInsertionPointToStart(function.addEntryBlock());
    Kernel emitted(whole ? program : programs.of(loop), target, builder, memory);
    emitted.emit(function.getArgument(0), first, whole ? loops : first + 1);
    builder.create<mlir::func::ReturnOp>(module.getLoc());
    kernel.entries.push_back({.offset = static_cast<int64_t>(first),
                              .parallel = !whole && loop.order == Order::any,
                              .pass = program.pass_of(first)});
    kernel.uses_matrix_unit |= emitted.uses_matrix_unit();
    kernel.scratch_floats = std::max(kernel.scratch_floats, emitted.scratch_used());
    kernel.kept_floats = emitted.workspace().kept_floats();
    kernel.passed_floats = emitted.workspace().passed_floats();
    kernel.carried_floats = emitted.workspace().carried_floats();
  }
  for (auto& entry : kernel.entries)
    for (size_t i = 0; i < loops; ++i)
      entry.backwards |=
          program.pass_of(i) == entry.pass && program.loops()[i].order == Order::reverse;
  for (auto output : program.graph().getBody().getOps<OutputOp>())
    if (auto loop = program.loop_of(output.getValue());
        !whole && output.getScope() == Scope::head && !(loop && kernel.entries[*loop].backwards))
      throw InternalError(
          fmt::format("cpu: {} is not summed from the last chunk back", output.getName().str()));
  return kernel;
}

}  // namespace linnet::cpu
