// The devices cuda:N and virtual:sm_NN: kernels from the cache, or written by the compiler and
// compiled by NVRTC.
#include <fmt/format.h>

#include <bit>
#include <chrono>

#include "generator_id.h"
#include "runtime/cache/cache.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/cuda/op.h"
#include "runtime/log.h"
#include "runtime/plugin.h"

namespace linnet {

namespace {

class Gpu : public Device::Impl {
 public:
  explicit Gpu(const std::string& called)
      : gpu_(cuda::Device::open(called)), is_virtual_(called.starts_with("virtual:")) {
    name = called;
  }

  int threads() const override { return 1; }

  Buffer allocate(size_t bytes) const override {
    auto memory = std::make_shared<cuda::Buffer>(gpu_, bytes);
    void* address = std::bit_cast<void*>(memory->address());
    return {std::shared_ptr<void>(memory, address), bytes};
  }
  void write(void* to, const void* from, size_t bytes) const override {
    if (bytes == 0) return;
    gpu_->make_current();
    const auto& driver = gpu_->driver();
    driver.check(driver.cuMemcpyHtoDAsync_v2(std::bit_cast<cuda::DevicePointer>(to), from, bytes,
                                             gpu_->stream()),
                 fmt::format("copying {} bytes to the device", bytes));
    gpu_->synchronise();
  }
  void read(void* to, const void* from, size_t bytes) const override {
    if (bytes == 0) return;
    gpu_->make_current();
    const auto& driver = gpu_->driver();
    driver.check(driver.cuMemcpyDtoHAsync_v2(to, std::bit_cast<cuda::DevicePointer>(from), bytes,
                                             gpu_->stream()),
                 fmt::format("copying {} bytes from the device", bytes));
    gpu_->synchronise();
  }
  void synchronise() const override { gpu_->synchronise(); }

  Op build(const Problem& problem, const BuildOptions& options) const override {
    check(options);
    bool decode = options.direction == Direction::decode;
    CudaRequest request{problem, options.direction,
                        options.chunk ? options.chunk
                        : decode      ? int64_t{1}
                                      : int64_t{16}};
    std::string what = request.describe();
    CacheKey key({{"kind", is_virtual_ ? "ptx" : "cubin"},
                  {"what", what},
                  {"arch", gpu_->arch()},
                  {"generator", kGeneratorId},
                  {"nvrtc", cuda::Nvrtc::identity()}});
    bool from_cache = true;
    Files files = cache_.find_or_build(key, [&] {
      from_cache = false;
      return compile(request, what);
    });
    CudaProgram program = CudaProgram::parse(files["program.txt"]);
    KernelInfo info{what,
                    key.hex(),
                    from_cache,
                    program.chunk,
                    problem.value_dim,
                    static_cast<int64_t>(program.kernels.size()),
                    static_cast<int64_t>(files["kernels.bin"].size()),
                    program.workspace_bytes};
    auto op = std::make_shared<CudaOp>(std::move(program), files["kernels.bin"], gpu_);
    op->info = info;
    op->problem = problem;
    op->direction = options.direction;
    op->device = shared_from_this();
    return Op(op);
  }

 private:
  static void check(const BuildOptions& options) {
    auto refuse = [](const char* name, const char* expected, const std::string& given) {
      throw UserError(fmt::format("{}: expected {} on a GPU, got {}", name, expected, given));
    };
    if (!options.target_cpu.empty()) refuse("target_cpu", "nothing", options.target_cpu);
    if (options.direction == Direction::decode && options.chunk > 1)
      refuse("chunk", "1 for decode", std::to_string(options.chunk));
  }

  Files compile(const CudaRequest& request, const std::string& what) const {
    auto start = std::chrono::steady_clock::now();
    CudaProgram program = compiler_for(what).emit(request);
    const auto& nvrtc = cuda::Nvrtc::get();
    std::string file = program.name + ".cu";
    std::string image =
        is_virtual_
            ? nvrtc.compile(program.source, file, gpu_->arch(), program.headers,
                            {"--generate-line-info"})
            : nvrtc.compile_cubin(program.source, file, gpu_->arch(), program.headers).image;
    std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
    log_debug("compiled {} for {} in {:.0f} ms", what, gpu_->arch(), taken.count());
    return {{"kernels.bin", image}, {"program.txt", program.describe()}, {file, program.source}};
  }

  std::shared_ptr<cuda::Device> gpu_;
  bool is_virtual_;
  mutable Cache cache_{Cache::Options{}};
};

}  // namespace

std::shared_ptr<const Device::Impl> open_gpu(const std::string& name) {
  return std::make_shared<Gpu>(name);
}

}  // namespace linnet
