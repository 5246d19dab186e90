#include "autotune/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "linnet/error.h"
#include "runtime/cuda/device.h"
#include "runtime/tuning/table.h"

namespace linnet::autotune {

namespace {

// All values of some fields, the default's first: a schedule for every choice.
class Product {
 public:
  explicit Product(const Schedule& from) : all_{from} {}

  template <class T>
  Product& over(T Schedule::* field, const std::vector<T>& values) {
    return over([=](Schedule& s) -> T& { return s.*field; }, values);
  }
  template <class Get, class T>
  Product& over(Get field, const std::vector<T>& values) {
    std::vector<Schedule> more;
    for (const Schedule& s : all_) {
      more.push_back(s);
      for (const T& value : values) {
        Schedule other = s;
        if (field(other) == value) continue;
        field(other) = value;
        more.push_back(other);
      }
    }
    all_ = std::move(more);
    return *this;
  }
  const std::vector<Schedule>& all() const { return all_; }

 private:
  std::vector<Schedule> all_;
};

std::vector<Schedule> cpu_product(const Problem& problem, Direction direction) {
  const Schedule start = default_schedule(DeviceKind::cpu, problem, direction);
  Product product(start);
  if (direction == Direction::decode) {
    std::vector<int64_t> blocks;
    for (int64_t block = problem.value_dim; block >= 16; block /= 2) {
      blocks.push_back(block);
      if (block % 32 != 0) break;
    }
    return product.over(&Schedule::value_block, blocks).all();
  }
  // The chunk varies fastest: the first of each are those with everything else as by default.
  return product
      .over([](Schedule& s) -> bool& { return s.stages.distribute_inverse; },
            std::vector<bool>{true})
      .over([](Schedule& s) -> bool& { return s.stages.separate_output; }, std::vector<bool>{true})
      .over(&Schedule::register_vectors, {1, 2, 3, 4})
      .over(&Schedule::register_rows, {4, 6, 8, 12, 16})
      .over(&Schedule::chunk, {1, 8, 12, 16, 32, 64})
      .all();
}

std::vector<Schedule> gpu_product(const Problem& problem, Direction direction) {
  const Schedule start = default_schedule(DeviceKind::gpu, problem, direction);
  Product product(start);
  std::vector<int64_t> blocks;
  for (int64_t block : {16, 32, 128})
    if (block <= (problem.value_dim + 15) / 16 * 16) blocks.push_back(block);
  product.over(&Schedule::value_block, blocks);
  if (direction == Direction::decode) return product.all();
  Product cut = product;
  std::vector<Schedule> all =
      product
          .over([](Schedule& s) -> bool& { return s.stages.distribute_inverse; },
                std::vector<bool>{true})
          .over([](Schedule& s) -> bool& { return s.stages.separate_output; },
                std::vector<bool>{true})
          .over(&Schedule::pipeline_stages, {1, 2})
          .over(&Schedule::warps, {2, 4, 8})
          .over(&Schedule::chunk, {16, 32, 64})
          .all();
  // Segments with everything else but chunk and value block as by default: they make the serial
  // chain short, which other forms do too.
  if (direction == Direction::forward)
    for (const Schedule& s : cut.over(&Schedule::segment, {256, 512, 1024, 2048, 4096})
                                 .over(&Schedule::chunk, {16, 32, 64})
                                 .all())
      if (s.segment > 0) all.push_back(s);
  return all;
}

std::string why_not_on_cpu(const Schedule& s, const Problem& p, const Limits& limits) {
  if (s.chunk == 1) return "";
  // A block's sums, a row of the factor they are made of, and the number it is multiplied by.
  int64_t needs = s.register_rows * s.register_vectors + s.register_vectors + 1;
  if (needs > limits.vector_registers)
    return fmt::format("{} vector registers, there are {}", needs, limits.vector_registers);
  int64_t bytes = 4 * (p.key_dim * p.value_dim + s.chunk * (4 * p.key_dim + 3 * p.value_dim));
  if (bytes > limits.second_cache_bytes)
    return fmt::format("{} KB of tiles, the second cache has {} KB", bytes / 1024,
                       limits.second_cache_bytes / 1024);
  return "";
}

// What the largest kernel needs of a block's resources; throws UserError if it is too much.
std::string fit_on_gpu(const CudaProgram& program, const Limits& limits) {
  int64_t shared = 0, fewest = limits.blocks_per_sm;
  for (const CudaKernel& kernel : program.kernels) {
    shared = std::max<int64_t>(shared, kernel.shared_bytes);
    if (kernel.shared_bytes > limits.shared_bytes)
      throw UserError(fmt::format("{} bytes of shared memory, {} has {}", kernel.shared_bytes,
                                  limits.name, limits.shared_bytes));
    fewest = std::min({fewest, limits.threads_per_sm / kernel.threads,
                       limits.shared_per_sm / (kernel.shared_bytes + limits.reserved_shared)});
  }
  if (fewest < 1) throw UserError("no block fits on a multiprocessor");
  return fmt::format("{:.1f} KB shared, {} block{} an SM", static_cast<double>(shared) / 1024,
                     fewest, fewest == 1 ? "" : "s");
}

}  // namespace

std::vector<Schedule> Space::schedules() const {
  std::vector<Schedule> list;
  for (const Candidate& c : candidates) list.push_back(c.schedule);
  return list;
}

Limits Limits::of_this_cpu() {
  Limits limits{.name = cpu_architecture()};
  if (limits.name.find("avx512f") != std::string::npos ||
      limits.name.find("asimd") != std::string::npos)
    limits.vector_registers = 32;
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index2/size");
  int64_t kilobytes = 0;
  if (file >> kilobytes) limits.second_cache_bytes = kilobytes * 1024;
  return limits;
}

Limits Limits::of_gpu(const std::string& device) {
  auto gpu = cuda::Device::open(device);
  auto attribute = [&](int which) {
    int value = 0;
    gpu->driver().check(gpu->driver().cuDeviceGetAttribute(&value, which, gpu->handle()),
                        "cuDeviceGetAttribute");
    return static_cast<int64_t>(value);
  };
  return {.kind = DeviceKind::gpu,
          .name = gpu_architecture(gpu->arch(), gpu->processors()),
          .shared_bytes = gpu->max_shared_bytes(),
          .shared_per_sm = attribute(cuda::kMaxSharedBytesPerProcessor),
          .threads_per_sm = attribute(cuda::kMaxThreadsPerProcessor),
          .blocks_per_sm = attribute(cuda::kMaxBlocksPerProcessor)};
}

Space make_space(Compiler& compiler, const Problem& problem, Direction direction,
                 const Limits& limits) {
  bool cpu = limits.kind == DeviceKind::cpu;
  Space space;
  std::set<std::string> seen;
  for (const Schedule& schedule :
       cpu ? cpu_product(problem, direction) : gpu_product(problem, direction)) {
    bool first = space.candidates.empty();  // the default is always there
    try {
      std::string kernel, note;
      if (cpu) {
        std::string why = why_not_on_cpu(schedule, problem, limits);
        if (!why.empty() && !first) throw UserError(why);
        kernel = compiler.outline({problem, direction, schedule});
      } else {
        CudaProgram program = compiler.emit({problem, direction, schedule});
        note = fit_on_gpu(program, limits);
        kernel = fmt::format("{}{}", program.source, program.segment);
      }
      if (!seen.insert(kernel).second) throw UserError("the same kernel as another");
      space.candidates.push_back({schedule, note});
    } catch (const UserError& error) {
      if (first) throw;
      space.refused.push_back({schedule, error.what()});
    }
  }
  return space;
}

}  // namespace linnet::autotune
