#include "runtime/cache/cache.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "linnet/error.h"
#include "runtime/environment.h"
#include "runtime/log.h"

namespace linnet {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

fs::path made_absolute(const fs::path& path) {
  std::error_code error;  // the working directory may be gone
  fs::path result = fs::absolute(path, error);
  return error ? path : result;
}

std::string short_name(const CacheKey& key) { return key.hex().substr(0, 12); }

// Once a process: a root that takes nothing would else be mentioned with every kernel.
void log_unwritable(const fs::path& root, const char* why) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  log_info("the kernel cache {} takes no entries ({}): kernels are compiled again in each process",
           root.string(), why);
}

}  // namespace

fs::path Cache::default_root() {
  if (auto directory = environment::get(environment::cache_dir)) {
    if (!directory->empty()) return *directory;
    throw UserError(
        fmt::format("{}: expected a directory, or not to be set at all for {}; got empty text",
                    environment::cache_dir.name, environment::cache_dir.fallback));
  }
  const char* caches = std::getenv("XDG_CACHE_HOME");
  if (caches && caches[0] == '/') return fs::path(caches) / "linnet";
  const char* home = std::getenv("HOME");
  if (home && home[0] == '/') return fs::path(home) / ".cache/linnet";
  if (const passwd* user = ::getpwuid(::getuid()); user && user->pw_dir && user->pw_dir[0] == '/')
    return fs::path(user->pw_dir) / ".cache/linnet";
  return {};
}

uint64_t Cache::default_max_bytes() {
  const auto& variable = environment::cache_size;
  return environment::parse_bytes(environment::get(variable).value_or(variable.fallback),
                                  variable.name);
}

std::vector<fs::path> Cache::default_bundles() {
  std::vector<fs::path> bundles;
  std::stringstream text(environment::get(environment::bundle).value_or(""));
  for (std::string path; std::getline(text, path, ':');)
    if (!path.empty()) bundles.emplace_back(path);
  return bundles;
}

Cache::Cache(Options options)
    : options_(std::move(options)),
      enabled_(options_.enabled && !options_.root.empty()),
      store_(made_absolute(options_.root)) {
  if (options_.enabled && !enabled_)
    log_info("the kernel cache is off: there is no home directory, and {} is not set",
             environment::cache_dir.name);
  for (const fs::path& bundle : options_.bundles) {
    if (!fs::is_directory(bundle))
      throw UserError(fmt::format(
          "bundle: expected a directory made by `linnet compile`; got '{}', which is none",
          bundle.string()));
    bundles_.emplace_back(made_absolute(bundle));
  }
}

// Whoever names a bundle wants these kernels and no others: to go on without them would be a
// surprise later.
std::optional<Files> Cache::find_in_bundles(const std::string& key) const {
  for (const Store& bundle : bundles_) {
    Store::Lookup lookup = bundle.read(key);
    if (lookup.files) return lookup.files;
    if (!lookup.damage.empty())
      throw DeviceError(
          fmt::format("bundle: {} is damaged: {}", bundle.entry_path(key).string(), lookup.damage));
  }
  return std::nullopt;
}

std::vector<CacheKey::Fields> Cache::bundled() const {
  std::vector<CacheKey::Fields> list;
  for (const Store& bundle : bundles_)
    for (const Store::Info& info : bundle.scan()) try {
        list.push_back(bundle.read_manifest(info.key).key.fields());
      } catch (const std::exception&) {  // a damaged one has none
      }
  return list;
}

std::optional<Files> Cache::find(const std::string& key) {
  if (auto files = find_in_bundles(key)) return files;
  if (!enabled_) return std::nullopt;
  Store::Lookup lookup = store_.read(key);
  if (lookup.files) store_.touch(key);
  if (!lookup.damage.empty())
    log_info("cache entry {}: damaged, will be built again: {}", store_.entry_path(key).string(),
             lookup.damage);
  return lookup.files;
}

Files Cache::find_or_build(const CacheKey& key, const Builder& build) {
  if (auto files = find(key)) return *std::move(files);
  if (!enabled_) return build();

  std::shared_ptr<Flight> flight;
  {
    std::unique_lock lock(mutex_);
    while (true) {
      auto [place, first] = flights_.try_emplace(key.hex());
      if (first) place->second = std::make_shared<Flight>();
      flight = place->second;
      if (first) break;
      landed_.wait(lock, [&] { return flight->finished; });
      if (flight->files) return *flight->files;
    }
  }
  auto land = [&](std::optional<Files> files) {
    std::lock_guard lock(mutex_);
    flight->finished = true;
    flight->files = std::move(files);
    flights_.erase(key.hex());
    landed_.notify_all();
  };
  try {
    Files files = build_and_store(key, build);
    land(files);
    return files;
  } catch (...) {
    land(std::nullopt);
    throw;
  }
}

Files Cache::build_and_store(const CacheKey& key, const Builder& build) {
  FileLock lock = store_.lock(key.hex());
  if (auto files = wait_for_other_process(key, lock)) return *std::move(files);
  log_debug("cache: building {}", short_name(key));
  Files files = build();
  store(key, files);
  return files;
}

// Returns the entry once it is there. Returns nothing when it is this process's turn to build: it
// has the lock (perhaps because the process that had it died), there is no lock, or it waited long
// enough.
std::optional<Files> Cache::wait_for_other_process(const CacheKey& key, FileLock& lock) {
  const auto deadline = std::chrono::steady_clock::now() + options_.wait;
  for (auto pause = 1ms;; pause = std::min(2 * pause, std::chrono::milliseconds(20ms))) {
    FileLock::State state = lock.try_acquire();
    // After the attempt: whoever held the lock before has stored its entry.
    Store::Lookup lookup = store_.read(key.hex());
    if (lookup.files) return lookup.files;
    if (state != FileLock::State::busy) return std::nullopt;
    if (std::chrono::steady_clock::now() >= deadline) {
      log_info("cache: another process has been building {} for {} ms; building it here as well",
               short_name(key), options_.wait.count());
      return std::nullopt;
    }
    std::this_thread::sleep_for(pause);
  }
}

// A root that is read-only, full or odd in any way costs the entry, not the caller.
void Cache::store(const CacheKey& key, const Files& files) {
  try {
    keep_within_bound(key, store_.write(key, files));
  } catch (const InternalError&) {
    throw;  // a file name no entry can hold: ours to mend
  } catch (const std::exception& error) {
    log_unwritable(store_.root(), error.what());
  }
}

// Counting reads every directory of the cache. So it is done at the first store of a process, when
// the sum since says so, and now and then because other processes store too.
void Cache::keep_within_bound(const CacheKey& stored, uint64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    if (total_bytes_) *total_bytes_ += bytes;
    bool known = total_bytes_ && ++stores_since_count_ < 64;
    if (known && *total_bytes_ <= options_.max_bytes) return;
  }
  FileLock lock = store_.lock("prune");
  if (lock.try_acquire() == FileLock::State::busy) return;  // another process is at it
  store_.remove_leftovers();
  // To a tenth below the bound, so that not every store has to remove something.
  const uint64_t target = options_.max_bytes / 10 * 9;
  Store::Removed removed = store_.shrink(options_.max_bytes, target, stored.hex());
  if (removed.entries > 0)
    log_debug("cache: removed {} entries, {} bytes", removed.entries, removed.bytes);
  std::lock_guard guard(mutex_);
  total_bytes_ = removed.bytes_left;
  stores_since_count_ = 0;
}

std::vector<EntryInfo> Cache::describe(bool read_files) const {
  std::vector<EntryInfo> entries;
  for (const Store::Info& info : store_.scan()) {
    EntryInfo entry{info.key, store_.entry_path(info.key), info.bytes};
    entry.used = info.used / 1'000'000'000;
    try {
      Manifest manifest = store_.read_manifest(info.key);
      entry.created = manifest.created;
      entry.fields = manifest.key.fields();
    } catch (const std::exception& error) {
      entry.damage = error.what();
    }
    if (read_files && entry.damage.empty()) entry.damage = store_.read(info.key).damage;
    std::error_code ignored;
    if (fs::exists(entry.path, ignored)) entries.push_back(std::move(entry));  // not removed since
  }
  std::reverse(entries.begin(), entries.end());
  return entries;
}

std::vector<EntryInfo> Cache::list() const { return describe(false); }

std::vector<EntryInfo> Cache::verify() const { return describe(true); }

Store::Removed Cache::prune(uint64_t max_bytes) {
  store_.remove_leftovers();
  Store::Removed removed = store_.shrink(max_bytes, max_bytes);
  std::lock_guard lock(mutex_);
  total_bytes_ = removed.bytes_left;
  return removed;
}

}  // namespace linnet
