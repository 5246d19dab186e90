// What a cache entry is found by: named texts that together say everything its files depend on.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace linnet {

class CacheKey {
 public:
  using Fields = std::vector<std::pair<std::string, std::string>>;

  // For example {{"problem", ...}, {"schedule", ...}, {"target", ...}, {"generator", ...}}, the
  // most telling first: `linnet cache list` shows them in this order. The order does not change the
  // key. Throws InternalError for no fields and for a name that is empty or there twice.
  explicit CacheKey(Fields fields);

  // 64 hex digits: the SHA-256 of the fields.
  const std::string& hex() const { return hex_; }

  // The fields as a manifest keeps them. A text of more than a thousand bytes is replaced by its
  // digest, before the key is computed: so a manifest stays small, and its fields give its key.
  const Fields& fields() const { return fields_; }

 private:
  Fields fields_;
  std::string hex_;
};

}  // namespace linnet
