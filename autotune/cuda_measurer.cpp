// Times on a GPU: each op as a captured graph, between two events, with a cold second-level cache.
#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <utility>

#include "autotune/results.h"
#include "runtime/cuda/device.h"

namespace linnet::autotune {

namespace {

using cuda::Handle;

class Event {
 public:
  explicit Event(const cuda::Driver& driver) : driver_(driver) {
    driver_.check(driver_.cuEventCreate(&event_, 0), "cuEventCreate");
  }
  Event(const Event&) = delete;
  ~Event() { driver_.cuEventDestroy_v2(event_); }
  void record(Handle stream) {
    driver_.check(driver_.cuEventRecord(event_, stream), "cuEventRecord");
  }
  double ms_since(const Event& start) {
    driver_.check(driver_.cuEventSynchronize(event_), "cuEventSynchronize");
    float ms = 0;
    driver_.check(driver_.cuEventElapsedTime(&ms, start.event_, event_), "cuEventElapsedTime");
    return ms;
  }

 private:
  const cuda::Driver& driver_;
  Handle event_ = nullptr;
};

// What a call launches, ready to be launched again without the host.
class Graph {
 public:
  template <class F>
  Graph(const cuda::Driver& driver, Handle stream, F call) : driver_(driver) {
    driver_.check(driver_.cuStreamBeginCapture_v2(stream, /*thread local*/ 1), "capturing a call");
    try {
      call();
    } catch (...) {
      driver_.cuStreamEndCapture(stream, &graph_);
      if (graph_) driver_.cuGraphDestroy(graph_);
      throw;
    }
    driver_.check(driver_.cuStreamEndCapture(stream, &graph_), "capturing a call");
    int result = driver_.cuGraphInstantiateWithFlags(&ready_, graph_, 0);
    driver_.cuGraphDestroy(graph_);
    driver_.check(result, "cuGraphInstantiate");
  }
  Graph(Graph&& other) noexcept
      : driver_(other.driver_), ready_(std::exchange(other.ready_, nullptr)) {}
  ~Graph() {
    if (ready_) driver_.cuGraphExecDestroy(ready_);
  }
  void launch(Handle stream) const {
    driver_.check(driver_.cuGraphLaunch(ready_, stream), "cuGraphLaunch");
  }

 private:
  const cuda::Driver& driver_;
  Handle graph_ = nullptr, ready_ = nullptr;
};

class CudaMeasurer : public Measurer {
 public:
  CudaMeasurer(const std::string& device, Subject subject, size_t memory_bytes)
      : device_(Device::open(device)),
        gpu_(cuda::Device::open(device)),
        driver_(gpu_->driver()),
        subject_(std::move(subject)),
        limit_(memory_bytes ? memory_bytes : free_bytes() / 2) {
    gpu_->make_current();
    driver_.check(driver_.cuStreamCreate(&stream_, /*non-blocking*/ 1), "cuStreamCreate");
  }
  ~CudaMeasurer() override { driver_.cuStreamDestroy_v2(stream_); }

  std::string how() const override { return "measured"; }
  std::string device() const override {
    char name[128] = "";
    driver_.cuDeviceGetName(name, sizeof name, gpu_->handle());
    return fmt::format("{}, {} SMs", name, gpu_->processors());
  }
  double clock_s() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  std::vector<Sample> measure(const std::vector<Schedule>& schedules, int runs) override {
    std::vector<Sample> samples(schedules.size());
    std::vector<std::optional<Op>> ops(schedules.size());
    for (size_t i = 0; i < schedules.size(); ++i) {
      try {
        ops[i] = device_.build(subject_.problem,
                               {.direction = subject_.direction, .schedule = schedules[i]});
        if (loads_.empty()) make_loads(*ops[i]);
        for (Workload& load : loads_) load.make_room_for(*ops[i]);
        loads_.front().reset();
        for (const Workload& load : loads_) load.run(*ops[i], stream_);
        driver_.check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
        check_results(expected_, loads_.front().results(kCompared), subject_.problem);
      } catch (const Error& error) {
        ops[i].reset();
        samples[i].error = error.what();
      }
    }
    for (const Workload& load : loads_) time(load, ops, runs, samples);
    return samples;
  }

 private:
  size_t free_bytes() const {
    gpu_->make_current();
    size_t free = 0, total = 0;
    driver_.check(driver_.cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
    return free;
  }

  // Shapes that do not fit in the memory allowed are shortened: tokens are alike.
  void make_loads(const Op& op) {
    for (Shape& shape : subject_.shapes) {
      const Problem& p = subject_.problem;
      auto bytes = [&] {
        int64_t wide = 6 * std::max(p.key_dim, p.value_dim) * size_of(p.dtype);
        return static_cast<size_t>(4 * shape.batch * shape.tokens * shape.value_heads * wide);
      };
      while (bytes() > limit_ && shape.tokens > 64) shape.tokens /= 2;
      loads_.emplace_back(device_, op, shape);
    }
  }

  // Writes over the call's own workspace, which holds nothing between two calls, and as much more
  // as the cache is larger: no scratch beyond the cache's size, and none for large calls.
  void cool(const Workload& load) {
    int cache = 0;
    driver_.check(driver_.cuDeviceGetAttribute(&cache, cuda::kSecondCacheBytes, gpu_->handle()),
                  "cuDeviceGetAttribute");
    size_t workspace = load.workspace_bytes();
    size_t rest = static_cast<size_t>(cache) > workspace ? cache - workspace : 0;
    rest = std::min(rest, limit_);
    if (rest > 0 && (!scratch_ || scratch_->bytes() < rest)) scratch_ = device_.allocate(rest);
    auto fill = [&](void* memory, size_t bytes) {
      if (bytes >= 4)
        driver_.check(driver_.cuMemsetD32Async(std::bit_cast<cuda::DevicePointer>(memory), 0,
                                               bytes / 4, stream_),
                      "cuMemsetD32Async");
    };
    fill(load.workspace(), workspace);
    if (rest > 0) fill(scratch_->data(), rest);
  }

  void time(const Workload& load, const std::vector<std::optional<Op>>& ops, int runs,
            std::vector<Sample>& samples) {
    gpu_->make_current();
    std::vector<std::optional<Graph>> graphs(ops.size());
    std::vector<std::vector<double>> times(ops.size());
    for (size_t i = 0; i < ops.size(); ++i)
      if (ops[i]) graphs[i].emplace(driver_, stream_, [&] { load.run(*ops[i], stream_); });
    Event start(driver_), end(driver_);
    for (int run = 0; run < runs; ++run)
      for (size_t turn = 0; turn < ops.size(); ++turn) {
        size_t i = (turn + run) % ops.size();
        if (!graphs[i]) continue;
        cool(load);
        start.record(stream_);
        graphs[i]->launch(stream_);
        end.record(stream_);
        times[i].push_back(std::max(end.ms_since(start), 1e-6));
      }
    add_times(samples, times);
  }

  Device device_;
  std::shared_ptr<cuda::Device> gpu_;
  const cuda::Driver& driver_;
  Subject subject_;
  size_t limit_;
  Handle stream_ = nullptr;
  std::vector<Workload> loads_;
  std::optional<Buffer> scratch_;
  std::vector<float> expected_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::unique_ptr<Measurer> measure_on_cuda(const std::string& device, const Subject& subject,
                                          size_t memory_bytes) {
  return std::make_unique<CudaMeasurer>(device, subject, memory_bytes);
}

}  // namespace linnet::autotune
