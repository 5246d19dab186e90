// Lines to stderr for whoever runs Linnet; LINNET_LOG says how many.
#pragma once

#include <fmt/format.h>

#include <string>

namespace linnet {

enum class LogLevel { quiet, info, debug };

// From LINNET_LOG, read once.
LogLevel log_level();

// Prints one line; in one write, so that lines of several threads and processes stay whole.
void log_line(const std::string& text);

// What is out of the ordinary, though work goes on.
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() >= LogLevel::info) log_line(fmt::format(format, std::forward<Args>(args)...));
}

// What is ordinary.
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() >= LogLevel::debug) log_line(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace linnet
