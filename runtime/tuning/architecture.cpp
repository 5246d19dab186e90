// What tuned schedules hold for, and what is shipped for it.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "generator_id.h"
#include "runtime/cpu/processor.h"
#include "runtime/tuning/table.h"
#include "shipped_tuning.h"

namespace linnet {

namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "L1 48K L2 2048K L3 266240K": what holds data.
std::string caches() {
  std::vector<std::string> found;
  for (int i = 0; i < 8; ++i) {
    std::string at = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    std::string level = first_line(at + "level");
    if (level.empty() || first_line(at + "type") == "Instruction") continue;
    found.push_back(fmt::format(" L{} {}", level, first_line(at + "size")));
  }
  std::sort(found.begin(), found.end());
  std::string text;
  for (const std::string& cache : found) text += cache;
  return text;
}

int number_after(std::string_view text, std::string_view prefix) {
  int number = -1;
  if (text.starts_with(prefix))
    std::from_chars(text.data() + prefix.size(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string cpu_architecture() {
  const Processor& host = Processor::host();
  std::string text = fmt::format("cpu {} {}-{}", host.vendor, host.family, host.model);
  for (const char* feature :
       {"avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "sve", "bf16"})
    if (!host.features.empty() && host.has(feature)) text += fmt::format(" {}", feature);
  return text + caches();
}

std::string generator_version() {
  return fmt::format("linnet {} ({:.8})", LINNET_VERSION, kGeneratorId);
}

std::string gpu_architecture(const std::string& arch, int processors) {
  return fmt::format("{} {} SMs", arch, processors);
}

std::optional<TuningFile> shipped_tuning(DeviceKind kind, const std::string& architecture) {
  static const std::vector<TuningFile> all = [] {
    std::vector<TuningFile> files;
    for (const char* text : kShippedTuning)
      if (*text) files.push_back(TuningFile::parse(text));
    return files;
  }();
  const TuningFile* best = nullptr;
  int wanted = number_after(architecture, "sm_"), nearest = -1;
  for (const TuningFile& file : all) {
    int has = number_after(file.architecture, "sm_");
    if (kind == DeviceKind::cpu) {
      if (file.architecture == "cpu") best = &file;
    } else if (has > nearest && has <= wanted) {
      best = &file;
      nearest = has;
    }
  }
  return best ? std::optional(*best) : std::nullopt;
}

}  // namespace linnet
