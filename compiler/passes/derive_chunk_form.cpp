// derive-chunk-form: the mechanical rule of MATH.md a'. A read at position p of the law becomes
//   P S + sum_m M_pm X_m,   P = w exp(Gp),   M_pm[i,j] = sum_d w_id u_jd exp(Gp_id - Gm_jd),
// kept for j < i, and for j = i when write m stands before p. Writes that refer to reads become a
// unit lower triangular system, solved block by block over the writes.
#include "compiler/dialect/builder.h"
#include "compiler/passes/affine.h"
#include "compiler/passes/passes.h"
#include "mlir/IR/IRMapping.h"

namespace linnet {

using namespace chunk;
using mlir::failure;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;

namespace {

// A read or write of the law: where it stands, and its vector lifted to a tile of token rows.
struct Step {
  mlir::Operation* op;
  Value vector;
  unsigned order;   // among reads and writes
  unsigned decays;  // decays already applied in this token
};

class ChunkForm {
 public:
  ChunkForm(LawOp law, GraphOp graph, int64_t tokens)
      : law_(law), tokens_(tokens), outer_(mlir::OpBuilder::atBlockEnd(&graph.getBody().front())) {}

  LogicalResult derive() {
    for (mlir::Operation& op : law_.getBody().front())
      if (failed(collect(op))) return failure();
    make_gates();
    if (failed(resolve_writes())) return failure();
    return make_scan();
  }

 private:
  Builder at(mlir::OpBuilder& where, mlir::Operation* op) { return Builder(where, op->getLoc()); }
  Builder outer(mlir::Operation* op) { return at(outer_, op); }

  // The tile repeated over the tokens of the chunk, if it is not of token rows already.
  Value with_tokens(mlir::OpBuilder& where, mlir::Operation* op, Value tile) {
    if (has_axis(tile.getType(), Axis::token)) return tile;
    return at(where, op).broadcast(tile, {0}, with_token_axis(tile_of(tile), tokens_));
  }

  LogicalResult collect(mlir::Operation& op);
  LogicalResult collect_step(mlir::Operation& op, Value vector, std::vector<Step>& steps,
                             const char* what);
  Value lift(mlir::OpBuilder& where, mlir::Operation& op, mlir::IRMapping& map);
  bool reads_state(Value value) const { return read_dependent_.contains(value); }

  void make_gates();
  Value gate_at(const Step& step) const;
  Value gated(const Step& step, Value vector, llvm::StringRef name);
  Value score(const Step& read, Value vector, const Step& write);

  LogicalResult resolve_writes();
  LogicalResult make_scan();
  void solve(mlir::OpBuilder& body, Value state);
  Value read_value(mlir::OpBuilder& body, const Step& read, Value state);

  LawOp law_;
  int64_t tokens_;
  mlir::OpBuilder outer_;
  mlir::IRMapping lifted_;  // law value -> tile, where it does not depend on the state
  llvm::DenseSet<Value> read_dependent_;
  std::vector<Value> decays_;  // lifted gates
  std::vector<Step> reads_, writes_;
  std::vector<mlir::Operation*> outputs_;
  std::vector<mlir::Operation*> late_;  // elementwise ops that depend on reads, in order
  unsigned order_ = 0;

  std::vector<Value> gates_;  // log decay since the chunk began, by number of decays applied
  Value last_gate_;           // of the whole chunk

  // One for each write: its X, or the row of the system X + A X = base - E S that gives it.
  struct Written {
    Value base;                 // null: zero
    Value entry;                // E; null if the write reads nothing
    std::vector<Value> system;  // A against every write
    Value value;                // X
  };
  std::vector<Written> written_;
};

// Brings one op of the law to token rows: operands without a token axis are repeated over the
// tokens.
Value ChunkForm::lift(mlir::OpBuilder& where, mlir::Operation& op, mlir::IRMapping& map) {
  llvm::SmallVector<Value> operands;
  for (Value operand : op.getOperands()) operands.push_back(map.lookup(operand));
  bool has_tokens =
      llvm::any_of(operands, [](Value v) { return has_axis(v.getType(), Axis::token); });
  if (has_tokens)
    for (Value& operand : operands) operand = with_tokens(where, &op, operand);
  mlir::Operation* clone = where.clone(op);
  clone->setOperands(operands);
  if (!has_tokens) return clone->getResult(0);
  clone->getResult(0).setType(with_token_axis(tile_of(op.getResult(0)), tokens_));
  auto shift = [&](llvm::ArrayRef<int64_t> dims) {
    llvm::SmallVector<int64_t> shifted;
    for (int64_t dim : dims) shifted.push_back(dim + 1);
    return shifted;
  };
  if (auto reduce = llvm::dyn_cast<ReduceOp>(clone)) reduce.setDims(shift(reduce.getDims()));
  if (auto broadcast = llvm::dyn_cast<BroadcastOp>(clone))
    broadcast.setDims(shift(broadcast.getDims()));
  return clone->getResult(0);
}

// True if the tile is surely zero in rows past the end of the sequence.
bool is_zero_padded(Value value) {
  mlir::Operation* op = value.getDefiningOp();
  if (!op) return false;
  if (auto input = llvm::dyn_cast<InputOp>(op)) return input.getScope() == Scope::token;
  if (llvm::isa<ValidOp>(op)) return true;
  if (llvm::isa<mlir::arith::MulFOp>(op)) return llvm::any_of(op->getOperands(), is_zero_padded);
  if (llvm::isa<mlir::arith::AddFOp, mlir::arith::SubFOp, mlir::arith::NegFOp>(op))
    return llvm::all_of(op->getOperands(), is_zero_padded);
  if (auto broadcast = llvm::dyn_cast<BroadcastOp>(op))
    return has_axis(broadcast.getSource().getType(), Axis::token) &&
           is_zero_padded(broadcast.getSource());
  return false;
}

LogicalResult ChunkForm::collect_step(mlir::Operation& op, Value vector, std::vector<Step>& steps,
                                      const char* what) {
  if (reads_state(vector))
    return op.emitError("no chunk form: the ")
           << what << " depends on the state, expected inputs only";
  Value tile = with_tokens(outer_, &op, lifted_.lookup(vector));
  steps.push_back({&op, tile, order_++, static_cast<unsigned>(decays_.size())});
  return success();
}

LogicalResult ChunkForm::collect(mlir::Operation& op) {
  if (auto input = llvm::dyn_cast<InputOp>(op)) {
    mlir::Operation* clone = outer_.clone(op);
    if (input.getScope() == Scope::token)
      clone->getResult(0).setType(with_token_axis(tile_of(input), tokens_));
    lifted_.map(input.getResult(), clone->getResult(0));
    return success();
  }
  if (llvm::isa<StateOp, NextOp>(op)) return success();
  if (auto decay = llvm::dyn_cast<DecayOp>(op)) {
    if (reads_state(decay.getGate()))
      return op.emitError(
          "no chunk form: the gate of decay depends on the state, expected inputs only");
    Value gate = with_tokens(outer_, &op, lifted_.lookup(decay.getGate()));
    if (!is_zero_padded(gate)) gate = outer(&op).valid(gate, name_of(gate));
    decays_.push_back(gate);
    return success();
  }
  if (auto read = llvm::dyn_cast<ReadOp>(op)) {
    read_dependent_.insert(read.getResult());
    return collect_step(op, read.getVector(), reads_, "vector of read");
  }
  if (auto write = llvm::dyn_cast<WriteOp>(op)) {
    if (failed(collect_step(op, write.getKey(), writes_, "direction of write"))) return failure();
    Step& step = writes_.back();
    bool zero = is_zero_padded(step.vector) || (!reads_state(write.getValue()) &&
                                                is_zero_padded(lifted_.lookup(write.getValue())));
    if (!zero) step.vector = outer(&op).valid(step.vector, name_of(step.vector));
    return success();
  }
  if (llvm::isa<OutputOp>(op)) {
    outputs_.push_back(&op);
    return success();
  }
  if (llvm::any_of(op.getOperands(), [&](Value operand) { return reads_state(operand); })) {
    read_dependent_.insert(op.getResult(0));
    late_.push_back(&op);
    return success();
  }
  lifted_.map(op.getResult(0), lift(outer_, op, lifted_));
  return success();
}

// gates_[n]: the log decay from the chunk's beginning to the point of a token where n of its decays
// were applied.
void ChunkForm::make_gates() {
  if (decays_.empty()) return;
  Builder b = outer(law_);
  Value total = decays_.front();
  for (Value decay : llvm::drop_begin(decays_)) total = b.add(total, decay);
  Value before = b.cumsum(total, /*exclusive=*/true, false, "gamma_before");
  gates_.push_back(before);
  Value seen;
  for (Value decay : llvm::drop_end(decays_)) {
    seen = seen ? b.add(seen, decay) : decay;
    gates_.push_back(b.add(before, seen, "gamma_within"));
  }
  gates_.push_back(b.cumsum(total, false, false, "gamma"));
  last_gate_ = b.row(gates_.back(), tokens_ - 1, "gamma_last");
}

Value ChunkForm::gate_at(const Step& step) const {
  return gates_.empty() ? Value() : gates_[step.decays];
}

// w exp(Gp): what a row sees of the state entering the chunk.
Value ChunkForm::gated(const Step& step, Value vector, llvm::StringRef name) {
  if (gates_.empty()) return vector;
  Builder b = outer(step.op);
  return b.mul(vector, b.exp(gate_at(step), "exp_" + name_of(gate_at(step))), name);
}

Value ChunkForm::score(const Step& read, Value vector, const Step& write) {
  Builder b = outer(read.op);
  Triangle kept = write.order < read.order ? Triangle::lower : Triangle::strict_lower;
  std::string name = "A_" + name_of(vector) + name_of(write.vector);
  if (!gates_.empty() && has_axis(gates_[0].getType(), Axis::key))
    return b.decay_dot(vector, write.vector, gate_at(read), gate_at(write), kept, name);
  Value scores = b.mask(b.matmul(vector, false, write.vector, true), kept, name);
  if (gates_.empty()) return scores;
  // Under one gate the diagonal does not decay: one mask serves both triangles.
  Triangle decaying = gate_at(read) == gate_at(write) ? Triangle::lower : kept;
  return b.mul(scores, b.decay_mask(gate_at(read), gate_at(write), decaying, "decay_mask"), name);
}

// Splits every written value into base + coefficients times reads, and sets up X + A X = base - E
// S.
LogicalResult ChunkForm::resolve_writes() {
  std::vector<Affine> values;
  for (const Step& write : writes_) {
    auto split = split_affine(llvm::cast<WriteOp>(write.op).getValue(), outer_, [&](Value v) {
      return reads_state(v) ? Value() : with_tokens(outer_, write.op, lifted_.lookup(v));
    });
    if (failed(split)) return failure();
    values.push_back(std::move(*split));
    written_.push_back({values.back().base, Value(), std::vector<Value>(writes_.size()), Value()});
    if (values.back().terms.empty()) written_.back().value = values.back().base;
  }
  for (size_t i = 0; i < writes_.size(); ++i) {
    Written& row = written_[i];
    Builder b = outer(writes_[i].op);
    for (const Affine::Term& term : values[i].terms) {
      const Step& read =
          *llvm::find_if(reads_, [&](const Step& step) { return step.op == term.read; });
      Value e = scale_by(term, /*negate=*/true, read.vector, b, "e");
      Value entry = gated(read, e, name_of(e) + "_in");
      row.entry = row.entry ? b.add(row.entry, entry) : entry;
      for (size_t j = 0; j < writes_.size(); ++j) {
        Value a = score(read, e, writes_[j]);
        row.system[j] = row.system[j] ? b.add(row.system[j], a) : a;
      }
    }
    // Writes that read nothing are known: their share of the system goes to the base.
    for (size_t j = 0; j < writes_.size(); ++j) {
      if (!row.entry || !values[j].terms.empty()) continue;
      Value known = b.matmul(row.system[j], written_[j].base);
      row.base = row.base ? b.sub(row.base, known) : b.neg(known);
    }
  }
  return success();
}

// Block elimination over the solved writes; every diagonal block is unit lower triangular because a
// later write reaches an earlier one only from tokens before it.
void ChunkForm::solve(mlir::OpBuilder& body, Value state) {
  std::vector<size_t> solved;
  for (size_t i = 0; i < writes_.size(); ++i)
    if (written_[i].entry) solved.push_back(i);
  std::vector<Value> inverse(writes_.size()), rhs(writes_.size());
  for (size_t p : solved) {
    Builder inner = at(body, writes_[p].op);
    rhs[p] = inner.matmul(written_[p].entry, state);
    rhs[p] = written_[p].base ? inner.sub(written_[p].base, rhs[p]) : inner.neg(rhs[p]);
  }
  for (size_t p : solved) {
    Builder b = outer(writes_[p].op), inner = at(body, writes_[p].op);
    inverse[p] = b.inverse_unit_lower(written_[p].system[p], "Z");
    for (size_t r : solved) {
      if (r <= p) continue;
      Value factor = b.matmul(written_[r].system[p], inverse[p], "L");
      for (size_t n : solved)
        if (n > p)
          written_[r].system[n] =
              b.sub(written_[r].system[n], b.matmul(factor, written_[p].system[n]), "A");
      rhs[r] = inner.sub(rhs[r], inner.matmul(factor, rhs[p]));
    }
  }
  for (size_t p : llvm::reverse(solved)) {
    Builder inner = at(body, writes_[p].op);
    for (size_t n : solved)
      if (n > p) rhs[p] = inner.sub(rhs[p], inner.matmul(written_[p].system[n], written_[n].value));
    written_[p].value = inner.matmul(inverse[p], rhs[p], "X");
  }
}

Value ChunkForm::read_value(mlir::OpBuilder& body, const Step& read, Value state) {
  Builder b = at(body, read.op);
  Value sum = b.matmul(gated(read, read.vector, name_of(read.vector) + "_in"), state);
  for (size_t j = 0; j < writes_.size(); ++j)
    sum = b.add(sum, b.matmul(score(read, read.vector, writes_[j]), written_[j].value));
  return sum;
}

LogicalResult ChunkForm::make_scan() {
  auto state_op = *law_.getBody().getOps<StateOp>().begin();
  Builder b = outer(law_);
  Value init = b.input("initial_state", Scope::sequence, tile_of(state_op));

  auto block = std::make_unique<mlir::Block>();
  Value state = block->addArgument(init.getType(), named(state_op.getLoc(), "S"));
  auto body = at_end(law_.getContext(), block.get());
  solve(body, state);

  // Outputs: reads get their chunk form, then everything that depends on them follows as the law
  // has it.
  mlir::IRMapping map = lifted_;
  auto needed = [&](Value value) {
    bool found = false;
    for (mlir::Operation* output : outputs_)
      walk_sources(output->getOperand(0), [&](mlir::Operation* op) {
        found |= op == value.getDefiningOp();
        return true;
      });
    return found;
  };
  for (const Step& read : reads_)
    if (Value result = read.op->getResult(0); needed(result))
      map.map(result, read_value(body, read, state));
  for (mlir::Operation* op : late_)
    if (needed(op->getResult(0))) map.map(op->getResult(0), lift(body, *op, map));

  Builder inner = at(body, law_);
  Value next = state;
  if (last_gate_)
    next = inner.mul(inner.broadcast_to(b.exp(last_gate_, "decay"), tile_of(state)), state);
  for (auto [write, written] : llvm::zip(writes_, written_)) {
    Value key = write.vector;
    if (last_gate_) {
      Value gate = gate_at(write);
      Value rest = b.exp(b.sub(b.broadcast(last_gate_, {0}, tile_of(gate)), gate));
      key = b.mul(key, rest, name_of(key) + "_out");
    }
    next = inner.add(next, inner.matmul(key, true, written.value, false));
  }
  set_name(next, "S_next");

  llvm::SmallVector<Value> yielded{next};
  for (mlir::Operation* output : outputs_) yielded.push_back(map.lookup(output->getOperand(0)));
  for (auto [output, value] : llvm::zip(outputs_, llvm::drop_begin(yielded)))
    if (name_of(value).empty()) set_name(value, llvm::cast<OutputOp>(output).getName());
  body.create<YieldOp>(law_.getLoc(), yielded);
  auto scan = outer_.create<ScanOp>(law_.getLoc(), mlir::TypeRange(mlir::ValueRange(yielded)), init,
                                    false, mlir::StringAttr());
  scan.getBody().push_back(block.release());
  hoist_invariant(scan);
  for (auto [output, value] : llvm::zip(outputs_, scan.emitted()))
    b.output(llvm::cast<OutputOp>(output).getName(), value, Scope::token);
  b.output("final_state", scan.finals()[0], Scope::sequence);
  return success();
}

struct DeriveChunkForm : mlir::PassWrapper<DeriveChunkForm, mlir::OperationPass<mlir::ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DeriveChunkForm)
  explicit DeriveChunkForm(int64_t tokens) : tokens(tokens) {}
  llvm::StringRef getArgument() const override { return "derive-chunk-form"; }

  void runOnOperation() override {
    for (auto law : llvm::make_early_inc_range(getOperation().getOps<LawOp>())) {
      mlir::OpBuilder builder(law);
      auto graph = builder.create<GraphOp>(law.getLoc(), law.getSymName(),
                                           static_cast<uint64_t>(tokens), mlir::StringAttr());
      graph.getBody().emplaceBlock();
      if (failed(ChunkForm(law, graph, tokens).derive())) return signalPassFailure();
      law.erase();
    }
  }
  int64_t tokens;
};

}  // namespace

void walk_sources(Value value, llvm::function_ref<bool(mlir::Operation*)> visit) {
  llvm::DenseSet<mlir::Operation*> seen;
  llvm::SmallVector<Value> todo{value};
  while (!todo.empty()) {
    mlir::Operation* op = todo.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second || !visit(op)) continue;
    todo.append(op->operand_begin(), op->operand_end());
    op->walk([&](YieldOp yield) { todo.append(yield->operand_begin(), yield->operand_end()); });
  }
}

std::unique_ptr<mlir::Pass> derive_chunk_form(int64_t chunk_size) {
  return std::make_unique<DeriveChunkForm>(chunk_size);
}

}  // namespace linnet
