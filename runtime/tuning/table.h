// Which schedule a call takes: the user's tuned ones over the shipped ones over the default. A
// lookup searches nothing and measures nothing; it costs a microsecond, once for each op that is
// built.
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <unordered_map>

#include "runtime/tuning/defaults.h"
#include "runtime/tuning/file.h"

namespace linnet {

// The schedules of one problem.
class Schedules {
 public:
  Schedules() = default;
  explicit Schedules(const Schedule& one) { all_.fill(one); }
  const Schedule& at(ShapeClass shape) const { return all_[index(shape)]; }
  Schedule& at(ShapeClass shape) { return all_[index(shape)]; }

  static constexpr size_t kCount = 6;
  static size_t index(ShapeClass shape) {
    return static_cast<size_t>(shape.width) * 3 + static_cast<size_t>(shape.length);
  }
  static ShapeClass shape(size_t index) {
    return {static_cast<Width>(index / 3), static_cast<Length>(index % 3)};
  }

 private:
  std::array<Schedule, kCount> all_;
};

class ScheduleTable {
 public:
  // Files in the order they are asked. Their architectures are not looked at.
  ScheduleTable(DeviceKind kind, const std::vector<TuningFile>& files);
  // The user's file for an architecture, then what is shipped for it. What cannot be used is a line
  // in the log.
  static ScheduleTable open(DeviceKind kind, const std::string& architecture);

  // For every shape class: its own entry, or the nearest of the same problem, or the default.
  // Nothing is borrowed from another gate mode: what is tuned for one leaves the others as they
  // are.
  Schedules find(const Problem& problem, Direction direction) const;

 private:
  using Found = std::array<std::optional<Schedule>, Schedules::kCount>;
  struct Hash {
    size_t operator()(const TuningKey& key) const;
  };
  DeviceKind kind_;
  std::unordered_map<TuningKey, Found, Hash> entries_;
};

// "cpu GenuineIntel 6-207 avx512f amx_bf16 L1 48K L2 2048K": vendor, model, features, caches.
std::string cpu_architecture();
// "sm_90 132 SMs"
std::string gpu_architecture(const std::string& arch, int processors);

// "linnet 0.1.0 (a1b2c3d4)": what made a kernel or a tuning entry.
std::string generator_version();

// The directory of the user's files; empty if there is none. Throws UserError if the cache's
// directory is set to nothing.
std::filesystem::path tuning_directory();
// An architecture's file in a directory.
std::filesystem::path tuning_path(const std::filesystem::path& directory,
                                  const std::string& architecture);
// What comes with the library for an architecture: its own, or the nearest older GPU's, or the
// generic CPU's; nothing if there is none.
std::optional<TuningFile> shipped_tuning(DeviceKind kind, const std::string& architecture);

}  // namespace linnet
