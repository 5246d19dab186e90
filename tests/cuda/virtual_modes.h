// What a real GPU may do differently from one run to the next, and the virtual one does on demand:
// other orders of warps, sums of tensor cores, errors of approximate functions.
#pragma once

#include <cstdlib>
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

// A sample that has every value of every setting, or with LINNET_TEST_ALL=1 the whole product.
inline std::vector<VirtualMode> virtual_modes() {
  if (!std::getenv("LINNET_TEST_ALL"))
    return {{}, {"1", "exact", "perturbed"}, {"2", "hardware", "perturbed"}};
  std::vector<VirtualMode> all;
  for (const char* seed : {"0", "1", "2"})
    for (const char* mma : {"hardware", "exact"})
      for (const char* approx : {"rounded", "perturbed"}) all.push_back({seed, mma, approx});
  return all;
}

// Calls f(name of the mode) in every mode, or once on a device that has none.
template <class F>
void in_every_mode(const std::string& device, F f) {
  const auto set = cuda::Device::open(device)->driver().virtual_set;
  if (!set) return f(std::string("as the device is"));
  const auto enter = [&](const VirtualMode& mode) {
    set("seed", mode.seed);
    set("mma", mode.mma);
    set("approx", mode.approx);
  };
  for (const VirtualMode& mode : virtual_modes()) {
    enter(mode);
    f(mode.name());
  }
  enter({});
}

}  // namespace linnet
