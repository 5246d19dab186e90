// What comes into a kernel and goes out: arguments, and what other kernels keep for it in the
// workspace.
#include <numeric>

#include "compiler/cuda/kernel.h"
#include "linnet/error.h"

namespace linnet::cuda {

using namespace chunk;
using mlir::Value;

namespace {

// The widest copies rows of this many bytes allow.
int64_t copy_bytes(int64_t row_bytes) { return std::gcd<int64_t>(row_bytes, 16); }

}  // namespace

// Everything this loop reads that it does not compute.
std::vector<Value> KernelEmitter::values_read() const {
  llvm::SetVector<Value> values;
  auto note = [&](Value value) {
    value = origin(value);
    if (auto input = value.getDefiningOp<InputOp>()) {
      if (input.getScope() != Scope::sequence) values.insert(value);
      return;
    }
    auto loop = program_.loop_of(value);
    if (loop && *loop != loop_index_) values.insert(value);
  };
  bool only_maps = segments_.part == Part::maps;
  for (mlir::Operation* op : only_maps ? segments_.map->update : loop_.body)
    llvm::for_each(op->getOperands(), note);
  if (is_last_loop() && !only_maps)
    for (auto output : chunk::GraphOp(program_.graph()).getBody().getOps<OutputOp>())
      if (origin(output.getValue()).getDefiningOp<InputOp>()) note(output.getValue());
  return {values.begin(), values.end()};
}

// Numbers and vectors that are the same for every chunk.
void KernelEmitter::load_shared_arguments() {
  std::string head = is_scan_ ? "sequence.head" : "chunk.head";
  for (Value value : values_read()) {
    auto input = value.getDefiningOp<InputOp>();
    if (!input || input.getScope() == Scope::token) continue;
    const Argument& a = argument(input.getName());
    std::string own =
        a.key_heads ? fmt::format("{} / (batch.value_heads / batch.heads)", head) : head;
    if (a.scope == Scope::constant) {  // a parameter
      used_arguments_.insert(a.name);
      names_.insert(a.name);
      homes_[value].scalar = a.name;
    } else if (rank(value) == 0) {
      std::string name = name_for(value);
      body_.line("const float {} = to_f32(*{}.of_head({}));", name, tensor(a), own);
      homes_[value].scalar = name;
    } else {
      Shared to = declare_vector(value);
      statement(fmt::format("load_vector<cta, {0}>({1}, {2}.of_head({3}), 1, {0});", a.row, to.name,
                            tensor(a), own),
                {to.place});
    }
  }
}

void KernelEmitter::load_inputs() {
  for (Value value : values_read()) {
    auto input = value.getDefiningOp<InputOp>();
    if (input && input.getScope() != Scope::token) continue;
    if (!input && (is_streamed(value) || rank(value) == 0)) continue;
    if (is_tight_ && rank(value) == 2 && memory_.most_used() > kMostSharedBytes / 2) continue;
    input ? load_token_input(input) : load_stored(value);
  }
}

// Numbers of the chunk's record, one for every thread.
void KernelEmitter::load_scalars() {
  for (Value value : values_read()) {
    if (value.getDefiningOp<InputOp>() || rank(value) != 0) continue;
    std::string name = name_for(value);
    body_.line("const float {} = *{};", name, record(value));
    homes_[value].scalar = name;
  }
}

std::string KernelEmitter::rows_of(const Argument& a) {
  bool by_key = a.key_heads && !a.is_output;
  return fmt::format("chunk.at({}, {})", tensor(a), by_key ? "chunk.key_head" : "chunk.head");
}

void KernelEmitter::load_token_input(InputOp input) {
  const Argument& a = argument(input.getName());
  Value value = input;
  if (is_step_) return load_row(input, a);
  if (rank(value) == 1) {
    Shared to = declare_vector(value);
    return statement(fmt::format("load_vector<cta, {}>({}, {}, {}.row_step, chunk.rows);", chunk_,
                                 to.name, rows_of(a), tensor(a)),
                     {to.place});
  }
  std::string element = element_of(a.storage);
  Shared to = declare_tile(value, element, false, name_for(value));
  bool sliced = is_scan_ && has_axis(value.getType(), Axis::value);
  statement(
      fmt::format("load_rows<cta, {}>({}, {}{}, {}, chunk.rows, {});",
                  copy_bytes(a.row * bytes_of(element)), to.name, unseen(rows_of(a)),
                  sliced ? " + sequence.first_value" : "", unseen(tensor(a) + ".row_step"),
                  sliced ? fmt::format("{} - sequence.first_value", a.row) : std::to_string(a.row)),
      {to.place});
}

// All of a token: as it lies in memory.
void KernelEmitter::load_row(InputOp input, const Argument& a) {
  std::string element = element_of(a.storage);
  Shared to = declare_vector(input, element);
  bool sliced = has_axis(input.getType(), Axis::value);
  statement(fmt::format(
                "load_row<cta, {}, {}>({}, {}{}, {});", copy_bytes(a.row * bytes_of(element)),
                padded(length(input)), to.name, rows_of(a), sliced ? " + sequence.first_value" : "",
                sliced ? fmt::format("{} - sequence.first_value", a.row) : std::to_string(a.row)),
            {to.place});
}

// Addresses of tiles that are loaded several times do not wait in registers in between.
std::string KernelEmitter::unseen(const std::string& text) const {
  return is_tight_ ? fmt::format("anew({})", text) : text;
}

std::string KernelEmitter::record(Value value) {
  const Stored& stored = workspace_.at(value);
  return fmt::format("in_record<{}>(record, {})", stored.element, stored.offset);
}

void KernelEmitter::load_stored(Value value) {
  const Stored& stored = workspace_.at(value);
  if (rank(value) == 1) {
    Shared to = declare_vector(value);
    statement(fmt::format("load_vector<cta, {0}>({1}, {2}, 1, {0});", tile_of(value).getDimSize(0),
                          to.name, record(value)),
              {to.place});
  } else {
    load_stored_tile(value, stored);
  }
}

// In a scan, of a tile with value channels only this block's.
void KernelEmitter::load_stored_tile(Value value, const Stored& stored) {
  Shared to = declare_tile(value, stored.element, stored.flipped, name_for(value));
  bool sliced = is_scan_ && has_axis(value.getType(), Axis::value);
  if (!sliced)
    return statement(fmt::format("load_block<cta, {}>({}, {}, {});", stored.stride, to.name,
                                 unseen(record(value)), stored.rows),
                     {to.place});
  std::string first = "sequence.first_value";
  if (stored.flipped)
    statement(fmt::format("load_rows<cta, 16>({0}, {1} + {2} * {3}, {3}, {4} - {2}, {3});", to.name,
                          record(value), first, stored.stride, stored.rows),
              {to.place});
  else
    statement(fmt::format("load_rows<cta, 16>({0}, {1} + {2}, {3}, {4}, {3} - {2});", to.name,
                          record(value), first, stored.stride, stored.rows),
              {to.place});
}

// A wide state in two bytes takes a quarter of all registers: too many to wait in since a product
// needed them so.
std::string KernelEmitter::packed_anew(Value state, const std::string& text) {
  if (!has_axis(state.getType(), Axis::key) || key_dim_ <= kWide) return text;
  body_.comment("(gridDim.z is 1: not what the product was given, as far as compilers know)");
  return fmt::format("keep_rows({}, {} * gridDim.z)", text, value_block_);
}

void KernelEmitter::store_results(Value value) {
  if (program_.placement(value) == Placement::workspace) store_to_workspace(value);
  for (auto output : chunk::GraphOp(program_.graph()).getBody().getOps<OutputOp>())
    if (output.getScope() != Scope::sequence && origin(output.getValue()) == value)
      store_output(output, value);
}

void KernelEmitter::store_to_workspace(Value value) {
  const Stored& stored = workspace_.at(value);
  if (rank(value) == 0) {
    std::string text = number(value);
    return statement(fmt::format("if (threadIdx.x == 0) *{} = {};", record(value), text));
  }
  if (rank(value) == 1) {
    std::string from = vector(value);
    return statement(fmt::format("store_vector<cta>({}, 1, {}, {});", record(value), from,
                                 tile_of(value).getDimSize(0)));
  }
  if (stored.flipped) {  // as it is in registers
    std::string from = tile(value);
    if (stored.element != "float") from = packed_anew(value, from);
    return statement(
        fmt::format("write_block<{0}>({1} + sequence.first_value * {0}, {2}, {3} - "
                    "sequence.first_value);",
                    stored.stride, record(value), from, stored.rows));
  }
  std::string from = view(value, stored.element);
  statement(fmt::format("store_block<cta, {}>({}, {});", stored.stride, record(value), from));
}

void KernelEmitter::store_output(OutputOp output, Value value) {
  const Argument& a = argument(output.getName());
  if (a.scope == Scope::head) return store_head_output(a, value);
  if (is_step_) {
    if (!in_registers_flipped(value)) throw InternalError("cuda: a token leaves a step");
    std::string from = tile(value);
    return statement(
        fmt::format("store_column({} + sequence.first_value, {}, {} - sequence.first_value);",
                    rows_of(a), from, a.row));
  }
  std::string element = a.is_summed() ? "float" : element_of(a.storage);
  if (rank(value) == 1) {
    std::string from = vector(value);
    return statement(fmt::format("store_vector<cta>({}, {}.row_step, {}, chunk.rows);", rows_of(a),
                                 tensor(a), from));
  }
  bool sliced = is_scan_ && has_axis(value.getType(), Axis::value);
  std::string from = view(value, element);
  if (a.is_direct())
    return statement(
        fmt::format("store_share<cta>({}_tensor, {}, batch, chunk, {});", a.name, tensor(a), from));
  statement(fmt::format(
      "store_rows<cta, {}>({}{}, {}.row_step, {}, chunk.rows, {});",
      copy_bytes(a.row * bytes_of(element)), rows_of(a), sliced ? " + sequence.first_value" : "",
      tensor(a), from,
      sliced ? fmt::format("{} - sequence.first_value", a.row) : std::to_string(a.row)));
}

// One share for every chunk; they are added up by the gathering kernel.
void KernelEmitter::store_head_output(const Argument& a, Value value) {
  if (is_scan_) throw InternalError("cuda: a scan makes a result of a head");
  std::string at = fmt::format("{}.data + chunk.slot * {}", tensor(a), a.row);
  if (rank(value) == 0) {
    std::string text = number(value);
    return statement(fmt::format("if (threadIdx.x == 0) *({}) = {};", at, text));
  }
  std::string from = vector(value);
  statement(fmt::format("store_vector<cta>({}, 1, {}, {});", at, from, a.row));
}

void KernelEmitter::zero_head_outputs() {
  for (auto output : chunk::GraphOp(program_.graph()).getBody().getOps<OutputOp>()) {
    if (output.getScope() != Scope::head) continue;
    auto loop = program_.loop_of(output.getValue());
    if ((loop ? *loop : program_.loops().size() - 1) != loop_index_) continue;
    const Argument& a = argument(output.getName());
    body_.line("zero_slot<cta>({}.data + chunk.slot * {}, {});", tensor(a), a.row, a.row);
  }
}

}  // namespace linnet::cuda
