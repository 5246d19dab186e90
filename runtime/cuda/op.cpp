#include "runtime/cuda/op.h"

#include <fmt/format.h>

#include <array>
#include <bit>

namespace linnet {

using cuda::DevicePointer;

namespace {

// struct Batch of templates/sequence.cuh.
struct Batch {
  DevicePointer cu_seqlens;
  int64_t tokens;
  int32_t sequences, heads, value_heads;
};

constexpr size_t kMostParameters = 144;  // of a kernel: 64 arguments, sums of each, and the rest

bool is_summed(const KernelArgument& a) {
  return a.is_output && (a.key_heads || a.scope == ArgumentScope::head);
}

}  // namespace

// One call: where everything lies in the workspace, and the launches.
class CudaCall {
 public:
  CudaCall(const CudaOp& op, const Binding& binding) : op_(op), binding_(binding) {
    slots_ = binding.tokens / op.program_.chunk + binding.sequences;
    records_ = reserve(slots_ * binding.value_heads * op.program_.workspace_bytes);
    const auto& arguments = op.program_.arguments;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const KernelArgument& a = arguments[i];
      // An output nobody wants is still written.
      bool needs_place = a.scope == ArgumentScope::constant || (a.is_output && !binding[i].data);
      if (needs_place) places_[i] = reserve(numbers_of(a) * size_of(a.result));
      int64_t shares = a.scope == ArgumentScope::head ? slots_ : binding.tokens;
      if (is_summed(a)) partials_[i] = reserve(shares * binding.value_heads * row_of(a) * 4);
    }
  }

  size_t workspace_bytes() const { return bytes_; }

  void run(DevicePointer workspace, cuda::Handle stream) {
    const auto& driver = op_.gpu_->driver();
    const auto& arguments = op_.program_.arguments;
    // Numbers reach the device by a memset, which a graph can capture.
    for (size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].scope == ArgumentScope::constant)
        driver.check(
            driver.cuMemsetD32Async(workspace + places_[i],
                                    std::bit_cast<uint32_t>(binding_[i].number), 1, stream),
            arguments[i].name);
    Batch batch{std::bit_cast<DevicePointer>(binding_.offsets()), binding_.batch_tokens(),
                static_cast<int32_t>(binding_.sequences), static_cast<int32_t>(binding_.heads),
                static_cast<int32_t>(binding_.value_heads)};
    int64_t tokens = binding_.tokens;
    for (size_t k = 0; k < op_.program_.kernels.size(); ++k) {
      const CudaKernel& kernel = op_.program_.kernels[k];
      std::array<DevicePointer, kMostParameters> addresses;
      std::array<void*, kMostParameters> parameters;
      for (size_t i = 0; i < kernel.parameters.size(); ++i) {
        const std::string& name = kernel.parameters[i];
        addresses[i] = address_of(name, workspace);
        parameters[i] = name == "batch"    ? static_cast<void*>(&batch)
                        : name == "tokens" ? static_cast<void*>(&tokens)
                        : name == "slots"  ? static_cast<void*>(&slots_)
                                           : static_cast<void*>(&addresses[i]);
      }
      cuda::launch(*op_.gpu_, op_.functions_[k], kernel.name, blocks_of(kernel), kernel.threads,
                   kernel.shared_bytes, stream, parameters.data());
    }
  }

 private:
  size_t reserve(int64_t bytes) {
    size_t at = bytes_;
    bytes_ += (bytes + 255) / 256 * 256;
    return at;
  }

  int64_t row_of(const KernelArgument& a) const {
    int64_t numbers = 1;
    for (char axis : a.axes) numbers *= axis == 'k' ? op_.problem.key_dim : op_.problem.value_dim;
    return numbers;
  }
  int64_t numbers_of(const KernelArgument& a) const {
    int64_t heads = a.key_heads ? binding_.heads : binding_.value_heads;
    int64_t rows = a.scope == ArgumentScope::token      ? binding_.tokens * heads
                   : a.scope == ArgumentScope::constant ? 1
                   : a.scope == ArgumentScope::head     ? heads
                                                        : binding_.sequences * heads;
    return rows * row_of(a);
  }

  DevicePointer address_of(const std::string& name, DevicePointer workspace) const {
    if (name == "workspace") return workspace + records_;
    const auto& arguments = op_.program_.arguments;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const KernelArgument& a = arguments[i];
      if (name == a.name + ".partial") return workspace + partials_[i];
      if (name != a.name) continue;
      bool placed = a.scope == ArgumentScope::constant || (a.is_output && !binding_[i].data);
      return placed ? workspace + places_[i] : std::bit_cast<DevicePointer>(binding_[i].data);
    }
    return 0;
  }

  int64_t blocks_of(const CudaKernel& kernel) const {
    if (kernel.grid == CudaGrid::chunks) return slots_ * binding_.value_heads;
    if (kernel.grid == CudaGrid::sequences)
      return binding_.sequences * binding_.value_heads * kernel.value_blocks;
    int64_t total = 0;
    for (const KernelArgument& a : op_.program_.arguments)
      if (is_summed(a)) total += (numbers_of(a) + kernel.threads - 1) / kernel.threads;
    return total;
  }

  const CudaOp& op_;
  const Binding& binding_;
  int64_t slots_ = 0;
  size_t bytes_ = 0, records_ = 0;
  std::array<size_t, 64> places_{}, partials_{};
};

CudaOp::CudaOp(CudaProgram program, const std::string& image, std::shared_ptr<cuda::Device> device)
    : program_(std::move(program)), gpu_(std::move(device)), module_(gpu_, image) {
  for (const CudaKernel& kernel : program_.kernels)
    if (kernel.parameters.size() > kMostParameters)
      throw InternalError(
          fmt::format("{} has {} parameters", kernel.name, kernel.parameters.size()));
  for (const CudaKernel& kernel : program_.kernels)
    functions_.push_back(cuda::prepare(module_, kernel.name, kernel.shared_bytes));
}

std::vector<ArgumentInfo> CudaOp::arguments() const {
  std::vector<ArgumentInfo> infos;
  for (const KernelArgument& a : program_.arguments)
    infos.push_back({a.name, shape_text(a, problem), a.result, a.is_output, is_optional(a)});
  infos.push_back({"cu_seqlens", "[N + 1]", DType::i64, false, true});
  if (direction == Direction::decode)
    infos.push_back({"state", "[N, HV, K, V]", problem.state_dtype, true, true});
  return infos;
}

size_t CudaOp::workspace_bytes(std::span<const Argument> arguments) const {
  Binding binding(rules(), arguments);
  return CudaCall(*this, binding).workspace_bytes();
}

void CudaOp::run(std::span<const Argument> arguments, const RunOptions& options) const {
  Binding binding(rules(), arguments);
  CudaCall call(*this, binding);
  gpu_->make_current();
  cuda::Handle stream = options.stream ? options.stream : gpu_->stream();
  if (options.workspace) {
    if (options.workspace_bytes < call.workspace_bytes())
      throw UserError(fmt::format("workspace: expected at least {} bytes, got {}",
                                  call.workspace_bytes(), options.workspace_bytes));
    return call.run(std::bit_cast<DevicePointer>(options.workspace), stream);
  }
  std::lock_guard lock(mutex_);
  if (!own_ || own_->bytes() < call.workspace_bytes()) {
    own_.reset();
    own_ = std::make_unique<cuda::Buffer>(gpu_, call.workspace_bytes());
  }
  call.run(own_->address(), stream);
}

}  // namespace linnet
