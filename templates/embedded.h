// The device library's headers as text, compiled into the library: what NVRTC is given.
#pragma once

#include <map>
#include <string>

namespace linnet {

// By file name: "tile.cuh".
const std::map<std::string, std::string>& embedded_templates();

}  // namespace linnet
