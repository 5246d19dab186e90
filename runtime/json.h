// JSON as tuning files and the cache's manifests need it: read whole, checked, small.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace linnet {

struct Json {
  enum class Kind { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  double number = 0;  // booleans: 0 or 1
  std::string text;
  std::vector<Json> items;
  std::vector<std::pair<std::string, Json>> members;

  // Throws Error that says what was expected, and at which byte.
  static Json parse(std::string_view text);
  // A member of an object; null if there is none.
  const Json* find(std::string_view name) const;
  // The same that must be there and of a kind; throws Error with its name.
  const Json& at(std::string_view name, Kind kind) const;
  const std::string& string_at(std::string_view name) const { return at(name, Kind::string).text; }
  double number_at(std::string_view name) const { return at(name, Kind::number).number; }
  // A whole number from `least` to `most`; throws Error with its name.
  int64_t whole_at(std::string_view name, int64_t least, int64_t most) const;
};

// A text in quotes, as JSON writes it.
std::string json_quoted(std::string_view text);

}  // namespace linnet
