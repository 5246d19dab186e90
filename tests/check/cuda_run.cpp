#include "tests/check/cuda_run.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "compiler/interpreter/tile.h"
#include "linnet/error.h"
#include "runtime/cuda/nvrtc.h"
#include "templates/embedded.h"

namespace linnet::check {

using chunk::Precision;
using chunk::Scope;
using cuda::Argument;

namespace {

int64_t bytes_of(Precision storage) {
  return storage == Precision::bf16 || storage == Precision::f16 ? 2 : 4;
}

void put(std::vector<std::byte>& data, int64_t index, float x, Precision storage) {
  x = interpreter::round_to(x, storage);
  std::byte* at = data.data() + index * bytes_of(storage);
  if (storage == Precision::bf16) {
    uint16_t bits = std::bit_cast<uint32_t>(x) >> 16;
    std::memcpy(at, &bits, 2);
  } else if (storage == Precision::f16) {
    _Float16 half = static_cast<_Float16>(x);
    std::memcpy(at, &half, 2);
  } else {
    std::memcpy(at, &x, 4);
  }
}

float get(const std::vector<std::byte>& data, int64_t index, Precision storage) {
  const std::byte* at = data.data() + index * bytes_of(storage);
  if (storage == Precision::bf16) {
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  if (storage == Precision::f16) {
    _Float16 half;
    std::memcpy(&half, at, 2);
    return static_cast<float>(half);
  }
  float x;
  std::memcpy(&x, at, 4);
  return x;
}

// struct Batch of templates/sequence.cuh.
struct Batch {
  cuda::DevicePointer cu_seqlens;
  int64_t tokens;
  int32_t sequences, heads, value_heads;
};

// One run: the memory of its arguments, and the launches.
class Run {
 public:
  Run(const std::shared_ptr<cuda::Device>& device, const cuda::Source& source, const Layout& layout)
      : device_(device), source_(source), layout_(layout) {
    std::vector<int64_t> offsets = {0};
    for (int64_t length : layout.lengths) offsets.push_back(offsets.back() + length);
    sequences_ = layout.lengths.size();
    tokens_ = offsets.back();
    slots_ = tokens_ / source.chunk + sequences_;
    cuda::Buffer& table = allocate("cu_seqlens", offsets.size() * 8);
    table.copy_from(offsets.data(), offsets.size() * 8);
    batch_ = {table.address(), 0, static_cast<int32_t>(sequences_),
              static_cast<int32_t>(layout.heads), static_cast<int32_t>(layout.value_heads)};
    allocate("workspace", slots_ * layout.value_heads * source.workspace_bytes_per_slot);
  }

  int64_t count(const Argument& a) const {
    int64_t heads = a.key_heads ? layout_.heads : layout_.value_heads;
    int64_t rows = a.scope == Scope::token      ? tokens_ * heads
                   : a.scope == Scope::constant ? 1
                   : a.scope == Scope::head     ? heads
                                                : sequences_ * heads;
    return rows * a.row;
  }

  void bind(const Argument& a, const Tensors& inputs) {
    if (a.is_output) {
      allocate(a.name, count(a) * bytes_of(a.storage));
      int64_t shares = a.scope == Scope::head ? slots_ : tokens_;
      if (a.is_summed()) allocate(a.name + ".partial", shares * layout_.value_heads * a.row * 4);
      return;
    }
    auto found = inputs.find(a.name);
    if (found == inputs.end() && a.scope == Scope::sequence) return;  // null: zeros
    int64_t came = found == inputs.end() ? 0 : static_cast<int64_t>(found->second.size());
    if (came != count(a))
      throw UserError(fmt::format("{}: expected {} numbers, got {}", a.name, count(a), came));
    std::vector<std::byte> data(came * bytes_of(a.storage));
    for (int64_t i = 0; i < came; ++i)
      put(data, i, static_cast<float>(found->second[i]), a.storage);
    allocate(a.name, data.size()).copy_from(data.data(), data.size());
  }

  void launch(const cuda::Module& module, const cuda::KernelSource& kernel) {
    std::vector<cuda::DevicePointer> addresses(kernel.parameters.size(), 0);
    std::vector<void*> parameters;
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
      const std::string& name = kernel.parameters[i];
      auto found = buffers_.find(name);
      if (found != buffers_.end()) addresses[i] = found->second.address();
      parameters.push_back(name == "batch"    ? static_cast<void*>(&batch_)
                           : name == "tokens" ? static_cast<void*>(&tokens_)
                           : name == "slots"  ? static_cast<void*>(&slots_)
                                              : static_cast<void*>(&addresses[i]));
    }
    cuda::launch(module, kernel.name, blocks(kernel), kernel.threads,
                 kernel.shared_bytes, parameters);
    device_->synchronise();
  }

  std::vector<double> fetch(const Argument& a) {
    std::vector<std::byte> data(count(a) * bytes_of(a.storage));
    buffers_.at(a.name).copy_to(data.data(), data.size());
    std::vector<double> values(count(a));
    for (int64_t i = 0; i < count(a); ++i) values[i] = get(data, i, a.storage);
    return values;
  }

 private:
  cuda::Buffer& allocate(const std::string& name, size_t bytes) {
    return buffers_.emplace(name, cuda::Buffer(device_, bytes)).first->second;
  }

  int64_t blocks(const cuda::KernelSource& kernel) const {
    if (kernel.grid == cuda::Grid::chunks) return slots_ * layout_.value_heads;
    if (kernel.grid == cuda::Grid::sequences)
      return sequences_ * layout_.value_heads * kernel.value_blocks;
    int64_t total = 0;
    for (const Argument& a : source_.arguments)
      if (a.is_summed()) total += (count(a) + kernel.threads - 1) / kernel.threads;
    return total;
  }

  std::shared_ptr<cuda::Device> device_;
  const cuda::Source& source_;
  const Layout& layout_;
  int64_t sequences_, tokens_, slots_;
  Batch batch_;
  std::map<std::string, cuda::Buffer> buffers_;
};

}  // namespace

Schedule cuda_schedule(chunk::GraphOp graph) {
  int64_t tokens = graph.getChunkSize();
  auto scans = graph.getBody().getOps<chunk::ScanOp>();
  return {.chunk = tokens, .fuse_stages = tokens == 1 && llvm::hasSingleElement(scans)};
}

CudaProgram::CudaProgram(const TileProgram& program, std::shared_ptr<cuda::Device> device)
    : device_(device),
      source_(cuda::emit(program)),
      module_(device, cuda::Nvrtc::get().compile(source_.text, source_.name + ".cu", device->arch(),
                                                 embedded_templates(), {"--generate-line-info"})) {}

Tensors CudaProgram::run(const Layout& layout, const Tensors& inputs) const {
  layout.check();
  Run run(device_, source_, layout);
  for (const Argument& a : source_.arguments) run.bind(a, inputs);
  for (const cuda::KernelSource& kernel : source_.kernels) run.launch(module_, kernel);
  Tensors results;
  for (const Argument& a : source_.arguments)
    if (a.is_output) results[a.name] = run.fetch(a);
  return results;
}

}  // namespace linnet::check
