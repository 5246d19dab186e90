// The offline command behind `linnet tune` and linnet.tune(): problems in, tuning entries out, each
// stored as soon as it is found.
#pragma once

#include <filesystem>

#include "autotune/search.h"
#include "autotune/space.h"
#include "runtime/tuning/file.h"

namespace linnet::autotune {

struct TuneOptions {
  std::string device = "cpu";  // or "cuda:0", or "virtual:sm_90": modelled
  int threads = 0;             // cpu; 0: as a device has them
  bool generic = false;        // cpu: only schedules that suit any CPU, for a file that is shipped
  std::vector<Direction> directions = {Direction::forward, Direction::backward, Direction::decode};
  std::vector<Length> lengths = {Length::long_, Length::medium, Length::short_};
  // GPU: sequences x heads. All shapes of a problem add their sums as the first one tuned does.
  std::vector<Width> widths = {Width::many, Width::few};
  double budget_s = 0;              // for everything together; 0: none, the whole space is measured
  std::filesystem::path directory;  // empty: tuning_directory()
  size_t memory_bytes = 0;          // GPU: may be used; 0: half of what is free
  std::string made_by = "linnet tune";
  std::function<bool()> stop = [] { return false; };
  // The share done, seconds left (negative: unknown), and what is being done.
  std::function<void(double, double, const std::string&)> progress = [](double, double,
                                                                        const std::string&) {};
};

struct Tuned {
  TuningEntry entry;
  SearchResult result;
};

// What is tuned one after another: a problem in a direction, at a class of shapes.
struct Unit {
  Subject subject;
  ShapeClass shape;
};
std::vector<Unit> units_of(const std::vector<Problem>& problems, const TuneOptions& options);

// A unit that cannot be tuned is a line in the log; throws Error if none can.
std::vector<Tuned> tune(const std::vector<Problem>& problems, const TuneOptions& options);

// The schedule calls take now beside others, all taking turns: one table row for each unit.
struct Compared {
  Unit unit;
  std::vector<Schedule> schedules;  // the one in use first
  std::vector<Sample> samples;
};
std::vector<Compared> compare(const std::vector<Problem>& problems,
                              const std::vector<Schedule>& others, int runs,
                              const TuneOptions& options);

// The file results go to, and the limits schedules are held against.
std::filesystem::path tuning_file_for(const TuneOptions& options);
Limits limits_of(const std::string& device);

}  // namespace linnet::autotune
