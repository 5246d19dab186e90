// Where the work of a call runs: our own threads, or a pool of the caller's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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

// The threads of the OpenMP runtime that this process has loaded (GCC's, LLVM's or Intel's), for
// callers whose own work runs on them: its idle threads look for work for milliseconds, in which
// others wait for their cores. `where` is part of the path of the one to take, if there are
// several. Null if there is none, and in a forked process.
std::shared_ptr<Pool> openmp_pool(int threads, const std::string& where = "");

}  // namespace linnet
