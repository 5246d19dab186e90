#include "runtime/cuda/driver.h"

#include <fmt/format.h>

#include "linnet/error.h"

namespace linnet::cuda {

Driver::Driver(const std::filesystem::path& path) : library_(path) {
#define LINNET_DRIVER_FUNCTION(name, parameters) library_.bind(#name, name);
#include "runtime/cuda/driver_api.def"
#undef LINNET_DRIVER_FUNCTION
  auto optional = [&](const char* name, auto& function) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(library_.try_find(name));
  };
  optional("linnet_virtual_set", virtual_set);
  optional("linnet_virtual_last_error", virtual_last_error);
  optional("linnet_virtual_findings", virtual_findings);
  optional("linnet_virtual_counts", virtual_counts);
  optional("linnet_virtual_launches", virtual_launches);
  optional("linnet_virtual_reset", virtual_reset);
}

void Driver::check(int result, const std::string& what) const {
  if (result == 0) return;
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  std::string message =
      fmt::format("{}: {} ({})", what, name ? name : "unknown error", text ? text : "");
  if (virtual_last_error && *virtual_last_error())
    message += fmt::format("\n{}", virtual_last_error());
  throw DeviceError(message);
}

}  // namespace linnet::cuda
