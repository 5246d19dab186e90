#include "settings.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace linnet::vgpu {
namespace {

template <class T>
bool parse_number(const std::string& value, T& into) {
  const char* end = value.data() + value.size();
  const auto result = std::from_chars(value.data(), end, into);
  return result.ec == std::errc() && result.ptr == end;
}

bool parse_flag(const std::string& value, bool& into) {
  into = value != "0" && value != "off";
  return true;
}

template <class T>
bool parse_choice(const std::string& value, std::string_view first, T first_value,
                  std::string_view second, T second_value, T& into) {
  if (value != first && value != second) return false;
  into = value == first ? first_value : second_value;
  return true;
}

struct SettingRow {
  const char* name;
  const char* variable;
  bool (*set)(Settings&, const std::string&);
};

constexpr SettingRow kRows[] = {
    {"arch", "LINNET_VIRTUAL_ARCH",
     [](Settings& s, const std::string& v) { return s.arch = v, !v.empty(); }},
    {"checks", "LINNET_VIRTUAL_CHECKS",
     [](Settings& s, const std::string& v) { return parse_flag(v, s.checks); }},
    {"strict", "LINNET_VIRTUAL_STRICT",
     [](Settings& s, const std::string& v) { return parse_flag(v, s.strict); }},
    {"mma", "LINNET_VIRTUAL_MMA",
     [](Settings& s, const std::string& v) {
       return parse_choice(v, "hardware", MmaMode::Hardware, "exact", MmaMode::Exact, s.mma);
     }},
    {"approx", "LINNET_VIRTUAL_APPROX",
     [](Settings& s, const std::string& v) {
       return parse_choice(v, "rounded", ApproxMode::Rounded, "perturbed", ApproxMode::Perturbed,
                           s.approx);
     }},
    {"seed", "LINNET_VIRTUAL_SEED",
     [](Settings& s, const std::string& v) { return parse_number(v, s.seed); }},
    {"threads", "LINNET_VIRTUAL_THREADS",
     [](Settings& s, const std::string& v) { return parse_number(v, s.threads); }},
    {"watchdog", "LINNET_VIRTUAL_WATCHDOG",
     [](Settings& s, const std::string& v) { return parse_number(v, s.watchdog); }},
    {"log", "LINNET_VIRTUAL_LOG",
     [](Settings& s, const std::string& v) { return parse_flag(v, s.log); }},
    {"counts", "LINNET_VIRTUAL_COUNTS",
     [](Settings& s, const std::string& v) { return parse_flag(v, s.counts); }},
};

}  // namespace

bool set_setting(Settings& settings, const std::string& name, const std::string& value) {
  for (const SettingRow& row : kRows)
    if (name == row.name) return row.set(settings, value);
  return false;
}

Settings settings_from_environment() {
  Settings settings;
  for (const SettingRow& row : kRows)
    if (const char* value = std::getenv(row.variable)) row.set(settings, value);
  return settings;
}

}  // namespace linnet::vgpu
