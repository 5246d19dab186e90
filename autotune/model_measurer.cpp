// Times of a GPU that is not here: the virtual one runs a call on a small grid, its counts are
// scaled to the whole, and a cost model makes a time of them. A model's number, never a
// measurement.
#include <fmt/format.h>

#include <chrono>
#include <climits>
#include <map>

#include "autotune/resources.h"
#include "autotune/results.h"
#include "linnet/error.h"
#include "model/scaling.h"
#include "runtime/cuda/device.h"
#include "runtime/plugin.h"

namespace linnet::autotune {

namespace {

// Of the small grid. Sectors that heads share are counted a little too often; sixteen heads would
// be exact and take four times as long.
constexpr int64_t kHeads = 4;

// What is known of a schedule's kernels, for calls of any size.
struct Counted {
  std::vector<vgpu::CountedCall> calls;  // as vgpu::small_calls has them
  std::vector<vgpu::KernelResources> resources;
  int64_t chunk = 1;
};

class Model : public Measurer {
 public:
  Model(const std::string& device, const Subject& subject)
      : device_(Device::open(device)),
        gpu_(cuda::Device::open(device)),
        profile_(vgpu::find_profile(gpu_->arch())),
        subject_(subject) {
    const cuda::Driver& driver = gpu_->driver();
    if (!profile_ || !driver.virtual_launches)
      throw DeviceError(fmt::format("device: expected a virtual GPU with a model, got {}", device));
    launches_ = vgpu::launch_reader(driver.virtual_launches, driver.virtual_reset);
  }

  std::string how() const override { return "modelled"; }
  std::string device() const override {
    return fmt::format("{}, {} SMs", profile_->name, profile_->sm_count);
  }
  bool is_noisy() const override { return false; }
  double clock_s() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  std::vector<Sample> measure(const std::vector<Schedule>& schedules, int) override {
    std::vector<Sample> samples(schedules.size());
    int spilled = 0;
    for (size_t i = 0; i < schedules.size(); ++i) {
      try {
        // PTX has no spills, so the model does not see what they cost: what spills more than the
        // default, which is first, is left out.
        const Counted& counted = count(schedules[i], i == 0 ? INT_MAX : spilled);
        if (i == 0) spilled = spilled_bytes(counted.resources);
        for (const Shape& shape : subject_.shapes)
          samples[i].ms.push_back(modelled_ms(counted, shape, schedules[i].segment));
        for (size_t w = 0; w < samples[0].ms.size(); ++w)
          samples[i].ratio.push_back(samples[i].ms[w] / samples[0].ms[w]);
      } catch (const std::exception& error) {
        samples[i] = {.error = error.what()};
      }
    }
    return samples;
  }

 private:
  double modelled_ms(const Counted& counted, const Shape& shape, int64_t segment) const {
    auto scaled = vgpu::scale(
        counted.calls, {shape.batch, shape.tokens, shape.value_heads, segment}, counted.chunk);
    double seconds = 0;
    for (size_t k = 0; k < scaled.kernels.size(); ++k)
      seconds += vgpu::model_cost(*profile_, scaled.kernels[k], counted.resources[k]).seconds;
    return seconds * 1e3;
  }

  // Classes of shapes, and segments, differ only in how counts are scaled: a schedule is run once
  // for all of them, also by the measurers of the others.
  const Counted& count(const Schedule& schedule, int most_spilled) {
    static std::map<std::string, Counted> known;
    CudaRequest request{subject_.problem, subject_.direction, schedule};
    if (schedule.segment) request.schedule.segment = schedule.chunk;  // any
    const std::string what = gpu_->arch() + " " + request.describe();
    auto found = known.find(what);
    if (found == known.end()) found = known.emplace(what, count_anew(request, most_spilled)).first;
    return found->second;
  }

  Counted count_anew(const CudaRequest& request, int most_spilled) {
    CudaProgram program = compiler_for("the model").emit(request);
    auto resources = resources_of(program, gpu_->arch());
    check_registers(program, resources, gpu_->arch(), most_spilled);
    Counted counted{.chunk = request.schedule.chunk};
    const int64_t long_enough = 100 * counted.chunk, segment = request.schedule.segment;
    for (const auto& shape :
         vgpu::small_calls({1, long_enough, kHeads, segment}, counted.chunk, kHeads)) {
      Schedule schedule = request.schedule;
      schedule.segment = shape.segment;
      Op op =
          device_.build(request.problem, {.direction = request.direction, .schedule = schedule});
      Workload load(device_, op, {1, shape.tokens, kHeads, kHeads});
      launches_();  // forgets those of before
      load.run();
      device_.synchronise();
      counted.calls.push_back({shape, launches_()});
    }
    // A call launches the program's kernels in order, but for those that have nothing to do.
    size_t k = 0;
    for (const auto& launched : counted.calls[0].kernels) {
      while (k < resources.size() && program.kernels[k].name != launched.kernel) ++k;
      if (k == resources.size())
        throw InternalError(fmt::format("{} was launched out of order", launched.kernel));
      counted.resources.push_back(resources[k]);
    }
    return counted;
  }

  Device device_;
  std::shared_ptr<cuda::Device> gpu_;
  const vgpu::DeviceProfile* profile_;
  Subject subject_;
  std::function<std::vector<vgpu::KernelCounts>()> launches_;  // since the last call of it
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::unique_ptr<Measurer> model(const std::string& device, const Subject& subject) {
  return std::make_unique<Model>(device, subject);
}

}  // namespace linnet::autotune
