// A pool of the OpenMP runtime that is in the process already. Such a runtime's idle threads look
// for work for milliseconds before they sleep, and torch's look on while our own threads want their
// cores: work that follows an op of torch runs up to twice as long beside them, and at full speed
// on them.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "linnet/pool.h"
#include "runtime/cpu/shares.h"

namespace linnet {

namespace {

// What GCC calls for a parallel region; LLVM's and Intel's runtimes have it too.
using Parallel = void (*)(void (*)(void*), void*, unsigned threads, unsigned flags);
using ThreadNumber = int (*)();

struct Runtime {
  Parallel parallel = nullptr;
  ThreadNumber thread_number = nullptr;
  explicit operator bool() const { return parallel && thread_number; }
};

// The files of OpenMP runtimes that are loaded, those with `where` in their path first.
std::vector<std::string> loaded_runtimes(const std::string& where) {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* list) {
        std::string path = info->dlpi_name, name = path.substr(path.rfind('/') + 1);
        for (const char* known : {"libgomp", "libomp", "libiomp5"})
          if (name.starts_with(known))
            static_cast<std::vector<std::string>*>(list)->push_back(path);
        return 0;
      },
      &paths);
  std::stable_partition(paths.begin(), paths.end(), [&](const std::string& path) {
    return path.find(where) != std::string::npos;
  });
  return paths;
}

Runtime find_runtime(const std::string& where) {
  for (const std::string& path : loaded_runtimes(where)) {
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!library) continue;
    Runtime runtime{reinterpret_cast<Parallel>(dlsym(library, "GOMP_parallel")),
                    reinterpret_cast<ThreadNumber>(dlsym(library, "omp_get_thread_num"))};
    if (runtime) return runtime;  // the library stays open: so does the runtime
    dlclose(library);
  }
  return {};
}

class OpenMp : public Pool {
 public:
  OpenMp(Runtime runtime, int workers) : runtime_(runtime), shares_(workers) {}

  int workers() const override { return shares_.workers(); }

  void run(int64_t tasks, Task task, void* context) override {
    if (shares_.run_alone(tasks, task, context)) return;
    std::lock_guard one(caller_);
    shares_.deal(tasks, task, context);
    // It may give fewer threads than asked for, inside a parallel region only one: whoever comes
    // does the work.
    runtime_.parallel(
        [](void* self) {
          auto* pool = static_cast<OpenMp*>(self);
          pool->shares_.work(pool->runtime_.thread_number());
        },
        this, workers(), 0);
  }

 private:
  Runtime runtime_;
  Shares shares_;
  std::mutex caller_;
};

// A forked process has a runtime whose threads are gone; to use it again is to wait for ever.
bool is_forked = false;

}  // namespace

std::shared_ptr<Pool> openmp_pool(int threads, const std::string& where) {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { is_forked = true; });
  Runtime runtime = watched == 0 && !is_forked ? find_runtime(where) : Runtime();
  return runtime ? std::make_shared<OpenMp>(runtime, threads) : nullptr;
}

}  // namespace linnet
