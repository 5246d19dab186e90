#include <fmt/format.h>

#include "autotune/measurer.h"
#include "linnet/error.h"

namespace linnet::autotune {

std::unique_ptr<Measurer> model(const std::string& device, const Subject&) {
  throw DeviceError(fmt::format(
      "device: expected cpu or cuda:<number>, got {}: there is no cost model to rank schedules by "
      "yet (--list works)",
      device));
}

}  // namespace linnet::autotune
