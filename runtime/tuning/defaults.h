// The schedule of a problem that nobody tuned, in one place for all devices; and the one a caller
// insists on.
#pragma once

#include <optional>

#include "linnet/device.h"

namespace linnet {

enum class DeviceKind { cpu, gpu };

// `here`: for this machine, whose matrix unit (AMX) counts.
Schedule default_schedule(DeviceKind kind, const Problem& problem, Direction direction,
                          bool here = true);

// What the options ask for; nothing if they leave it to us. Throws UserError for what no device can
// do.
std::optional<Schedule> wished_schedule(DeviceKind kind, const Problem& problem,
                                        const BuildOptions& options);

}  // namespace linnet
