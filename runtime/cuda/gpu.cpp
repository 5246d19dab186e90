// The devices cuda:N and virtual:sm_NN.
#include <fmt/format.h>

#include <bit>

#include "runtime/cuda/kernels.h"
#include "runtime/cuda/op.h"
#include "runtime/tuning/defaults.h"

namespace linnet {

namespace {

class Gpu : public Device::Impl {
 public:
  Gpu(const std::string& called, const DeviceOptions& options)
      : gpu_(cuda::Device::open(called)),
        is_virtual_(called.starts_with("virtual:")),
        kernels_(cache_options(options)) {
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
    auto wished = wished_schedule(DeviceKind::gpu, problem, options);
    CudaRequest request = cuda_request(problem, options);
    Schedules schedules = wished ? Schedules(*wished) : table_.find(problem, options.direction);
    auto op = std::make_shared<CudaOp>(
        request, schedules, wished.has_value(),
        [self = std::static_pointer_cast<const Gpu>(shared_from_this())](const CudaRequest& r) {
          return self->load(r);
        },
        gpu_);
    op->device = shared_from_this();
    return Op(op);
  }

 private:
  std::shared_ptr<const LoadedProgram> load(const CudaRequest& request) const {
    CudaImage image = kernels_.load(request, gpu_->arch(), is_virtual_);
    KernelInfo info{.what = request.describe(),
                    .key = image.key,
                    .from_cache = image.from_cache,
                    .value_block = request.problem.value_dim};
    return std::make_shared<const LoadedProgram>(std::move(image.program), image.code, info, gpu_);
  }

  std::shared_ptr<cuda::Device> gpu_;
  bool is_virtual_;
  ScheduleTable table_ =
      ScheduleTable::open(DeviceKind::gpu, gpu_architecture(gpu_->arch(), gpu_->processors()));
  mutable CudaKernels kernels_;
};

}  // namespace

std::shared_ptr<const Device::Impl> open_gpu(const std::string& name,
                                             const DeviceOptions& options) {
  return std::make_shared<Gpu>(name, options);
}

}  // namespace linnet
