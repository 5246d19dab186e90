// manifest.json of a cache entry: whose entry it is, and the length and digest of each file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "runtime/cache/key.h"

namespace linnet {

// The files of an entry: name -> bytes.
using Files = std::map<std::string, std::string>;

struct Manifest {
  struct File {
    uint64_t bytes = 0;
    std::string sha256;
  };

  CacheKey key;
  int64_t created = 0;  // seconds since 1970
  std::map<std::string, File> files;

  // Describes files about to be stored; throws InternalError for a name an entry cannot hold.
  static Manifest of(const CacheKey& key, const Files& files, int64_t created);
  // Reads what text() wrote; throws Error saying what is wrong with it.
  static Manifest parse(std::string_view text);
  std::string text() const;
};

inline constexpr const char* manifest_name = "manifest.json";

}  // namespace linnet
