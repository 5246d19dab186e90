#include "runtime/cuda/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "runtime/log.h"

namespace linnet {

using cuda::DevicePointer;

namespace {

// What kernels take, as templates/sequence.cuh has it.
struct TensorParameter {
  DevicePointer data;
  int64_t batch_step, head_step, row_step;
};
struct Integers {
  DevicePointer data;
  int32_t wide;
};
struct Batch {
  Integers cu_seqlens, slots;
  int64_t tokens;
  int32_t sequences, heads, value_heads;
};
struct States {
  TensorParameter tensor;
  int64_t count, every;
};

Integers integers_of(const Tensor& tensor) {
  return {std::bit_cast<DevicePointer>(tensor.data), tensor.dtype == DType::i64};
}

TensorParameter parameter_of(const BoundTensor& tensor) {
  return {std::bit_cast<DevicePointer>(tensor.data), tensor.batch_step, tensor.head_step,
          tensor.row_step};
}

constexpr size_t kAlignment = 256;       // bytes, of everything in a workspace
constexpr size_t kMostParameters = 144;  // of a kernel: 64 arguments, sums of each, and the rest

bool is_summed(const KernelArgument& a) {
  return a.is_output && (a.key_heads || a.scope == ArgumentScope::head);
}

}  // namespace

// One call: where everything lies in the workspace, and the launches.
class CudaCall {
 public:
  CudaCall(const CudaOp& op, std::shared_ptr<const LoadedProgram> loaded, const Binding& binding)
      : op_(op), loaded_(std::move(loaded)), program_(loaded_->program), binding_(binding) {
    slots_ = binding.tokens / program_.chunk + binding.sequences;
    records_ = reserve(slots_ * binding.value_heads * program_.workspace_bytes);
    if (program_.segment) {
      segment_slots_ = binding.tokens / program_.segment + binding.sequences;
      // Lengths are the device's to know; no sequence is longer than this.
      int64_t longest = binding.is_batch() ? binding.batch_tokens() : binding.tokens;
      is_cut_ = longest > program_.segment;
      if (is_cut_)
        segments_ = reserve(segment_slots_ * binding.value_heads * program_.segment_bytes);
    }
    const auto& arguments = program_.arguments;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const KernelArgument& a = arguments[i];
      if (is_placed(i)) places_[i] = reserve(numbers_of(a) * size_of(a.result));
      int64_t shares = a.scope == ArgumentScope::head ? slots_ : binding.tokens;
      if (is_added_up(a)) partials_[i] = reserve(shares * binding.value_heads * row_of(a) * 4);
    }
  }

  size_t workspace_bytes() const { return bytes_; }

  void run(DevicePointer workspace, cuda::Handle stream) {
    Batch batch{integers_of(binding_.cu_seqlens()),
                integers_of(binding_.slots()),
                binding_.batch_tokens(),
                static_cast<int32_t>(binding_.sequences),
                static_cast<int32_t>(binding_.heads),
                static_cast<int32_t>(binding_.value_heads)};
    States states{parameter_of(binding_.states), binding_.states_count, binding_.states_every};
    int64_t tokens = binding_.tokens, segment = program_.segment;
    for (size_t k = 0; k < program_.kernels.size(); ++k) {
      const CudaKernel& kernel = program_.kernels[k];
      std::array<TensorParameter, kMostParameters> tensors;
      std::array<void*, kMostParameters> parameters;
      for (size_t i = 0; i < kernel.parameters.size(); ++i) {
        const std::string& name = kernel.parameters[i];
        tensors[i].data = workspace + (name == "segments" ? segments_ : records_);
        parameters[i] = name == "batch"     ? static_cast<void*>(&batch)
                        : name == "states"  ? static_cast<void*>(&states)
                        : name == "tokens"  ? static_cast<void*>(&tokens)
                        : name == "slots"   ? static_cast<void*>(&slots_)
                        : name == "segment" ? static_cast<void*>(&segment)
                        : name == "workspace" || name == "segments"
                            ? static_cast<void*>(&tensors[i].data)
                            : argument(name, workspace, tensors[i]);
      }
      cuda::launch(*op_.gpu_, loaded_->functions[k], kernel.name, blocks_of(kernel), kernel.threads,
                   kernel.shared_bytes, stream, parameters.data());
    }
  }

 private:
  size_t reserve(int64_t bytes) {
    size_t at = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }

  // Outputs of key heads leave the kernel that makes them as they are where each has one value
  // head.
  bool is_added_up(const KernelArgument& a) const {
    bool direct = a.scope == ArgumentScope::token && row_of(a) % kGathered == 0 &&
                  binding_.heads == binding_.value_heads;
    return is_summed(a) && !direct;
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

  // An output nobody wants is still written: to the workspace.
  bool is_placed(size_t i) const {
    const KernelArgument& a = program_.arguments[i];
    return a.is_output && a.scope != ArgumentScope::sequence && !binding_[i].data;
  }

  TensorParameter dense(DevicePointer data, const KernelArgument& a, int64_t heads) const {
    int64_t row = row_of(a);
    return {data, binding_.batch_tokens() * heads * row, row, heads * row};
  }

  // A parameter that is an argument of the op; `tensor` is where it is put together.
  void* argument(const std::string& name, DevicePointer workspace, TensorParameter& tensor) const {
    const auto& arguments = program_.arguments;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const KernelArgument& a = arguments[i];
      if (name == a.name + ".partial") {
        tensor = dense(workspace + partials_[i], a, binding_.value_heads);
        return &tensor;
      }
      if (name != a.name) continue;
      if (a.scope == ArgumentScope::constant) return const_cast<float*>(&binding_[i].number);
      int64_t heads = a.key_heads ? binding_.heads : binding_.value_heads;
      tensor = is_placed(i) ? dense(workspace + places_[i], a, heads) : parameter_of(binding_[i]);
      return &tensor;
    }
    throw InternalError("cuda: no argument " + name);
  }

  int64_t blocks_of(const CudaKernel& kernel) const {
    if (kernel.grid == CudaGrid::chunks) return slots_ * binding_.value_heads;
    if (kernel.grid == CudaGrid::sequences)
      return binding_.sequences * binding_.value_heads * kernel.value_blocks;
    if (kernel.grid == CudaGrid::segments || (kernel.grid == CudaGrid::maps && is_cut_))
      return segment_slots_ * binding_.value_heads * kernel.value_blocks;
    if (kernel.grid == CudaGrid::merge && is_cut_)
      return binding_.sequences * binding_.value_heads * kernel.value_blocks;
    if (kernel.grid != CudaGrid::gather) return 0;
    int64_t total = 0;
    for (const KernelArgument& a : program_.arguments)
      if (is_added_up(a)) {
        int64_t of_thread = row_of(a) % kGathered == 0 ? kGathered : 1;
        total += (numbers_of(a) / of_thread + kernel.threads - 1) / kernel.threads;
      }
    return total;
  }

  const CudaOp& op_;
  std::shared_ptr<const LoadedProgram> loaded_;
  const CudaProgram& program_;
  const Binding& binding_;
  int64_t slots_ = 0;
  int64_t segment_slots_ = 0;
  bool is_cut_ = false;  // a sequence may have more than one segment
  size_t bytes_ = 0, records_ = 0, segments_ = 0;
  std::array<size_t, 64> places_{}, partials_{};
};

LoadedProgram::LoadedProgram(CudaProgram from, const std::string& image, KernelInfo about,
                             std::shared_ptr<cuda::Device> device)
    : program(std::move(from)), info(std::move(about)), module(std::move(device), image) {
  info.chunk = program.chunk;
  info.loops = static_cast<int64_t>(program.kernels.size());
  info.bytes = static_cast<int64_t>(image.size());
  info.workspace = program.workspace_bytes;
  for (const CudaKernel& kernel : program.kernels)
    if (kernel.parameters.size() > kMostParameters)
      throw InternalError(
          fmt::format("{} has {} parameters", kernel.name, kernel.parameters.size()));
  for (const CudaKernel& kernel : program.kernels)
    functions.push_back(cuda::prepare(module, kernel.name, kernel.shared_bytes));
}

CudaOp::CudaOp(const CudaRequest& request, const Schedules& schedules, bool insist,
               ProgramLoader load, std::shared_ptr<cuda::Device> device)
    : request_(request),
      schedules_(schedules),
      insist_(insist),
      load_(std::move(load)),
      gpu_(std::move(device)) {
  problem = request.problem;
  direction = request.direction;
  bool decode = direction == Direction::decode;
  main_ = this->load(schedules_.at({Width::many, decode ? Length::short_ : Length::long_}));
}

std::shared_ptr<const LoadedProgram> CudaOp::load(const Schedule& schedule) const {
  CudaRequest request = request_;
  try {
    request.schedule = schedule;
    return programs_.emplace_back(schedule, load_(request)).second;
  } catch (const Error& error) {
    if (insist_ || schedule == request_.schedule) throw;
    log_info("the tuned schedule \"{}\" is ignored: {}", schedule.describe(), error.what());
    if (main_) return programs_.emplace_back(schedule, main_).second;
  }
  return programs_.emplace_back(schedule, load_(request_)).second;
}

std::shared_ptr<const LoadedProgram> CudaOp::program_for(const Binding& binding,
                                                         bool may_load) const {
  int64_t parallel = binding.sequences * binding.value_heads;
  Width width = parallel < gpu_->processors() ? Width::few : Width::many;
  // Lengths are the device's to know; what is here is their mean.
  Length length = length_of(binding.tokens / std::max<int64_t>(1, binding.sequences));
  const Schedule& tuned = schedules_.at({width, length});
  // States leave at the ends of chunks.
  const Schedule& schedule = binding.states_every % tuned.chunk == 0 ? tuned : request_.schedule;
  std::lock_guard lock(mutex_);
  for (const auto& [known, program] : programs_)
    if (known == schedule) return program;
  if (may_load) return load(schedule);
  if (schedule.same_sums(tuned)) return main_;
  throw DeviceError(
      fmt::format("states_every: expected a call before the capture, kernels for {} tokens are not "
                  "loaded yet",
                  binding.states_every));
}

std::vector<ArgumentInfo> CudaOp::arguments() const {
  std::vector<ArgumentInfo> infos;
  for (const KernelArgument& a : main_->program.arguments)
    infos.push_back({a.name, shape_text(a, problem), a.result, a.is_output, is_optional(a)});
  std::vector<ArgumentInfo> common = common_arguments(problem, direction);
  infos.insert(infos.end(), common.begin(), common.end());
  return infos;
}

std::vector<KernelInfo> CudaOp::kernels() const {
  std::lock_guard lock(mutex_);
  std::vector<KernelInfo> infos;
  for (const auto& [schedule, loaded] : programs_) infos.push_back(loaded->info);
  return infos;
}

size_t CudaOp::workspace_bytes(std::span<const Argument> arguments) const {
  Binding binding(rules(), arguments);
  return CudaCall(*this, program_for(binding, true), binding).workspace_bytes() + kAlignment;
}

void CudaOp::run(std::span<const Argument> arguments, const RunOptions& options) const {
  Binding binding(rules(), arguments);
  gpu_->make_current();
  cuda::Handle stream = options.stream ? options.stream : gpu_->stream();
  int captured = 0;
  if (options.stream) gpu_->driver().cuStreamIsCapturing(stream, &captured);
  CudaCall call(*this, program_for(binding, !captured), binding);
  size_t bytes = call.workspace_bytes() + kAlignment;
  auto aligned = [](DevicePointer memory) {
    return (memory + kAlignment - 1) / kAlignment * kAlignment;
  };
  if (options.workspace) {
    if (options.workspace_bytes < bytes)
      throw UserError(fmt::format("workspace: expected at least {} bytes, got {}", bytes,
                                  options.workspace_bytes));
    return call.run(aligned(std::bit_cast<DevicePointer>(options.workspace)), stream);
  }
  std::lock_guard lock(mutex_);
  auto& own = own_[stream];
  if (!own || own->bytes() < bytes) {
    own.reset();
    own = std::make_unique<cuda::Buffer>(gpu_, bytes);
  }
  call.run(aligned(own->address()), stream);
}

}  // namespace linnet
