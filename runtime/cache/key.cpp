#include "runtime/cache/key.h"

#include <fmt/format.h>

#include <algorithm>

#include "linnet/error.h"
#include "runtime/cache/sha256.h"

namespace linnet {

CacheKey::CacheKey(Fields fields) : fields_(std::move(fields)) {
  if (fields_.empty()) throw InternalError("cache key: expected at least one field");
  for (auto& [name, text] : fields_)
    if (text.size() > 1000)
      text = fmt::format("{} bytes of sha256 {}", text.size(), sha256_hex(text));

  Fields sorted = fields_;
  std::sort(sorted.begin(), sorted.end());
  // Lengths keep apart what would read the same when put side by side.
  std::string canonical = "linnet cache 1\n";
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto& [name, text] = sorted[i];
    if (name.empty() || (i > 0 && name == sorted[i - 1].first))
      throw InternalError(
          fmt::format("cache key: expected names that are there once; got '{}'", name));
    canonical += fmt::format("{} {} {} {}\n", name.size(), name, text.size(), text);
  }
  hex_ = sha256_hex(canonical);
}

}  // namespace linnet
