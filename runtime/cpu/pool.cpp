#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "linnet/pool.h"
#include "runtime/cpu/shares.h"

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
  explicit Threads(int count) : shares_(count) {
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

  int workers() const override { return shares_.workers(); }

  void run(int64_t tasks, Task task, void* context) override {
    if (shares_.run_alone(tasks, task, context)) return;
    std::lock_guard one(caller_);
    shares_.deal(tasks, task, context);
    {
      // Under the lock, so that a thread about to sleep does not miss it.
      std::lock_guard lock(sleep_);
      turn_.store((turn_.load(std::memory_order_relaxed) / kTurn + 1) * kTurn + kOpen,
                  std::memory_order_release);
    }
    if (sleepers_.load() > 0) wake_.notify_all();
    shares_.work(0);
    // Nobody enters any more; a thread that did not wake in time is not waited for.
    turn_.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int looks = 0; turn_.load(std::memory_order_acquire) % kOpen > 0; ++looks)
      looks < kLooks ? pause() : std::this_thread::yield();
  }

 private:
  // How often an idle thread looks for work before it sleeps: some tens of microseconds.
  static constexpr int kLooks = 2000;

  void serve(int worker) {
    uint64_t seen = 0;
    auto news = [&] { return turn_.load(std::memory_order_acquire) / kTurn != seen; };
    for (;;) {
      for (int looks = 0; !news() && looks < kLooks; ++looks) pause();
      if (!news()) {
        std::unique_lock lock(sleep_);
        ++sleepers_;
        wake_.wait(lock, [&] { return stopping_ || news(); });
        --sleepers_;
        if (stopping_) return;
      }
      uint64_t now = turn_.load(std::memory_order_acquire);
      seen = now / kTurn;
      while (now / kTurn == seen && now & kOpen)
        if (turn_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) {
          shares_.work(worker);
          turn_.fetch_sub(1, std::memory_order_release);
          break;
        }
    }
  }

  Shares shares_;
  std::vector<std::thread> threads_;
  std::mutex caller_, sleep_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::atomic<int> sleepers_ = 0;
  // The number of the call, whether threads may enter it, and how many are in it.
  static constexpr uint64_t kOpen = 1 << 16, kTurn = 1 << 17;
  std::atomic<uint64_t> turn_ = 0;
};

}  // namespace

std::shared_ptr<Pool> make_pool(int threads) { return std::make_shared<Threads>(threads); }

}  // namespace linnet
