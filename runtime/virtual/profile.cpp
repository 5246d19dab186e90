#include "profile.h"

#include <charconv>
#include <stdexcept>
#include <string_view>

#include "embedded_profiles.h"

namespace linnet::vgpu {
namespace {

struct IntField {
  std::string_view key;
  int DeviceProfile::* member;
};

constexpr IntField kIntFields[] = {
    {"major", &DeviceProfile::major},
    {"minor", &DeviceProfile::minor},
    {"sm_count", &DeviceProfile::sm_count},
    {"clock_khz", &DeviceProfile::clock_khz},
    {"memory_clock_khz", &DeviceProfile::memory_clock_khz},
    {"memory_bus_bits", &DeviceProfile::memory_bus_bits},
    {"l2_bytes", &DeviceProfile::l2_bytes},
    {"shared_per_sm", &DeviceProfile::shared_per_sm},
    {"shared_per_block", &DeviceProfile::shared_per_block},
    {"shared_per_block_optin", &DeviceProfile::shared_per_block_optin},
    {"shared_reserved", &DeviceProfile::shared_reserved},
    {"registers_per_sm", &DeviceProfile::registers_per_sm},
    {"registers_per_block", &DeviceProfile::registers_per_block},
    {"threads_per_sm", &DeviceProfile::threads_per_sm},
    {"blocks_per_sm", &DeviceProfile::blocks_per_sm},
    {"bandwidth_gbs", &DeviceProfile::bandwidth_gbs},
    {"l2_gbs", &DeviceProfile::l2_gbs},
    {"tensor_bf16_tflops", &DeviceProfile::tensor_bf16_tflops},
    {"mma_sync_percent", &DeviceProfile::mma_sync_percent},
    {"fp32_tflops", &DeviceProfile::fp32_tflops},
    {"fp32_lanes", &DeviceProfile::fp32_lanes},
    {"integer_lanes", &DeviceProfile::integer_lanes},
    {"latency_global", &DeviceProfile::latency_global},
    {"latency_shared", &DeviceProfile::latency_shared},
    {"latency_mma", &DeviceProfile::latency_mma},
    {"latency_launch_ns", &DeviceProfile::latency_launch_ns},
    {"mma_block", &DeviceProfile::mma_block},
    {"mma_extra_bits", &DeviceProfile::mma_extra_bits},
};

std::string_view trim(std::string_view text) {
  const std::string_view blank = " \t\r";
  const size_t first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

template <class T>
T number(std::string_view key, std::string_view value) {
  T parsed = 0;
  const auto result = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (result.ec != std::errc() || result.ptr != value.data() + value.size())
    throw std::runtime_error("device profile: bad number for " + std::string(key));
  return parsed;
}

void set_field(DeviceProfile& profile, std::string_view key, std::string_view value) {
  if (key == "arch") return void(profile.arch = value);
  if (key == "name") return void(profile.name = value);
  if (key == "memory_bytes") return void(profile.memory_bytes = number<uint64_t>(key, value));
  for (const IntField& field : kIntFields)
    if (field.key == key) return void(profile.*field.member = number<int>(key, value));
  throw std::runtime_error("device profile: unknown key " + std::string(key));
}

// "key = value" lines; '#' starts a comment.
DeviceProfile parse_profile(std::string_view text) {
  DeviceProfile profile;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos)
      throw std::runtime_error("device profile: line without =");
    set_field(profile, trim(line.substr(0, equals)), trim(line.substr(equals + 1)));
  }
  profile.cluster_launch = profile.major >= 9;
  return profile;
}

}  // namespace

const std::vector<DeviceProfile>& device_profiles() {
  static const std::vector<DeviceProfile> profiles = [] {
    std::vector<DeviceProfile> parsed;
    for (const char* text : kEmbeddedProfiles) parsed.push_back(parse_profile(text));
    return parsed;
  }();
  return profiles;
}

const DeviceProfile* find_profile(const std::string& arch) {
  for (const DeviceProfile& profile : device_profiles())
    if (profile.arch == arch) return &profile;
  return nullptr;
}

}  // namespace linnet::vgpu
