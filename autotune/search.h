// Finds the best schedule of a space by measuring some of it: what the model or the chunk's plain
// form ranks first is measured first, and the better half again with more runs, until one is left.
#pragma once

#include <functional>

#include "autotune/journal.h"
#include "autotune/measurer.h"

namespace linnet::autotune {

// What is known of one schedule of the space.
struct Trial {
  Schedule schedule;
  size_t rank = 0;         // its place in the space
  double ratio = 0;        // of its time to the default's, over all workloads; 0: not measured
  double noise = 0;        // of that ratio, relative
  std::vector<double> ms;  // of the last measurement, for each workload
  int runs = 0;
  std::string error;
};

struct SearchOptions {
  double budget_s = 0;  // 0: none, everything is measured
  // Schedules this close to the best, or within the noise of it, are as good as it: the first of
  // them in the space is taken, so that every rank and every restart takes the same.
  double tie = 0.015;
  bool default_may_win = true;  // false: it is only what others are held against
  std::function<bool()> stop = [] { return false; };  // asked before every measurement
  // The share done, and what is being done.
  std::function<void(double, const std::string&)> progress = [](double, const std::string&) {};
};

struct SearchResult {
  Trial best;                 // the default if nothing better was found, or nothing else measured
  Trial fallback;             // the default itself
  std::vector<Trial> trials;  // everything measured, in the order of the space
  bool complete = false;      // false: stopped before every candidate had its turn
};

// `space` starts with the default. Depends on nothing but the measurements, which the journal (may
// be null) remembers. Throws Error if the default cannot be measured.
SearchResult search(const std::vector<Schedule>& space, Measurer& measurer, Journal* journal,
                    const SearchOptions& options);

}  // namespace linnet::autotune
