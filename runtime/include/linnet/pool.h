// Where the work of a call runs: our own threads, or a pool of the caller's.
#pragma once

#include <cstdint>
#include <memory>

namespace linnet {

// A task is called once for every index below `tasks`, on any thread, several at a time; `worker`
// is a number below workers() that no two running tasks share.
class Pool {
 public:
  using Task = void (*)(void* context, int64_t index, int worker);
  virtual ~Pool() = default;
  virtual int workers() const = 0;
  // Returns when every task has.
  virtual void run(int64_t tasks, Task task, void* context) = 0;
};

// Threads of our own; the caller's thread is one of them. Idle threads look for work for a moment,
// then sleep. Calls from several threads at once are run one after the other.
std::shared_ptr<Pool> make_pool(int threads);

}  // namespace linnet
