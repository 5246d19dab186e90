// Ops that are written as one: scores and their adjoints that share exponentials, sums over states
// that would otherwise be read from memory once for each, and f32 products that split one state.
#include "compiler/cuda/kernel.h"
#include "linnet/error.h"

namespace linnet::cuda {

using namespace chunk;
using mlir::Value;

// One pairwise block: no products, and no scratch for them.
bool KernelEmitter::is_pairwise(BoundAttr bound) const {
  bool pairwise = !bound || bound.getForm() == Form::pairwise;
  return pairwise && chunk_ <= 16;
}

// Sums over the value channels of states: the states go by in bands.
bool KernelEmitter::sums_bands(mlir::Operation* op) const {
  if (auto matmul = llvm::dyn_cast<MatmulOp>(op))
    return is_streamed(origin(matmul.getRhs())) && matmul.getTransposeRhs();
  auto reduce = llvm::dyn_cast<ReduceOp>(op);
  if (!reduce || !is_streamed(origin(reduce.getSource()))) return false;
  return rank(reduce) == 0 || reduce.getDims()[0] == 1;
}

// A product that takes all of a state a scan carries, in two parts of each number.
bool KernelEmitter::splits_state(mlir::Operation* op) const {
  auto matmul = llvm::dyn_cast<MatmulOp>(op);
  return matmul && is_scan_ && !is_step_ && element_of(or_f32(matmul.getPrecision())) == "float" &&
         llvm::is_contained(loop_.carried(), origin(matmul.getRhs())) &&
         !has_axis(matmul.getType(), Axis::key);
}

// Whether two ops have in common what is dear about them.
bool KernelEmitter::are_kin(mlir::Operation* a, mlir::Operation* b) const {
  auto same_decay = [&](auto x, auto y) {
    return is_pairwise(x.getBoundAttr()) && is_pairwise(y.getBoundAttr()) &&
           origin(x.getRows()) == origin(y.getRows()) &&
           origin(x.getColumns()) == origin(y.getColumns()) &&
           or_f32(x.getPrecision()) == or_f32(y.getPrecision());
  };
  if (auto x = llvm::dyn_cast<DecayDotOp>(a))
    if (auto y = llvm::dyn_cast<DecayDotOp>(b)) return same_decay(x, y);
  if (auto x = llvm::dyn_cast<DecayApplyOp>(a))
    if (auto y = llvm::dyn_cast<DecayApplyOp>(b)) return same_decay(x, y);
  if (splits_state(a) && splits_state(b))
    return origin(llvm::cast<MatmulOp>(a).getRhs()) == origin(llvm::cast<MatmulOp>(b).getRhs()) &&
           or_f32(llvm::cast<MatmulOp>(a).getPrecision()) ==
               or_f32(llvm::cast<MatmulOp>(b).getPrecision());
  return !is_scan_ && sums_bands(a) && sums_bands(b);
}

// Puts ops next to the first of their kin, behind what they need themselves, unless that needs one
// of the others.
void KernelEmitter::bring_together() {
  std::vector<mlir::Operation*>& order = body_order_;
  for (size_t first = 0; first < order.size(); ++first) {
    mlir::Operation* leader = order[first];
    if (leaders_.contains(leader)) continue;
    std::vector<mlir::Operation*> group{leader};
    for (size_t i = first + 1; i < order.size(); ++i) {
      if (leaders_.contains(order[i]) || !are_kin(leader, order[i])) continue;
      llvm::DenseSet<mlir::Operation*> needed{order[i]};
      for (size_t j = i + 1; j-- > first;)
        if (needed.contains(order[j]))
          for (Value operand : order[j]->getOperands())
            if (mlir::Operation* source = origin(operand).getDefiningOp()) needed.insert(source);
      auto is_needed = [&](mlir::Operation* op) { return needed.contains(op); };
      if (llvm::any_of(group, is_needed)) continue;
      auto moved = std::stable_partition(order.begin() + first, order.begin() + i, is_needed);
      first = moved - order.begin();
      auto behind = moved + group.size();
      std::rotate(behind, order.begin() + i, order.begin() + i + 1);
      group.push_back(*behind);
    }
    for (mlir::Operation* op : group) leaders_[op] = leader;
    groups_[leader] = group;
  }
}

bool KernelEmitter::is_written_with_another(mlir::Operation* op) const {
  auto found = leaders_.find(op);
  return found != leaders_.end() && found->second != op;
}

std::vector<mlir::Operation*> KernelEmitter::group_of(mlir::Operation* op) const {
  auto found = groups_.find(op);
  return found == groups_.end() ? std::vector{op} : found->second;
}

void KernelEmitter::write_products(const std::vector<mlir::Operation*>& group) {
  std::string state, list, names, type = type_of(group[0]->getResult(0));
  std::string precision = precision_of(llvm::cast<MatmulOp>(group[0]));
  for (mlir::Operation* op : group) {
    auto matmul = llvm::cast<MatmulOp>(op);
    auto [a, b] = operands(matmul);
    std::string name = name_for(matmul);
    homes_[matmul].registers = name;
    names += (names.empty() ? "" : ", ") + name;
    list += fmt::format(", into<{}>({}, {})", precision, name, b);
    state = a;
  }
  body_.line("{} {};", type, names);
  statement(fmt::format("products_of<{}>({}{});", precision, state, list));
}

void KernelEmitter::write_decay_dots(const std::vector<mlir::Operation*>& group) {
  auto leader = llvm::cast<DecayDotOp>(group[0]);
  std::string rows = view(leader.getRows(), "float"), columns = view(leader.getColumns(), "float");
  std::vector<std::array<std::string, 2>> factors;
  for (mlir::Operation* op : group) {
    auto dot = llvm::cast<DecayDotOp>(op);
    std::string a = view(dot.getLhs(), "");
    factors.push_back({a, view(dot.getRhs(), "")});
  }
  std::vector<Range> reads = reads_, writes;
  std::string list;
  for (auto [op, factor] : llvm::zip(group, factors)) {
    auto dot = llvm::cast<DecayDotOp>(op);
    Shared to = declare_tile(dot, "float", false, name_for(dot));
    writes.push_back(to.place);
    list += fmt::format(", score<{}>({}, {}, {})", text_of(dot.getTriangle()), to.name, factor[0],
                        factor[1]);
    body_.comment(fmt::format("{0}_ij = sum_d {1}_id {2}_jd exp({3}_id - {4}_jd), i {5} j", to.name,
                              factor[0], factor[1], rows, columns,
                              dot.getTriangle() == Triangle::lower ? ">=" : ">"));
  }
  reads_ = reads;
  statement(fmt::format("decay_dots<cta, {}>({}, {}{});", text_of(or_f32(leader.getPrecision())),
                        rows, columns, list),
            writes);
}

void KernelEmitter::write_decay_applies(const std::vector<mlir::Operation*>& group) {
  auto leader = llvm::cast<DecayApplyOp>(group[0]);
  std::string rows = view(leader.getRows(), "float"), columns = view(leader.getColumns(), "float");
  std::string list, names, type = type_of(leader);
  std::vector<std::string> comments;
  for (mlir::Operation* op : group) {
    auto apply = llvm::cast<DecayApplyOp>(op);
    bool by_rows = apply.getSide() == Side::rows;
    std::string matrix = view(apply.getMatrix(), "float"), vectors = view(apply.getVectors(), "");
    std::string name = name_for(apply);
    homes_[apply].registers = name;
    names += (names.empty() ? "" : ", ") + name;
    list += fmt::format(", {}<{}>({}, {}, {})", by_rows ? "onto_rows" : "onto_columns",
                        text_of(apply.getTriangle()), name, matrix, vectors);
    comments.push_back(fmt::format("{0}_{5} = sum_{6} {1}_ij {2}_{6} exp({3}_i - {4}_j)", name,
                                   matrix, vectors, rows, columns, by_rows ? "i" : "j",
                                   by_rows ? "j" : "i"));
  }
  body_.line("{} {};", type, names);
  for (const std::string& comment : comments) body_.comment(comment);
  statement(fmt::format("decay_applies<{}>({}, {}{});",
                        text_of(at_least_tf32(or_f32(leader.getPrecision()))), rows, columns,
                        list));
}

// The states an expression reads.
void KernelEmitter::collect_states(Value value, llvm::SetVector<Value>& states) const {
  value = origin(value);
  if (!is_streamed(value)) return;
  if (program_.placement(value) == Placement::workspace) {
    states.insert(value);
    return;
  }
  for (Value operand : value.getDefiningOp()->getOperands()) collect_states(operand, states);
}

// What is left to sum of a tile of bands.
void KernelEmitter::sum_bands(ReduceOp op, const std::string& bands) {
  if (rank(op) == 1) {
    Shared to = declare_vector(op);
    return statement(fmt::format("column_sums({}, {});", to.name, bands), {to.place});
  }
  Shared partial = scratch("partial", "float*", warps_ * 4);
  std::string name = name_for(op);
  statement(fmt::format("const float {} = total({}, {});", name, bands, partial.name),
            {partial.place});
  homes_[op].scalar = name;
  memory_.release(partial.place);
}

// States lie in the workspace with their value channels first: some of them at a time go through
// shared memory, and everything that sums over them takes its part.
void KernelEmitter::write_sums_over_bands(const std::vector<mlir::Operation*>& group) {
  llvm::SetVector<Value> states;
  for (mlir::Operation* op : group)
    collect_states(op->getOperand(llvm::isa<MatmulOp>(op) ? 1 : 0), states);
  int64_t key = padded(key_dim_), value = padded(value_dim_), rows = 32;
  for (Value state : states) rows = std::min(rows, band_of(key, workspace_.at(state).element));
  // First operands lie in shared memory before the bands go by.
  std::vector<std::string> steps, results;
  for (mlir::Operation* op : group)
    if (auto matmul = llvm::dyn_cast<MatmulOp>(op))
      view(matmul.getLhs(), element_of(or_f32(matmul.getPrecision())), matmul.getTransposeLhs());
  std::vector<Shared> bands;
  for (Value state : states) {
    const std::string& element = workspace_.at(state).element;
    bands.push_back(scratch((name_of(state).empty() ? "state" : name_of(state)) + "_band",
                            fmt::format("SharedTile<{}, {}, {}>", element, rows, key_dim_),
                            rows * (key + 8) * bytes_of(element)));
    bands_[state] = bands.back().name;
    reads_.push_back(bands.back().place);
  }
  // Some rows of a band, under a name of their own.
  std::map<std::pair<std::string, int64_t>, std::string> views;
  auto view_of = [&](Value state, const Shared& band, int64_t first) {
    std::string& name = views[{band.name, first}];
    if (rows == kBandRows) name = band.name;
    if (!name.empty()) return name;
    const std::string& element = workspace_.at(state).element;
    name = fresh(band.name);
    body_.line("const SharedTile<{}, {}, {}> {}(shared + {});", element, kBandRows, key_dim_, name,
               band.place.begin + first * (key + 8) * bytes_of(element));
    return name;
  };
  for (mlir::Operation* op : group) {
    auto matmul = llvm::dyn_cast<MatmulOp>(op);
    Value summed = matmul ? Value(matmul) : origin(op->getOperand(0));
    std::string type = type_of(summed);
    std::string name =
        matmul ? name_for(matmul)
               : fresh((name_of(summed).empty() ? name_of(op->getResult(0)) : name_of(summed)) +
                       "_bands");
    body_.line("{0} {1} = constant<{0}>(0.f);", type, name);
    results.push_back(name);
    if (matmul) {
      Precision precision = or_f32(matmul.getPrecision());
      std::string first = view(matmul.getLhs(), element_of(precision), matmul.getTransposeLhs());
      steps.push_back(fmt::format("add_band<{}>({}, {}, {}, row);", text_of(precision), name, first,
                                  bands_[origin(matmul.getRhs())]));
      continue;
    }
    // Sums of 16 rows take fewer registers than those of a whole band.
    for (int64_t first = 0; first < rows; first += kBandRows) {
      for (auto [state, band] : llvm::zip(states, bands))
        bands_[state] = view_of(state, band, first);
      steps.push_back(fmt::format("{0} = {0} + {1};", name, tile(summed)));
    }
    for (auto [state, band] : llvm::zip(states, bands)) bands_[state] = band.name;
  }
  // ptxas unrolls a loop of known length for some GPUs, whatever it is told, and then has no room
  // for the addresses of all turns.
  body_.comment("(gridDim.z is 1: a length that the compilers do not know is not unrolled)");
  body_.block(fmt::format("for (int row = 0; row < {} * gridDim.z; row += {})", value, rows), [&] {
    body_.line("__syncthreads();");
    for (auto [state, band] : llvm::zip(states, bands))
      body_.line("load_block<cta, {0}>({1}, {2} + row * {0}, {3} - row);",
                 workspace_.at(state).stride, band.name, unseen(record(state)), value);
    body_.line("commit_copies();");
    body_.line("wait_for_copies();");
    body_.line("__syncthreads();");
    for (const std::string& step : steps) body_.line("{}", step);
  });
  memory_.waited();
  memory_.access(reads_, {});
  reads_.clear();
  for (const Shared& band : bands) memory_.release(band.place);
  for (auto [op, name] : llvm::zip(group, results)) {
    if (llvm::isa<MatmulOp>(op)) {
      homes_[op->getResult(0)].registers = name;
      continue;
    }
    sum_bands(llvm::cast<ReduceOp>(op), name);
  }
  bands_.clear();
}

}  // namespace linnet::cuda
