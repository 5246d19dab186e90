// How the virtual GPU runs: every environment variable it reads, its default and its meaning.
#pragma once

#include <cstdint>
#include <string>

namespace linnet::vgpu {

enum class MmaMode : uint8_t {
  Hardware,  // block-wise fused sums with truncation, widths from the device profile
  Exact,     // products and sum in double, rounded once to the result
};

enum class ApproxMode : uint8_t {
  Rounded,    // ex2, rcp, ... correctly rounded
  Perturbed,  // moved by up to their documented error, by a hash of the argument
};

struct Settings {
  // LINNET_VIRTUAL_ARCH: device profile (sm_80, sm_89, sm_90, sm_100, sm_120).
  std::string arch = "sm_90";
  // LINNET_VIRTUAL_CHECKS: 0 turns off every check except bounds of memory.
  bool checks = true;
  // LINNET_VIRTUAL_STRICT: 0 makes findings that are no faults (races, uninitialised reads) not
  // fail the launch.
  bool strict = true;
  // LINNET_VIRTUAL_MMA: hardware or exact.
  MmaMode mma = MmaMode::Hardware;
  // LINNET_VIRTUAL_APPROX: rounded or perturbed.
  ApproxMode approx = ApproxMode::Rounded;
  // LINNET_VIRTUAL_SEED: 0 runs warps in order; others shuffle warps and cut their turns short.
  uint64_t seed = 0;
  // LINNET_VIRTUAL_THREADS: host threads; 0 means one a core.
  int threads = 0;
  // LINNET_VIRTUAL_WATCHDOG: warp instructions one CTA may execute before it counts as hung.
  uint64_t watchdog = 2'000'000'000;
  // LINNET_VIRTUAL_LOG: prints errors and findings to stderr.
  bool log = false;
  // LINNET_VIRTUAL_COUNTS: 0 turns off sector and bank-conflict counting.
  bool counts = true;
};

Settings settings_from_environment();
// Changes one setting by the lower-case tail of its variable's name ("checks", "mma", ...); false
// when the name or the value is not known.
bool set_setting(Settings& settings, const std::string& name, const std::string& value);

}  // namespace linnet::vgpu
