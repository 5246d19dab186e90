#include "linnet/schedule.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "linnet/error.h"

namespace linnet {

std::string Schedule::describe() const {
  std::string text;
  for_each_field([&](const char* name, int64_t value, int64_t fallback) {
    if (value == fallback && name != std::string_view("chunk")) return;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  });
  return text;
}

int Schedule::fields_apart(const Schedule& other) const {
  std::vector<int64_t> values;
  for_each_field([&](const char*, int64_t value, int64_t) { values.push_back(value); });
  int apart = 0;
  auto own = values.begin();
  other.for_each_field([&](const char*, int64_t value, int64_t) { apart += value != *own++; });
  return apart;
}

bool Schedule::set(std::string_view field, int64_t value) {
  bool known = false;
  auto number = [&](const char* name, int64_t& to) {
    if (field == name) known = value >= 0 && value <= 1 << 20, to = value;
  };
  auto flag = [&](const char* name, bool& to) {
    if (field == name) known = value == 0 || value == 1, to = value != 0;
  };
  number("chunk", chunk);
  flag("fuse_stages", fuse_stages);
  flag("sink_products", sink_products);
  number("register_rows", register_rows);
  number("register_vectors", register_vectors);
  number("warps", warps);
  number("value_block", value_block);
  number("pipeline_stages", pipeline_stages);
  number("segment", segment);
  flag("separate_output", stages.separate_output);
  flag("distribute_inverse", stages.distribute_inverse);
  return known;
}

Schedule Schedule::parse(std::string_view text, const std::string& what) {
  Schedule schedule;
  auto refuse = [&](std::string_view word) {
    std::string names;
    schedule.for_each_field([&](const char* name, int64_t, int64_t) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    });
    throw UserError(fmt::format("{}: expected <field>=<number> with a field of {}; got '{}'", what,
                                names, word));
  };
  while (!text.empty()) {
    size_t end = std::min(text.find_first_of(" ,"), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    size_t equals = word.find('=');
    if (equals == std::string_view::npos) refuse(word);
    int64_t value = 0;
    const char* last = word.data() + word.size();
    auto [at, error] = std::from_chars(word.data() + equals + 1, last, value);
    if (error != std::errc() || at != last || !schedule.set(word.substr(0, equals), value))
      refuse(word);
  }
  return schedule;
}

}  // namespace linnet
