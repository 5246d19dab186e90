#include "tests/check/call.h"

#include <bit>
#include <cstring>
#include <deque>

#include "compiler/interpreter/tile.h"

namespace linnet::check {

namespace {

using chunk::Precision;

// Numbers in the caller's format, with gaps between rows (or what more axes make) and guards around
// all.
class Typed {
 public:
  Typed(const std::string& name, const std::vector<int64_t>& sizes, DType type, int64_t gap,
        int dense_axes)
      : name_(name) {
    tensor_ = {.dtype = type, .rank = static_cast<int>(sizes.size())};
    int64_t stride = 1;
    auto gap_at = [&](int i) { return tensor_.rank - i < dense_axes ? 0 : gap; };
    for (int i = tensor_.rank; i-- > 0; stride = stride * sizes[i] + gap_at(i)) {
      tensor_.shape[i] = sizes[i];
      tensor_.strides[i] = stride;
      count_ *= sizes[i];
    }
    bytes_.assign(2 * kGuard + stride * size_of(type), kFill);
    tensor_.data = bytes_.data() + kGuard;
  }
  const Tensor& tensor() const { return tensor_; }
  int64_t count() const { return count_; }
  const std::string& name() const { return name_; }

  void set(int64_t index, float x) {
    std::byte* at = address(index);
    if (tensor_.dtype == DType::bf16) {
      uint16_t bits = std::bit_cast<uint32_t>(interpreter::round_to(x, Precision::bf16)) >> 16;
      std::memcpy(at, &bits, 2);
    } else if (tensor_.dtype == DType::f16) {
      _Float16 half = static_cast<_Float16>(x);
      std::memcpy(at, &half, 2);
    } else {
      std::memcpy(at, &x, 4);
    }
  }
  float get(int64_t index) const {
    const std::byte* at = address(index);
    if (tensor_.dtype == DType::f32) {
      float x;
      std::memcpy(&x, at, 4);
      return x;
    }
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    return tensor_.dtype == DType::f16 ? static_cast<float>(std::bit_cast<_Float16>(bits))
                                       : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

  // Inputs keep every byte; of outputs what is not an element stays as it was.
  // The whole of it, guards included, for a device with memory of its own; and where in it the
  // tensor begins.
  std::vector<std::byte>& bytes() { return bytes_; }
  static constexpr size_t kGuard = 256;  // bytes

  void remember() { before_ = bytes_; }
  void check(bool is_output) {
    if (is_output)
      for (int64_t i = 0; i < count_; ++i)
        std::memcpy(before_.data() + (address(i) - bytes_.data()), address(i),
                    size_of(tensor_.dtype));
    if (before_ != bytes_)
      throw InternalError(name_ + (is_output ? ": written outside of its elements" : ": written"));
  }

 private:
  static constexpr std::byte kFill{0x7b};

  std::byte* address(int64_t index) {
    int64_t at = 0;
    for (int i = tensor_.rank; i-- > 0; index /= tensor_.shape[i])
      at += index % tensor_.shape[i] * tensor_.strides[i];
    return bytes_.data() + kGuard + at * size_of(tensor_.dtype);
  }
  const std::byte* address(int64_t index) const { return const_cast<Typed*>(this)->address(index); }

  std::string name_;
  Tensor tensor_;
  int64_t count_ = 1;
  std::vector<std::byte> bytes_, before_;
};

// [rows, K, V] <-> [rows, V, K]
std::vector<double> flipped(const std::vector<double>& x, int64_t rows, int64_t columns) {
  std::vector<double> y(x.size());
  int64_t tile = rows * columns;
  for (size_t i = 0; i < x.size(); ++i) {
    int64_t in = i % tile;
    y[i - in + in % columns * rows + in / columns] = x[i];
  }
  return y;
}

// One call: the arguments' memory, and what comes of it.
class Call {
 public:
  Call(const Op& op, const Layout& layout, const Tensors& inputs, const CallOptions& options)
      : op_(op),
        problem_(op.problem()),
        layout_(layout),
        inputs_(inputs),
        options_(options),
        on_gpu_(op.device().name() != "cpu") {
    layout.check();
    for (int64_t length : layout.lengths) {
      offsets_.push_back(offsets_.back() + length);
      if (options.states_every)
        states_ += (length + options.states_every - 1) / options.states_every;
    }
    for (const ArgumentInfo& info : op.arguments()) add(info);
    add_offsets();
  }

  Tensors run() {
    for (Typed& typed : memory_) typed.remember();
    on_gpu_ ? run_remotely() : op_.run(arguments_);
    Tensors results;
    for (Typed& typed : memory_) {
      bool is_output = outputs_.contains(typed.name());
      typed.check(is_output);
      if (is_output) results[typed.name() == "state" ? "final_state" : typed.name()] = read(typed);
    }
    return results;
  }

 private:
  // On a device with memory of its own: everything there, the call, everything back.
  void run_remotely() {
    Device device = op_.device();
    std::deque<Buffer> buffers;
    auto send = [&](const void* from, size_t bytes) {
      buffers.push_back(device.allocate(bytes));
      device.write(buffers.back().data(), from, bytes);
      return static_cast<char*>(buffers.back().data());
    };
    for (Argument& argument : arguments_) {
      if (argument.is_number) continue;
      auto typed = std::find_if(memory_.begin(), memory_.end(),
                                [&](const Typed& t) { return t.name() == argument.name; });
      if (typed == memory_.end())
        argument.tensor.data =
            send(argument.tensor.data, offsets_.size() * size_of(argument.tensor.dtype));
      else
        argument.tensor.data = send(typed->bytes().data(), typed->bytes().size()) + Typed::kGuard;
    }
    op_.run(arguments_);
    device.synchronise();
    size_t at = 0;
    for (const Argument& argument : arguments_) {
      if (argument.is_number) continue;
      for (Typed& typed : memory_)
        if (typed.name() == argument.name)
          device.read(typed.bytes().data(), buffers[at].data(), typed.bytes().size());
      ++at;
    }
  }

  // "[B, T, HV, K]" as sizes.
  std::vector<int64_t> sizes_of(const std::string& shape) const {
    auto count = static_cast<int64_t>(layout_.lengths.size());
    bool batch = options_.batch && count > 0;
    std::map<std::string, int64_t> known = {{"B", batch ? count : 1},
                                            {"T", batch ? layout_.lengths[0] : layout_.tokens()},
                                            {"H", layout_.heads},
                                            {"HV", layout_.value_heads},
                                            {"N", count},
                                            {"S", states_},
                                            {"K", problem_.key_dim},
                                            {"V", problem_.value_dim}};
    std::vector<int64_t> sizes;
    std::string word;
    for (char letter : shape) {
      if (std::isalpha(letter)) word += letter;
      if ((letter != ',' && letter != ']') || word.empty()) continue;
      sizes.push_back(known.at(word));
      word.clear();
    }
    return sizes;
  }

  bool is_wanted(const ArgumentInfo& info) const {
    const std::string& name = info.name;
    if (name == "cu_seqlens" || name == "slots" || options_.left_out.contains(name)) return false;
    if (name == "states" || name == "states_every") return options_.states_every > 0;
    if (name == "state") return options_.state_pool;
    if (options_.state_pool && name.ends_with("_state")) return false;
    return info.is_output || inputs_.contains(name);
  }

  void add(const ArgumentInfo& info) {
    if (!is_wanted(info)) return;
    if (info.name == "states_every") {
      arguments_.emplace_back("states_every", static_cast<float>(options_.states_every));
      return;
    }
    // A GPU copies 16 bytes at a time, and a state as one matrix.
    int64_t gap = on_gpu_ ? (options_.gap + 7) / 8 * 8 : options_.gap;
    int dense_axes = on_gpu_ && is_state(info.name) ? 2 : 1;
    Typed& typed =
        memory_.emplace_back(info.name, sizes_of(info.shape), info.dtype, gap, dense_axes);
    arguments_.emplace_back(typed.name(), typed.tensor());
    if (info.is_output) outputs_.insert(info.name);
    auto found = inputs_.find(info.name == "state" ? "initial_state" : info.name);
    if (info.is_output && info.name != "state") return;
    if (found == inputs_.end()) {  // a pool that starts from zero
      for (int64_t i = 0; i < typed.count(); ++i) typed.set(i, 0);
      return;
    }
    std::vector<double> values = found->second;
    if (is_state(info.name) && problem_.state_v_first)
      values = flipped(values, problem_.key_dim, problem_.value_dim);
    if (static_cast<int64_t>(values.size()) != typed.count())
      throw UserError("call: " + info.name + " has another number of elements");
    for (size_t i = 0; i < values.size(); ++i) typed.set(i, static_cast<float>(values[i]));
  }

  void add_offsets() {
    if (options_.batch) {
      for (int64_t length : layout_.lengths)
        if (length != layout_.lengths[0]) throw UserError("call: a batch has one length");
      return;
    }
    narrow_offsets_.assign(offsets_.begin(), offsets_.end());
    auto count = static_cast<int64_t>(offsets_.size());
    arguments_.emplace_back("cu_seqlens",
                            options_.int32_offsets
                                ? Tensor::dense(narrow_offsets_.data(), DType::i32, {count})
                                : Tensor::dense(offsets_.data(), DType::i64, {count}));
  }

  static bool is_state(const std::string& name) {
    return name == "state" || name == "states" || name.ends_with("_state");
  }

  std::vector<double> read(const Typed& typed) const {
    std::vector<double> values;
    for (int64_t i = 0; i < typed.count(); ++i) values.push_back(typed.get(i));
    bool flip = is_state(typed.name()) && problem_.state_v_first;
    return flip ? flipped(values, problem_.value_dim, problem_.key_dim) : values;
  }

  const Op& op_;
  const Problem& problem_;
  const Layout& layout_;
  const Tensors& inputs_;
  const CallOptions& options_;
  const bool on_gpu_;
  std::vector<int64_t> offsets_ = {0};
  std::vector<int32_t> narrow_offsets_;
  int64_t states_ = 0;
  std::deque<Typed> memory_;
  std::set<std::string> outputs_;
  std::vector<Argument> arguments_;
};

}  // namespace

Tensors call(const Op& op, const Layout& layout, const Tensors& inputs,
             const CallOptions& options) {
  return Call(op, layout, inputs, options).run();
}

}  // namespace linnet::check
