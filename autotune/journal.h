// The measurements of a search that is under way, on disk: a search that was interrupted, by a key
// or by kill -9, goes on where it was.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "autotune/measurer.h"

namespace linnet::autotune {

class Journal {
 public:
  // `what`: everything the measurements depend on. A journal of something else starts anew.
  Journal(std::filesystem::path path, const std::string& what);

  // The samples of the next measurement, if it was made before; a search asks the same questions in
  // the same order.
  std::optional<std::vector<Sample>> next(const std::vector<Schedule>& schedules, int runs);
  void add(const std::vector<Schedule>& schedules, int runs, const std::vector<Sample>& samples);
  size_t remembered() const { return lines_.size(); }
  // The search has ended: nothing is left to go on with.
  void remove();

 private:
  std::filesystem::path path_;
  std::vector<std::string> lines_;  // of earlier processes
  size_t at_ = 0;
};

}  // namespace linnet::autotune
