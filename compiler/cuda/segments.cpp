// Segments of a sequence: what is different for a scan of them, and the kernel that puts their maps
// together.
#include "compiler/cuda/kernel.h"
#include "linnet/error.h"

namespace linnet::cuda {

using namespace chunk;
using mlir::Value;

// Of what segments make of a state: only the ops the next state needs, and beside the value
// channels those whose scan gives A.
void KernelEmitter::set_segments() {
  const StateMap& map = *segments_.map;
  std::erase_if(body_order_,
                [&](mlir::Operation* op) { return !llvm::is_contained(map.update, op); });
  SegmentRecord& record = segments_.record;
  record.values = (value_dim_ + value_block_ - 1) / value_block_ * value_block_;
  record.rows = record.values + (map.is_diagonal ? 1 : padded(key_dim_));
  record.stride = padded(key_dim_);
}

int64_t KernelEmitter::value_blocks() const {
  int64_t channels = segments_.part == Part::maps ? segments_.record.rows : value_dim_;
  return (channels + value_block_ - 1) / value_block_;
}

std::string KernelEmitter::state_order() const {
  return caller_.state_v_first ? "StateOrder::v_first" : "StateOrder::k_first";
}

void KernelEmitter::write_find() {
  if (is_whole())
    return body_.line("const auto sequence = Sequence<{}>::find<{}>(batch, blockIdx.x, {});",
                      chunk_, value_block_, value_blocks());
  bool reverse = loop_.order == Order::reverse;
  body_.line("const auto sequence = Segment<{}{}>::find<{}>(batch, segment, blockIdx.x, {});",
             chunk_, reverse ? ", true" : "", value_block_, value_blocks());
  if (segments_.part == Part::maps)
    body_.line("if (sequence.index + 1 >= sequence.count) return;  // nothing follows the last");
  else
    body_.line("if (!sequence.is_there()) return;");
  body_.line("float* const own_segment = sequence.record(segments, {});", segments_.record.size());
}

void KernelEmitter::write_start(Value state, InputOp initial) {
  const SegmentRecord& record = segments_.record;
  std::string name = name_for(state), type = type_of(state);
  homes_[state].registers = name;
  if (segments_.part == Part::maps)
    return body_.line("{} {} = {}<{}>(sequence.first_value - {});", type, name,
                      segments_.map->is_diagonal ? "ones_in_first" : "unit_vectors", type,
                      record.values);
  std::string from = tensor(argument(initial.getName()));
  if (is_whole())
    return body_.line(
        "{0} {1} = load_state<{0}, {2}, {3}>(sequence.state({4}), sequence.first_value);", type,
        name, state_order(), value_dim_, from);
  body_.line("{0} {1} = load_entering<{0}, {2}, {3}, {4}>(sequence, {5}, own_segment, {6});", type,
             name, state_order(), value_dim_, record.stride, from, padded(value_dim_));
}

// The state before a turn. One between two segments is handed out by the first of them, to the bits
// it has where the sequence ends there.
void KernelEmitter::write_states(const std::string& state) {
  auto write = [&] {
    body_.line("store_state<{}, {}>(own_states.at(turn), {}, sequence.first_value);", state_order(),
               value_dim_, state);
  };
  if (is_whole())
    write();
  else
    body_.block("if (turn > sequence.begin || sequence.is_first())", write);
}

void KernelEmitter::write_end() {
  const SegmentRecord& record = segments_.record;
  if (segments_.part == Part::maps)
    return body_.line(
        "write_block<{0}>(own_segment + sequence.first_value * {0}, {1}, {2} - "
        "sequence.first_value);",
        record.stride, homes_[loop_.carried()[0]].registers, record.rows);
  auto store = [&](const std::string& to, Value state) {
    body_.line("store_state<{}, {}>({}, {}, sequence.first_value);", state_order(), value_dim_, to,
               homes_[state].registers);
  };
  auto store_finals = [&] {
    for (auto output : GraphOp(program_.graph()).getBody().getOps<OutputOp>())
      for (size_t i = 0; i < loop_.carried().size(); ++i)
        if (output.getValue() == loop_.scan->getOpResult(i))
          store(fmt::format("sequence.state({})", tensor(argument(output.getName()))),
                loop_.carried()[i]);
  };
  if (is_whole()) return store_finals();
  body_.block("if (sequence.is_last())", store_finals);
  if (keeps_states())
    body_.block("else", [&] { store("own_states.at(sequence.end)", loop_.carried()[0]); });
}

// The states that enter the segments of a sequence, one after another.
CudaKernel KernelEmitter::emit_merge(Writer& module) {
  constexpr int64_t kValues = 16, kWide = 128;
  const SegmentRecord& record = segments_.record;
  int64_t warps = key_dim_ > kWide ? 8 : 4,
          band = std::min(record.stride, key_dim_ > kWide ? 16l : 32l);
  bool diagonal = segments_.map->is_diagonal, reverse = loop_.order == Order::reverse;
  auto input = origin(loop_.init()[0]).getDefiningOp<InputOp>();
  const Argument& initial = argument(input.getName());
  CudaKernel kernel{kernel_name() + "_merge", CudaGrid::merge, static_cast<int>(warps * 32)};
  if (!diagonal)
    kernel.shared_bytes = static_cast<int>(
        (kValues * (record.stride + 4) + 2 * padded(band) * (record.stride + 8)) * 4);
  kernel.value_blocks = static_cast<int>(padded(value_dim_) / kValues);
  kernel.parameters = {initial.name, "segments", "segment", "batch"};
  module.comment(
      "A block for every sequence, value head and 16 value channels: what segments make of a "
      "state, one after another.");
  module.block(
      fmt::format(
          "LINNET_KERNEL({}, 1) {}(const Tensor<const {}> {}_tensor, float* segments, const i64 "
          "segment, const Batch batch)",
          kernel.threads, kernel.name, element_of(initial.storage), initial.name),
      [&] {
        module.line("using cta = Cta<{}>;", warps);
        module.line("using VxK = Tile<{}, {}, Columns<{}>>;", kValues, key_dim_, warps);
        module.line(
            "const auto sequence = Segment<{}{}>::find_first<{}>(batch, segment, blockIdx.x, {});",
            chunk_, reverse ? ", true" : "", kValues, kernel.value_blocks);
        module.line("if (sequence.count == 1) return;");
        module.line(
            "const VxK S = load_state<VxK, {}, {}>(sequence.state({}_tensor), "
            "sequence.first_value);",
            state_order(), value_dim_, initial.name);
        if (diagonal)
          module.line("merge_decayed<cta, {}, {}>(S, sequence, segments);", record.size(),
                      record.values);
        else
          module.line("merge_segments<cta, {}, {}, {}>(S, sequence, segments, shared);",
                      record.size(), record.values, band);
      });
  return kernel;
}

}  // namespace linnet::cuda
