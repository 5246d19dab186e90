// Keys and entries that the tests and the helper process know by a name.
#pragma once

#include "runtime/cache/cache.h"

namespace cache_test {

inline linnet::CacheKey key_of(const std::string& name) {
  return linnet::CacheKey({{"problem", name}, {"target", "x86-64-v3"}, {"generator", "test 1"}});
}

// Bytes that differ from name to name and contain every value.
inline linnet::Files files_of(const std::string& name, size_t bytes = 1000) {
  std::string code(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) code[i] = static_cast<char>(i * 7 + name[i % name.size()]);
  return {{"kernel.bin", code}, {"signature.json", "{\"name\": \"" + name + "\"}"}};
}

}  // namespace cache_test
