#include "runtime/log.h"

#include <unistd.h>

#include "runtime/environment.h"

namespace linnet {

namespace {

LogLevel level_from_environment() {
  std::string text = environment::get(environment::log).value_or("info");
  if (text == "0" || text == "quiet") return LogLevel::quiet;
  if (text == "2" || text == "debug") return LogLevel::debug;
  // A log must not stop work: a wrong level is named, and the default holds.
  if (text != "1" && text != "info")
    log_line(fmt::format("{}: expected 0 or quiet, 1 or info, 2 or debug; got '{}'",
                         environment::log.name, text));
  return LogLevel::info;
}

}  // namespace

LogLevel log_level() {
  static const LogLevel level = level_from_environment();
  return level;
}

void log_line(const std::string& text) {
  std::string line = "linnet: " + text + "\n";
  // Nothing can be done about a stderr that does not take it.
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace linnet
