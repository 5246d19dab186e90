#include "autotune/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "linnet/error.h"
#include "runtime/cache/posix.h"
#include "runtime/json.h"
#include "runtime/log.h"

namespace linnet::autotune {

namespace {

std::string question(const std::vector<Schedule>& schedules, int runs) {
  std::string text = fmt::format("{} runs", runs);
  for (const Schedule& schedule : schedules) text += "; " + schedule.describe();
  return text;
}

void append(const std::filesystem::path& path, const std::string& line, int flags) try {
  posix::make_directories(path.parent_path());
  posix::Fd file = posix::create_file(path, flags);
  // One write: a line is there or it is not, but for its end.
  if (::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    posix::fail("write", path);
} catch (const std::system_error& error) {
  log_info("{}: an interrupted search will start anew: {}", path.string(), error.what());
}

}  // namespace

Journal::Journal(std::filesystem::path path, const std::string& what) : path_(std::move(path)) {
  const std::string head = "linnet search 1; " + what;
  std::ifstream file(path_, std::ios::binary);
  std::string line;
  if (std::getline(file, line) && line == head) {
    while (std::getline(file, line) && !file.eof()) lines_.push_back(line);
    if (!line.empty() && file.eof()) append(path_, "\n", O_APPEND);  // ends the line of a dead one
  } else {
    append(path_, head + "\n", O_TRUNC);
  }
}

std::optional<std::vector<Sample>> Journal::next(const std::vector<Schedule>& schedules, int runs) {
  std::vector<Sample> samples;
  for (; at_ < lines_.size(); ++at_) {
    try {
      Json json = Json::parse(lines_[at_]);
      if (json.string_at("asked") != question(schedules, runs)) return std::nullopt;
      for (const Json& item : json.at("samples", Json::Kind::array).items) {
        Sample sample{.noise = item.number_at("noise"), .error = item.string_at("error")};
        for (const Json& ms : item.at("ms", Json::Kind::array).items)
          sample.ms.push_back(ms.number);
        for (const Json& ratio : item.at("ratio", Json::Kind::array).items)
          sample.ratio.push_back(ratio.number);
        if (sample.ms.size() != sample.ratio.size()) throw Error("a ratio is missing");
        samples.push_back(std::move(sample));
      }
      if (samples.size() != schedules.size()) return std::nullopt;
      ++at_;
      return samples;
    } catch (const Error&) {
      samples.clear();  // half a line: its measurement is made again
    }
  }
  return std::nullopt;
}

void Journal::add(const std::vector<Schedule>& schedules, int runs,
                  const std::vector<Sample>& samples) {
  std::string line =
      fmt::format("{{\"asked\": {}, \"samples\": [", json_quoted(question(schedules, runs)));
  for (size_t i = 0; i < samples.size(); ++i) {
    line += fmt::format("{}{{\"noise\": {}, \"error\": {}, \"ms\": [{}], \"ratio\": [{}]}}",
                        i ? ", " : "", samples[i].noise, json_quoted(samples[i].error),
                        fmt::join(samples[i].ms, ", "), fmt::join(samples[i].ratio, ", "));
  }
  append(path_, line + "]}\n", O_APPEND);
}

void Journal::remove() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace linnet::autotune
