// One directory of cache entries: reads, writes and removes them so that nobody, in any process,
// ever sees half of one.
//
//   <root>/<first two digits>/<key>/    an entry: its files and manifest.json; never changed
//   <root>/staging/<unique>/            an entry being written or removed
//   <root>/locks/<key>                  held by the process that builds the entry
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cache/file_lock.h"
#include "runtime/cache/manifest.h"

namespace linnet {

class Store {
 public:
  // What was found under a key: its files; or nothing, and what is wrong if an entry is there.
  struct Lookup {
    std::optional<Files> files;
    std::string damage;
  };

  struct Info {
    std::string key;     // 64 hex digits
    uint64_t bytes = 0;  // of all its files
    int64_t used = 0;    // when it was last found or stored, in nanoseconds since 1970
  };

  struct Removed {
    int entries = 0;
    uint64_t bytes = 0;
    uint64_t bytes_left = 0;
    int failed = 0;  // entries that could not be removed: another user's
  };

  explicit Store(std::filesystem::path root) : root_(std::move(root)) {}

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path entry_path(const std::string& key) const;

  // Reads and checks an entry. Does not throw.
  Lookup read(const std::string& key) const;
  // Reads the manifest only; throws if it is not there or damaged.
  Manifest read_manifest(const std::string& key) const;
  // Marks an entry as used now; that it cannot be marked is no matter.
  void touch(const std::string& key) const;

  // Stores an entry, in place of a damaged one if need be; an intact one that came first stays.
  // Returns its size. Throws std::system_error if the directory does not take it.
  uint64_t write(const CacheKey& key, const Files& files) const;

  // The entries, least recently used first.
  std::vector<Info> scan() const;
  // If there are more than `limit` bytes, removes the least recently used entries but `keep` until
  // at most `target` are left.
  Removed shrink(uint64_t limit, uint64_t target, const std::string& keep = "") const;
  // Removes what processes that died left in staging/ and locks/.
  void remove_leftovers() const;

  FileLock lock(const std::string& name) const { return FileLock(root_ / "locks" / name); }

 private:
  class Staging;
  void install(const std::filesystem::path& staged, const std::string& key) const;
  bool retire(const std::filesystem::path& entry, const Staging& trash) const;

  std::filesystem::path root_;
};

}  // namespace linnet
