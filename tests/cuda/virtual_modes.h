// What a real GPU may do differently from one run to the next, and the virtual one does on demand:
// other orders of warps, sums of tensor cores, errors of approximate functions.
#pragma once

#include <string>
#include <vector>

#include "runtime/cuda/device.h"

namespace linnet {

struct VirtualMode {
  const char* seed = "0";          // order of warps
  const char* mma = "hardware";    // or exact
  const char* approx = "rounded";  // or perturbed
  std::string name() const {
    return std::string("seed ") + seed + ", mma " + mma + ", approx " + approx;
  }
};

// A sample that has every value of every setting.
inline const std::vector<VirtualMode> kSampledModes = {
    {}, {"1", "exact", "perturbed"}, {"2", "hardware", "perturbed"}};
// Every pair of values of two settings.
inline const std::vector<VirtualMode> kPairedModes = {{},
                                                      {"0", "exact", "perturbed"},
                                                      {"1", "hardware", "perturbed"},
                                                      {"1", "exact", "rounded"},
                                                      {"2", "hardware", "rounded"},
                                                      {"2", "exact", "perturbed"}};

// Calls f(name of the mode) in every mode of a list, or once on a device that has none.
template <class F>
void in_modes(const std::string& device, const std::vector<VirtualMode>& modes, F f) {
  const auto set = cuda::Device::open(device)->driver().virtual_set;
  if (!set) return f(std::string("as the device is"));
  const auto enter = [&](const VirtualMode& mode) {
    set("seed", mode.seed);
    set("mma", mode.mma);
    set("approx", mode.approx);
  };
  for (const VirtualMode& mode : modes) {
    enter(mode);
    f(mode.name());
  }
  enter({});
}

}  // namespace linnet
