#include "runtime/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "linnet/error.h"

namespace linnet::environment {

std::optional<std::string> get(const Variable& variable) {
  const char* text = std::getenv(variable.name);
  if (!text) return std::nullopt;
  return text;
}

uint64_t parse_bytes(const std::string& text, const std::string& name) {
  uint64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view suffix(end, text.data() + text.size() - end);
  int shift = suffix.empty()                   ? 0
              : suffix == "K" || suffix == "k" ? 10
              : suffix == "M" || suffix == "m" ? 20
              : suffix == "G" || suffix == "g" ? 30
                                               : -1;
  if (error != std::errc() || shift < 0 || number > (UINT64_MAX >> shift))
    throw UserError(fmt::format(
        "{}: expected a number of bytes, with K, M or G for powers of 1024, such as 512M; got '{}'",
        name, text));
  return number << shift;
}

}  // namespace linnet::environment
