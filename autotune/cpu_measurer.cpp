#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "autotune/measurer.h"
#include "autotune/results.h"

namespace linnet::autotune {

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

class CpuMeasurer : public Measurer {
 public:
  CpuMeasurer(const Device& device, const Subject& subject) : device_(device), subject_(subject) {}

  std::string how() const override { return "measured"; }
  std::string device() const override {
    return fmt::format("{}, {} threads", cpu_architecture(), device_.threads());
  }
  double clock_s() const override { return ms_since(start_) / 1000; }

  std::vector<Sample> measure(const std::vector<Schedule>& schedules, int runs) override {
    std::vector<Sample> samples(schedules.size());
    std::vector<std::optional<Op>> ops(schedules.size());
    for (size_t i = 0; i < schedules.size(); ++i) {
      try {
        ops[i] = device_.build(subject_.problem,
                               {.direction = subject_.direction, .schedule = schedules[i]});
        if (loads_.empty())
          for (const Shape& shape : subject_.shapes) loads_.emplace_back(device_, *ops[i], shape);
        for (Workload& load : loads_) load.make_room_for(*ops[i]);
        // Warms up, and holds the results against those of the first schedule.
        loads_.front().reset();
        for (const Workload& load : loads_) load.run(*ops[i], nullptr);
        check_results(expected_, loads_.front().results(kCompared), subject_.problem);
      } catch (const Error& error) {
        ops[i].reset();
        samples[i].error = error.what();
      }
    }
    // Small workloads are noisier, and have time for more runs.
    std::vector<double> ms;
    for (const Workload& load : loads_) ms.push_back(once(load, ops));
    double longest = *std::max_element(ms.begin(), ms.end());
    for (size_t w = 0; w < loads_.size(); ++w) {
      double more = std::clamp(longest / std::max(ms[w], kLeastMs), 1., kMostMore);
      time(loads_[w], ops, static_cast<int>(runs * more), samples);
    }
    return samples;
  }

 private:
  static constexpr double kLeastMs = 2;   // of one timing; shorter calls are repeated in it
  static constexpr double kMostMore = 4;  // times as many runs of a small workload

  // A call's time, roughly.
  static double once(const Workload& load, const std::vector<std::optional<Op>>& ops) {
    for (const auto& op : ops) {
      if (!op) continue;
      auto start = Clock::now();
      load.run(*op, nullptr);
      return ms_since(start);
    }
    return 0;
  }

  // The schedules take turns, in another order each time, forth and back: none always follows the
  // same other.
  void time(const Workload& load, const std::vector<std::optional<Op>>& ops, int runs,
            std::vector<Sample>& samples) {
    std::vector<std::vector<double>> times(ops.size());
    std::vector<int> repeats(ops.size(), 1);
    for (size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i]) continue;
      auto start = Clock::now();
      load.run(*ops[i], nullptr);
      repeats[i] =
          std::clamp(static_cast<int>(kLeastMs / std::max(ms_since(start), 1e-3)), 1, 1000);
    }
    for (int run = 0; run < runs; ++run)
      for (size_t turn = 0; turn < ops.size(); ++turn) {
        size_t i = (turn + run) % ops.size();
        if (run % 2 == 1) i = ops.size() - 1 - i;
        if (!ops[i]) continue;
        auto start = Clock::now();
        for (int r = 0; r < repeats[i]; ++r) load.run(*ops[i], nullptr);
        times[i].push_back(ms_since(start) / repeats[i]);
      }
    add_times(samples, times);
  }

  Device device_;
  Subject subject_;
  std::vector<Workload> loads_;
  std::vector<float> expected_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

std::unique_ptr<Measurer> measure_on_cpu(const Device& device, const Subject& subject) {
  return std::make_unique<CpuMeasurer>(device, subject);
}

}  // namespace linnet::autotune
