// The tasks of a call, dealt out among workers.
#pragma once

#include <atomic>
#include <vector>

#include "linnet/pool.h"

namespace linnet {

class Shares {
 public:
  explicit Shares(int workers) : shares_(workers) {}
  int workers() const { return static_cast<int>(shares_.size()); }

  // Runs tasks that are not worth sharing on the caller's thread; false if they are.
  bool run_alone(int64_t tasks, Pool::Task task, void* context) const {
    if (workers() > 1 && tasks > 1) return false;
    for (int64_t i = 0; i < tasks; ++i) task(context, i, 0);
    return true;
  }

  void deal(int64_t tasks, Pool::Task task, void* context) {
    task_ = task;
    context_ = context;
    int64_t count = workers();
    for (int64_t i = 0; i < count; ++i) {
      shares_[i].next.store(tasks * i / count, std::memory_order_relaxed);
      shares_[i].end = tasks * (i + 1) / count;
    }
  }

  // A worker takes its own share first, the same in every call, so that what it left in its caches
  // is of use; then what others have not come to.
  void work(int worker) {
    for (int i = 0; i < workers(); ++i) {
      Share& share = shares_[(worker + i) % workers()];
      for (;;) {
        int64_t index = share.next.fetch_add(1, std::memory_order_relaxed);
        if (index >= share.end) break;
        task_(context_, index, worker);
      }
    }
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next = 0;
    int64_t end = 0;
  };
  std::vector<Share> shares_;
  Pool::Task task_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace linnet
