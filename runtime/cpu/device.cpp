// The device `cpu`: a pool of threads, the cache of kernels, and this machine's processor.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "generator_id.h"
#include "runtime/cache/cache.h"
#include "runtime/cpu/memory.h"
#include "runtime/cpu/op.h"
#include "runtime/cpu/processor.h"
#include "runtime/environment.h"
#include "runtime/log.h"
#include "runtime/plugin.h"
#include "runtime/tuning/defaults.h"

namespace linnet {

namespace {

constexpr int kMostThreads = 4096;

int thread_count(int asked) {
  if (asked < 0 || asked > kMostThreads)
    throw UserError(fmt::format("threads: expected 0 (one a core) or a number up to {}, got {}",
                                kMostThreads, asked));
  if (asked > 0) return asked;
  if (auto text = environment::get(environment::threads)) {
    char* end = nullptr;
    long count = std::strtol(text->c_str(), &end, 10);
    if (text->empty() || *end || count < 1 || count > kMostThreads)
      throw UserError(fmt::format("LINNET_THREADS: expected a number from 1 to {}, got '{}'",
                                  kMostThreads, *text));
    return static_cast<int>(count);
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

// Kernels from the cache or the compiler; those in use by any op are shared.
class KernelStore {
 public:
  explicit KernelStore(const DeviceOptions& options) : cache_(cache_options(options)) {}

  std::shared_ptr<const LoadedKernel> load(const CpuRequest& request) {
    std::string what = request.describe();
    if (!request.target_cpu.empty()) what += " for " + request.target_cpu;
    {
      std::lock_guard lock(mutex_);
      if (auto known = loaded_[what].lock()) return known;
    }
    CacheKey key({{"kind", "cpu kernel"},
                  {"what", what},
                  {"processor",
                   request.target_cpu.empty() ? Processor::host().describe() : request.target_cpu},
                  {"matrix unit", request.matrix_unit ? "allowed" : "refused"},
                  {"generator", kGeneratorId}});
    KernelInfo info{.what = what, .key = key.hex(), .from_cache = true};
    Files files = cache_.find_or_build(key, [&] {
      info.from_cache = false;
      return compile(request, what, key);
    });
    auto kernel = std::make_shared<const LoadedKernel>(parse(files), info);
    std::lock_guard lock(mutex_);
    loaded_[what] = kernel;
    return kernel;
  }

 private:
  static Files compile(const CpuRequest& request, const std::string& what, const CacheKey& key) {
    auto start = std::chrono::steady_clock::now();
    CpuKernel kernel = compiler_for(fmt::format("{} (key {})", what, key.hex())).compile(request);
    std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
    log_debug("compiled {} in {:.0f} ms", what, taken.count());
    return {{"kernel.bin", kernel.code}, {"kernel.txt", kernel.describe()}};
  }
  static CpuKernel parse(Files& files) {
    return CpuKernel::parse(files["kernel.txt"], std::move(files["kernel.bin"]));
  }

  Cache cache_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const LoadedKernel>> loaded_;
};

class CpuDevice : public Device::Impl {
 public:
  explicit CpuDevice(const DeviceOptions& options)
      : pool_(options.pool ? options.pool : make_pool(thread_count(options.threads))),
        store_(std::make_shared<KernelStore>(options)) {
    if (pool_->workers() < 1)
      throw UserError(fmt::format("pool: expected at least 1 worker, got {}", pool_->workers()));
    name = "cpu";
  }

  int threads() const override { return pool_->workers(); }
  void write(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  void read(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  void synchronise() const override {}

  Buffer allocate(size_t bytes) const override { return allocate_on_host(bytes); }

  Op build(const Problem& problem, const BuildOptions& options) const override {
    CpuRequest request{
        .problem = problem, .direction = options.direction, .target_cpu = options.target_cpu};
    if (request.target_cpu.empty()) request.matrix_unit = allow_matrix_unit();
    // Code for another processor runs elsewhere: what is known of this one says nothing of it.
    bool here = options.target_cpu.empty();
    auto wished = wished_schedule(DeviceKind::cpu, problem, options);
    request.schedule =
        wished ? *wished : default_schedule(DeviceKind::cpu, problem, options.direction, here);
    Schedules schedules =
        wished || !here ? Schedules(request.schedule) : table_.find(problem, options.direction);
    auto store = store_;
    auto op = std::make_shared<CpuOp>(
        request, schedules, wished.has_value(),
        [store](const CpuRequest& r) { return store->load(r); }, pool_);
    op->device = shared_from_this();
    return Op(op);
  }

 private:
  std::shared_ptr<Pool> pool_;
  ScheduleTable table_ = ScheduleTable::open(DeviceKind::cpu, cpu_architecture());
  std::shared_ptr<KernelStore> store_;
};

}  // namespace

std::shared_ptr<const Device::Impl> open_cpu(const DeviceOptions& options) {
  return std::make_shared<CpuDevice>(options);
}

}  // namespace linnet
