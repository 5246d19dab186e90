#include "runtime/tuning/table.h"

#include <fmt/format.h>

#include <functional>

#include "runtime/cache/cache.h"
#include "runtime/environment.h"
#include "runtime/log.h"

namespace linnet {

size_t ScheduleTable::Hash::operator()(const TuningKey& key) const {
  size_t hash = std::hash<std::string>()(key.op) ^ std::hash<std::string>()(key.gate);
  for (int64_t part : {static_cast<int64_t>(key.direction), static_cast<int64_t>(key.dtype),
                       static_cast<int64_t>(key.gate_dtype), static_cast<int64_t>(key.state_dtype),
                       static_cast<int64_t>(key.tf32), key.key_dim, key.value_dim})
    hash = hash * 31 + static_cast<size_t>(part);
  return hash;
}

ScheduleTable::ScheduleTable(DeviceKind kind, const std::vector<TuningFile>& files) : kind_(kind) {
  // A GPU adds all shapes of a problem in one order, and the first file that knows the problem says
  // which: what another says of the other shapes counts only if it agrees.
  struct Sums {
    const TuningFile* file;
    Schedule schedule;
  };
  std::unordered_map<TuningKey, Sums, Hash> sums;
  for (const TuningFile& file : files)
    for (const TuningEntry& entry : file.entries) {
      const Sums& own = sums.try_emplace(entry.key, Sums{&file, entry.schedule}).first->second;
      bool agrees = own.file == &file || own.schedule.same_sums(entry.schedule);
      if (kind == DeviceKind::gpu && !agrees) continue;
      std::optional<Schedule>& place = entries_[entry.key][Schedules::index(entry.shape)];
      if (!place) place = entry.schedule;
    }
}

ScheduleTable ScheduleTable::open(DeviceKind kind, const std::string& architecture) {
  std::vector<TuningFile> files;
  try {
    auto directory = tuning_directory();
    auto path = tuning_path(directory, architecture);
    auto own = directory.empty() ? std::nullopt : read_tuning_file(path);
    if (own && own->architecture != architecture)
      throw Error(fmt::format("{}: it is for {}, this is {}", path.string(), own->architecture,
                              architecture));
    if (own) files.push_back(std::move(*own));
  } catch (const Error& error) {
    log_info("tuning file ignored: {}", error.what());
  }
  if (auto shipped = shipped_tuning(kind, architecture)) files.push_back(std::move(*shipped));
  return ScheduleTable(kind, files);
}

Schedules ScheduleTable::find(const Problem& problem, Direction direction) const {
  Schedules schedules(default_schedule(kind_, problem, direction));
  auto entry = entries_.find(TuningKey(problem, direction));
  if (entry == entries_.end()) return schedules;
  for (size_t i = 0; i < Schedules::kCount; ++i) {
    int best = INT32_MAX;
    for (size_t other = 0; other < Schedules::kCount; ++other) {
      if (!entry->second[other]) continue;
      ShapeClass a = Schedules::shape(i), b = Schedules::shape(other);
      int apart = std::abs(static_cast<int>(a.length) - static_cast<int>(b.length)) +
                  (a.width == b.width ? 0 : 3);
      if (apart >= best) continue;
      best = apart;
      schedules.at(a) = *entry->second[other];
    }
  }
  // A GPU does not know its sequences' lengths, and no device may let their number choose how sums
  // are added: all its shapes take the chunk of the largest.
  if (kind_ == DeviceKind::gpu) {
    const Schedule largest = schedules.at({Width::many, Length::long_});
    for (size_t i = 0; i < Schedules::kCount; ++i)
      if (Schedule& own = schedules.at(Schedules::shape(i)); !own.same_sums(largest)) own = largest;
  }
  return schedules;
}

std::filesystem::path tuning_directory() {
  if (auto chosen = environment::get(environment::tuning_dir)) return *chosen;
  auto root = Cache::default_root();
  return root.empty() ? root : root / "tuning";
}

std::filesystem::path tuning_path(const std::filesystem::path& directory,
                                  const std::string& architecture) {
  std::string name;
  for (char c : architecture)
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '_' ? c : '-';
  return directory / (name + ".json");
}

}  // namespace linnet
