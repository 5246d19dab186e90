// What the tests of tuning share: directories, entries, and times that are made up.
#pragma once

#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "autotune/measurer.h"
#include "runtime/tuning/file.h"

namespace linnet::autotune {

struct TempDirectory {
  TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "linnet-tune-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    path = name;
  }
  TempDirectory(const TempDirectory&) = delete;
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

inline std::string text_of(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}
inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

inline TuningEntry entry(const Problem& problem, Schedule schedule,
                         ShapeClass shape = {Width::many, Length::medium},
                         Direction direction = Direction::forward) {
  return {.key = {problem, direction},
          .shape = shape,
          .schedule = schedule,
          .how = "measured",
          .device = "a test",
          .generator = "linnet test",
          .date = "2026-11-16",
          .workload = "B=1 T=1024 H=8",
          .ms = 1,
          .default_ms = 1.5};
}

// Times by a formula, with noise that is the same in every run; each measurement takes a second of
// its own clock.
class MadeUp : public Measurer {
 public:
  using Formula = std::function<double(const Schedule&)>;
  explicit MadeUp(Formula formula, double noise = 0, unsigned seed = 1)
      : formula_(std::move(formula)), noise_(noise), state_(seed) {}

  std::string how() const override { return "measured"; }
  std::string device() const override { return "made up"; }
  double clock_s() const override { return clock_; }
  bool is_noisy() const override { return noisy; }
  std::vector<Sample> measure(const std::vector<Schedule>& schedules, int runs) override {
    std::vector<Sample> samples;
    for (const Schedule& schedule : schedules) {
      double ms = formula_(schedule);
      if (!(ms > 0)) {
        samples.push_back({.error = "does not run"});
        continue;
      }
      // The mean of more runs is nearer to the truth.
      double off = noise_ * uniform() / std::sqrt(runs);
      samples.push_back({.ms = {ms * (1 + off)}, .noise = noise_ / std::sqrt(runs)});
    }
    for (Sample& sample : samples)
      if (!sample.ms.empty() && !samples[0].ms.empty())
        sample.ratio = {sample.ms[0] / samples[0].ms[0]};
    clock_ += 1;
    ++measurements;
    if (after) after(measurements);
    return samples;
  }
  bool noisy = true;
  int measurements = 0;
  std::function<void(int)> after;  // each measurement

 private:
  double uniform() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<double>(state_ >> 8) / (1 << 23) - 1;
  }
  Formula formula_;
  double noise_;
  unsigned state_;
  double clock_ = 0;
};

}  // namespace linnet::autotune
