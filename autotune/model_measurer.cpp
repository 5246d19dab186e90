#include "autotune/measurer.h"
#include "linnet/error.h"
namespace linnet::autotune {
std::unique_ptr<Measurer> model(const std::string&, const Subject&) {
  throw DeviceError("no model");
}
}  // namespace linnet::autotune
