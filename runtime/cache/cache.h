// The kernel cache: what was compiled once, by any process of this machine, is not compiled again.
//
// An entry is found by everything it depends on (CacheKey), is checked whenever it is read, and is
// never changed. Nothing that goes wrong with the directory reaches the caller: an entry that is
// damaged or cannot be stored costs a build and a line in the log, no more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cache/store.h"

namespace linnet {

// What `linnet cache list` and `verify` know of an entry.
struct EntryInfo {
  std::string key;  // 64 hex digits
  std::filesystem::path path;
  uint64_t bytes = 0;
  int64_t created = 0, used = 0;  // seconds since 1970
  CacheKey::Fields fields;
  std::string damage;  // what is wrong with it; empty if nothing is
};

class Cache {
 public:
  struct Options {
    std::filesystem::path root = default_root();
    uint64_t max_bytes = default_max_bytes();
    // Directories of the same form that are looked in first and never written. Unlike the cache
    // they have to be there and whole.
    std::vector<std::filesystem::path> bundles = default_bundles();
    // How long to wait for another process that builds the same entry.
    std::chrono::milliseconds wait{30'000};
    // Without it, or with an empty root, only bundles are looked in, and nothing is stored.
    bool enabled = true;
  };

  using Builder = std::function<Files()>;

  // $LINNET_CACHE_DIR, $XDG_CACHE_HOME/linnet or ~/.cache/linnet; empty if there is no home
  // directory. Throws UserError if the first is set to empty text.
  static std::filesystem::path default_root();
  // $LINNET_CACHE_SIZE or 1 GiB.
  static uint64_t default_max_bytes();

  // Those of $LINNET_BUNDLE.
  static std::vector<std::filesystem::path> default_bundles();

  // Throws UserError for a bundle that is not there.
  explicit Cache(Options options);

  const std::filesystem::path& root() const { return store_.root(); }

  // Throws DeviceError if a bundle's entry is damaged.
  std::optional<Files> find(const CacheKey& key) { return find(key.hex()); }
  std::optional<Files> find(const std::string& key);
  std::optional<Files> find_in_bundles(const std::string& key) const;
  bool has_bundles() const { return !bundles_.empty(); }
  // The fields of every entry of the bundles, for messages.
  std::vector<CacheKey::Fields> bundled() const;

  // The entry's files, built and stored if there are none. One thread of one process builds, the
  // others wait for it; if its build throws they try themselves. Throws what `build` throws.
  Files find_or_build(const CacheKey& key, const Builder& build);

  // The entries of the root, most recently used first; `verify` also reads every file.
  std::vector<EntryInfo> list() const;
  std::vector<EntryInfo> verify() const;
  // Removes the least recently used entries until at most max_bytes are left, and the leftovers of
  // processes that died. Throws std::system_error if the root is read-only.
  Store::Removed prune(uint64_t max_bytes);

 private:
  // A build in this process that other threads may wait for.
  struct Flight {
    bool finished = false;
    std::optional<Files> files;  // nothing if its build threw
  };

  Files build_and_store(const CacheKey& key, const Builder& build);
  std::optional<Files> wait_for_other_process(const CacheKey& key, FileLock& lock);
  void store(const CacheKey& key, const Files& files);
  void keep_within_bound(const CacheKey& stored, uint64_t bytes);
  std::vector<EntryInfo> describe(bool read_files) const;

  const Options options_;
  const bool enabled_;
  const Store store_;
  std::vector<Store> bundles_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable landed_;
  std::map<std::string, std::shared_ptr<Flight>> flights_;
  std::optional<uint64_t> total_bytes_;  // of the root: as last counted, and what was stored since
  int stores_since_count_ = 0;
};

}  // namespace linnet
