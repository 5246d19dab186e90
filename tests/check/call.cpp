#include "tests/check/call.h"

#include <bit>
#include <cstring>
#include <deque>

#include "compiler/interpreter/tile.h"

namespace linnet::check {

namespace {

using chunk::Precision;

// Numbers in the caller's format.
struct Typed {
  Typed(int64_t count, DType type) : type(type), bytes(count * size_of(type) + 1) {}
  void* data() { return bytes.data(); }
  int64_t count() const { return (bytes.size() - 1) / size_of(type); }

  void set(int64_t index, float x) {
    std::byte* at = bytes.data() + index * size_of(type);
    if (type == DType::bf16) {
      uint16_t bits = std::bit_cast<uint32_t>(interpreter::round_to(x, Precision::bf16)) >> 16;
      std::memcpy(at, &bits, 2);
    } else if (type == DType::f16) {
      _Float16 half = static_cast<_Float16>(x);
      std::memcpy(at, &half, 2);
    } else {
      std::memcpy(at, &x, 4);
    }
  }
  float get(int64_t index) const {
    const std::byte* at = bytes.data() + index * size_of(type);
    if (type == DType::f32) {
      float x;
      std::memcpy(&x, at, 4);
      return x;
    }
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    return type == DType::f16 ? static_cast<float>(std::bit_cast<_Float16>(bits))
                              : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

  DType type;
  std::vector<std::byte> bytes;
};

// "[B, T, HV, K]" as sizes.
std::vector<int64_t> sizes_of(const std::string& shape, const Layout& layout,
                              const Problem& problem) {
  std::vector<int64_t> sizes;
  std::string word;
  for (char letter : shape + ",") {
    if (std::isalpha(letter)) word += letter;
    if ((letter != ',' && letter != ']') || word.empty()) continue;
    sizes.push_back(word == "B"    ? 1
                    : word == "T"  ? layout.tokens()
                    : word == "H"  ? layout.heads
                    : word == "HV" ? layout.value_heads
                    : word == "N"  ? static_cast<int64_t>(layout.lengths.size())
                    : word == "K"  ? problem.key_dim
                                   : problem.value_dim);
    word.clear();
  }
  return sizes;
}

Tensor tensor(Typed& typed, const std::vector<int64_t>& sizes) {
  Tensor t{.data = typed.data(), .dtype = typed.type, .rank = static_cast<int>(sizes.size())};
  int64_t stride = 1;
  for (int i = t.rank; i-- > 0; stride *= sizes[i]) t.shape[i] = sizes[i], t.strides[i] = stride;
  return t;
}

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

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

}  // namespace

Tensors call(const Op& op, const Layout& layout, const Tensors& inputs, int64_t states_every) {
  layout.check();
  const Problem& p = op.problem();
  std::deque<Typed> memory;
  std::vector<Argument> arguments;
  std::vector<std::pair<std::string, Typed*>> outputs;
  auto infos = op.arguments();
  auto is_state = [](const ArgumentInfo& info) { return info.shape.starts_with("[N, HV"); };
  for (const ArgumentInfo& info : infos) {
    if (info.name == "cu_seqlens" || info.name == "state" || info.name == "slots" ||
        info.name.starts_with("states"))
      continue;
    auto sizes = sizes_of(info.shape, layout, p);
    auto found = inputs.find(info.name);
    if (!info.is_output && found == inputs.end() && info.is_optional) continue;
    Typed& typed = memory.emplace_back(product(sizes), info.dtype);
    if (info.is_output) {
      outputs.push_back({info.name, &typed});
    } else if (found != inputs.end()) {
      std::vector<double> values = found->second;
      if (is_state(info) && p.state_v_first) values = flipped(values, p.key_dim, p.value_dim);
      if (static_cast<int64_t>(values.size()) != typed.count())
        throw UserError("call: " + info.name + " has another number of elements");
      for (size_t i = 0; i < values.size(); ++i) typed.set(i, static_cast<float>(values[i]));
    } else {
      continue;  // the op says what is missing
    }
    arguments.emplace_back(info.name, tensor(typed, sizes));
  }
  std::vector<int64_t> offsets = {0};
  int64_t states = 0;
  for (int64_t length : layout.lengths) {
    offsets.push_back(offsets.back() + length);
    if (states_every) states += (length + states_every - 1) / states_every;
  }
  arguments.emplace_back("cu_seqlens", Tensor::dense(offsets.data(), DType::i64,
                                                     {static_cast<int64_t>(offsets.size())}));
  if (states_every) {
    std::vector<int64_t> sizes = {states, layout.value_heads,
                                  p.state_v_first ? p.value_dim : p.key_dim,
                                  p.state_v_first ? p.key_dim : p.value_dim};
    Typed& typed = memory.emplace_back(product(sizes), DType::f32);
    outputs.push_back({"states", &typed});
    arguments.emplace_back("states", tensor(typed, sizes));
    arguments.emplace_back("states_every", static_cast<float>(states_every));
  }

  op.run(arguments);

  Tensors results;
  for (auto& [name, typed] : outputs) {
    std::vector<double> values;
    for (int64_t i = 0; i < typed->count(); ++i) values.push_back(typed->get(i));
    bool state = name == "states" || name.ends_with("_state");
    if (state && p.state_v_first) values = flipped(values, p.value_dim, p.key_dim);
    results[name] = std::move(values);
  }
  return results;
}

}  // namespace linnet::check
