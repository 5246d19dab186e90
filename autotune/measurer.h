// How good a schedule is: by a clock, by CUDA's events, by a model, or made up by a test.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autotune/workload.h"
#include "linnet/compiler.h"

namespace linnet::autotune {

// Of one schedule.
struct Sample {
  std::vector<double> ms;     // for each workload of the measurer; none if it failed
  std::vector<double> ratio;  // the same in times of the first schedule measured with it
  double noise = 0;           // relative spread of the runs
  std::string error;          // why it failed
};

class Measurer {
 public:
  virtual ~Measurer() = default;
  virtual std::string how() const = 0;     // "measured" or "modelled"
  virtual std::string device() const = 0;  // for people
  // Runs of all the schedules take turns, so that what disturbs one disturbs all; each has `runs`.
  virtual std::vector<Sample> measure(const std::vector<Schedule>& schedules, int runs) = 0;
  virtual double clock_s() const = 0;  // what a budget is held against
  // Whether runs differ: a model needs one.
  virtual bool is_noisy() const { return true; }
};

// What is measured: an op, and sizes it is called with.
struct Subject {
  Problem problem;
  Direction direction = Direction::forward;
  std::vector<Shape> shapes;
  std::string describe() const;  // the shapes: "B=1 T=1024 H=8"
};

std::unique_ptr<Measurer> measure_on_cpu(const Device& device, const Subject& subject);
// By events on a GPU, each run from a cold second-level cache. At most `memory_bytes` of its memory
// are used, 0: half of what is free.
std::unique_ptr<Measurer> measure_on_cuda(const std::string& device, const Subject& subject,
                                          size_t memory_bytes);
// For a GPU that is not here: counts of the virtual one on a small grid, scaled up, through its
// cost model.
std::unique_ptr<Measurer> model(const std::string& device, const Subject& subject);

}  // namespace linnet::autotune
