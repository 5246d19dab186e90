#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "linnet/pool.h"

namespace linnet {

namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Threads : public Pool {
 public:
  explicit Threads(int count) : count_(count), shares_(count) {
    for (int i = 1; i < count; ++i) threads_.emplace_back([this, i] { serve(i); });
  }
  ~Threads() override {
    {
      std::lock_guard lock(sleep_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int workers() const override { return count_; }

  void run(int64_t tasks, Task task, void* context) override {
    if (count_ == 1 || tasks <= 1) {
      for (int64_t i = 0; i < tasks; ++i) task(context, i, 0);
      return;
    }
    std::lock_guard one(caller_);
    task_ = task;
    context_ = context;
    for (int i = 0; i < count_; ++i) {
      shares_[i].next.store(tasks * i / count_, std::memory_order_relaxed);
      shares_[i].end = tasks * (i + 1) / count_;
    }
    busy_.store(count_ - 1, std::memory_order_relaxed);
    {
      // Under the lock, so that a thread about to sleep does not miss it.
      std::lock_guard lock(sleep_);
      turn_.fetch_add(1, std::memory_order_release);
    }
    if (sleepers_.load() > 0) wake_.notify_all();
    work(0);
    // On a busy machine the others may be waiting for this very core.
    for (int looks = 0; busy_.load(std::memory_order_acquire) > 0; ++looks)
      looks < kLooks ? pause() : std::this_thread::yield();
  }

 private:
  // A thread takes its own share first, the same in every call, so that what it left in its caches
  // is of use; then what others have not come to.
  void work(int worker) {
    for (int i = 0; i < count_; ++i) {
      Share& share = shares_[(worker + i) % count_];
      for (;;) {
        int64_t index = share.next.fetch_add(1, std::memory_order_relaxed);
        if (index >= share.end) break;
        task_(context_, index, worker);
      }
    }
  }

  // How often an idle thread looks for work before it sleeps: some tens of microseconds.
  static constexpr int kLooks = 2000;

  void serve(int worker) {
    uint64_t seen = 0;
    for (;;) {
      int looks = 0;
      while (turn_.load(std::memory_order_acquire) == seen && ++looks < kLooks) pause();
      if (turn_.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(sleep_);
        ++sleepers_;
        wake_.wait(lock, [&] { return stopping_ || turn_.load() != seen; });
        --sleepers_;
        if (stopping_) return;
      }
      seen = turn_.load(std::memory_order_acquire);
      work(worker);
      busy_.fetch_sub(1, std::memory_order_release);
    }
  }

  struct alignas(64) Share {
    std::atomic<int64_t> next = 0;
    int64_t end = 0;
  };

  const int count_;
  std::vector<Share> shares_;
  std::vector<std::thread> threads_;
  std::mutex caller_, sleep_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::atomic<int> sleepers_ = 0, busy_ = 0;
  std::atomic<uint64_t> turn_ = 0;
  Task task_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace

std::shared_ptr<Pool> make_pool(int threads) { return std::make_shared<Threads>(threads); }

}  // namespace linnet
