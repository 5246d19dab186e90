#include "exec/launch.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <thread>

#include "exec/cluster.h"

namespace linnet::vgpu {
namespace {

// Instructions a CTA runs before another one gets its turn: only CTAs that wait for others need it.
constexpr uint64_t kSlice = 4'000'000;
constexpr size_t kMaxResident = 2048;

// Takes clusters from a common counter and runs them; several stay resident when they wait for each
// other.
class Worker {
 public:
  Worker(Launch& launch, std::atomic<uint64_t>& next, std::atomic<bool>& stop)
      : launch_(launch), next_(next), stop_(stop) {
    counters.reset(launch.program->op_total);
  }

  void run() {
    try {
      loop();
    } catch (...) {
      error = std::current_exception();
      stop_.store(true);
    }
  }

  Counters counters;
  std::exception_ptr error;

 private:
  void loop() {
    while (!stop_.load(std::memory_order_relaxed)) {
      const bool room = resident_.size() < kMaxResident;
      const uint64_t index = room ? next_.fetch_add(1) : launch_.clusters();
      if (index < launch_.clusters())
        resident_.push_back(std::make_unique<Cluster>(launch_, counters, index));
      else if (resident_.empty())
        return;
      else
        std::rotate(resident_.begin(), resident_.begin() + 1, resident_.end());
      if (resident_.back()->run(kSlice)) resident_.pop_back();
    }
  }

  Launch& launch_;
  std::atomic<uint64_t>& next_;
  std::atomic<bool>& stop_;
  std::deque<std::unique_ptr<Cluster>> resident_;
};

size_t worker_count(const Launch& launch) {
  const auto cores = static_cast<size_t>(std::max(1u, std::thread::hardware_concurrency()));
  const size_t wanted =
      launch.settings.threads > 0 ? static_cast<size_t>(launch.settings.threads) : cores;
  return static_cast<size_t>(std::min<uint64_t>(wanted, launch.clusters()));
}

}  // namespace

Counters run_launch(Launch& launch) {
  launch.regions = launch.memory->snapshot();
  launch.dynamic_shared_offset = (launch.kernel->static_shared + 15) & ~15u;
  if (launch.settings.checks)
    launch.shadow = std::make_unique<GlobalShadow>(
        *launch.memory, static_cast<uint32_t>(launch.ctas()), launch.serial);
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<Worker>> workers;
  for (size_t i = 0; i < worker_count(launch); ++i)
    workers.push_back(std::make_unique<Worker>(launch, next, stop));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < workers.size(); ++i)
    threads.emplace_back([&worker = *workers[i]] { worker.run(); });
  workers[0]->run();
  for (std::thread& thread : threads) thread.join();
  for (const auto& worker : workers)
    if (worker->error) std::rethrow_exception(worker->error);
  Counters total = std::move(workers[0]->counters);
  for (size_t i = 1; i < workers.size(); ++i) total.add(workers[i]->counters);
  return total;
}

}  // namespace linnet::vgpu
