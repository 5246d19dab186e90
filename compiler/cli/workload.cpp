#include "compiler/cli/workload.h"

#include <bit>
#include <cstring>

namespace linnet::cli {

namespace {

// Small numbers that neither grow nor vanish: decays a little below one, strengths between 0 and 1,
// and keys short enough that no recurrence grows.
float number(const std::string& name, int64_t i) {
  float x = static_cast<float>((i * 2654435761u) % 1000) / 1000;
  return name == "g" ? -0.3f * x : name.starts_with("beta") ? x : 0.2f * (x - 0.5f);
}

void fill(const ArgumentInfo& info, void* memory, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float x = number(info.name, i);
    if (info.dtype == DType::f32) {
      static_cast<float*>(memory)[i] = x;
    } else if (info.dtype == DType::bf16) {
      static_cast<uint16_t*>(memory)[i] = std::bit_cast<uint32_t>(x) >> 16;
    } else {
      _Float16 half = static_cast<_Float16>(x);
      std::memcpy(static_cast<uint16_t*>(memory) + i, &half, 2);
    }
  }
}

}  // namespace

Workload::Workload(const Device& device, const Op& op, const Shape& shape)
    : op_(op), workspace_(device.allocate(0)) {
  const Problem& p = op.problem();
  bool decode = op.direction() == Direction::decode;
  auto infos = op.arguments();
  names_.reserve(infos.size());  // arguments point at them
  for (const ArgumentInfo& info : infos) {
    if (info.name == "cu_seqlens" || info.name == "slots" || info.name.starts_with("states") ||
        info.name == "scale")
      continue;
    bool state = info.shape.starts_with("[N, HV");
    if (decode ? state && info.name != "state" : state) continue;
    Tensor tensor{.dtype = info.dtype};
    std::string word;
    for (char letter : info.shape) {
      if (std::isalpha(letter)) word += letter;
      if ((letter != ',' && letter != ']') || word.empty()) continue;
      tensor.shape[tensor.rank++] = word == "B" || word == "N" ? shape.batch
                                    : word == "T"              ? shape.tokens
                                    : word == "H"              ? shape.heads
                                    : word == "HV"             ? shape.value_heads
                                    : word == "K"              ? p.key_dim
                                                               : p.value_dim;
      word.clear();
    }
    int64_t count = 1;
    for (int i = tensor.rank; i-- > 0; count *= tensor.shape[i]) tensor.strides[i] = count;
    memory_.push_back(device.allocate(count * size_of(info.dtype)));
    tensor.data = memory_.back().data();
    std::vector<char> numbers(static_cast<size_t>(count) * size_of(info.dtype));
    fill(info, numbers.data(), count);
    device.write(tensor.data, numbers.data(), numbers.size());
    bytes_ += static_cast<double>(count * size_of(info.dtype)) * (state ? 2 : 1);
    names_.push_back(info.name);
    arguments_.emplace_back(names_.back(), tensor);
  }
  workspace_ = device.allocate(op.workspace_bytes(arguments_));
}

}  // namespace linnet::cli
