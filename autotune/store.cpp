#include "autotune/store.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "linnet/error.h"
#include "runtime/cache/file_lock.h"
#include "runtime/log.h"

namespace linnet::autotune {

namespace {

constexpr std::chrono::seconds kLongestWait{30};  // for another process that writes

// The file as it is; one that is not ours to change is moved out of the way, never lost.
TuningFile existing(const std::filesystem::path& path, const std::string& architecture) {
  std::string wrong;
  try {
    auto file = read_tuning_file(path);
    if (!file) return {architecture, "", {}};
    if (file->architecture == architecture) return *file;
    wrong = fmt::format("it is for {}, this is {}", file->architecture, architecture);
  } catch (const Error& error) {
    wrong = error.what();
  }
  auto aside = path;
  aside += ".kept-" + posix::unique_name();
  std::filesystem::rename(path, aside);
  log_info("tuning file kept as {} and begun anew: {}", aside.string(), wrong);
  return {architecture, "", {}};
}

void replace(const std::filesystem::path& path, const std::string& text) {
  auto staged = path;
  staged += ".new-" + posix::unique_name();
  try {
    posix::write_file(staged, text);
    std::filesystem::rename(staged, path);
  } catch (const std::system_error&) {
    std::error_code ignored;
    std::filesystem::remove(staged, ignored);
    throw;
  }
  posix::sync_directory(path.parent_path());
}

// Commands in the order they were first given.
void add_command(std::string& commands, const std::string& command) {
  constexpr std::string_view kThen = "; ";
  constexpr size_t kMost = 4000;  // bytes: the oldest are forgotten
  const std::string all = fmt::format("{}{}{}", kThen, commands, kThen);
  if (command.empty() ||
      all.find(fmt::format("{}{}{}", kThen, command, kThen)) != std::string::npos)
    return;
  if (!commands.empty()) commands += kThen;
  commands += command;
  while (commands.size() > kMost && commands.find(kThen) != std::string::npos)
    commands.erase(0, commands.find(kThen) + kThen.size());
}

// What processes that died while they wrote have left.
void remove_leftovers(const std::filesystem::path& path) {
  const std::string prefix = path.filename().string() + ".new-";
  std::error_code ignored;
  for (const std::string& name : posix::names_in(path.parent_path()))
    if (name.starts_with(prefix)) std::filesystem::remove(path.parent_path() / name, ignored);
}

}  // namespace

void update_tuning_file(const std::filesystem::path& path, const std::string& architecture,
                        const std::vector<TuningEntry>& entries, const std::string& made_by) try {
  posix::make_directories(path.parent_path());
  auto lock_path = path;
  FileLock lock(lock_path += ".lock");
  auto give_up = std::chrono::steady_clock::now() + kLongestWait;
  while (lock.try_acquire() == FileLock::State::busy) {
    if (std::chrono::steady_clock::now() > give_up)
      throw DeviceError(fmt::format("{}: another process has been writing it for {} s",
                                    path.string(), kLongestWait.count()));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  remove_leftovers(path);
  TuningFile file = existing(path, architecture);
  file.merge(entries);
  add_command(file.made_by, made_by);
  replace(path, file.text());
} catch (const std::system_error& error) {
  throw DeviceError(fmt::format("{}: cannot be written: {}", path.string(), error.what()));
}

void write_tuning_file(const std::filesystem::path& path, const TuningFile& file) try {
  if (path.has_parent_path()) posix::make_directories(path.parent_path());
  replace(std::filesystem::absolute(path), file.text());
} catch (const std::system_error& error) {
  throw DeviceError(fmt::format("{}: cannot be written: {}", path.string(), error.what()));
}

}  // namespace linnet::autotune
