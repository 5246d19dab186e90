#include "runtime/cpu/processor.h"

#include <fmt/format.h>

#include <fstream>

namespace linnet {

namespace {

Processor read() {
  Processor found;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, line.find_last_not_of(" \t:", colon) + 1);
    std::string value = colon + 2 <= line.size() ? line.substr(colon + 2) : "";
    if (name == "vendor_id" || name == "CPU implementer") found.vendor = value;
    if (name == "cpu family" || name == "CPU architecture") found.family = value;
    if (name == "model" || name == "CPU part") found.model = value;
    if (name == "flags" || name == "Features") found.features = " " + value + " ";
  }
  return found;
}

}  // namespace

const Processor& Processor::host() {
  static const Processor processor = read();
  return processor;
}

bool Processor::has(std::string_view feature) const {
  return features.empty() || features.find(fmt::format(" {} ", feature)) != std::string::npos;
}

std::string Processor::describe() const {
  return fmt::format("{} {}-{}{}", vendor, family, model, features);
}

}  // namespace linnet
