// What measurers of every kind do with runs: their middle, their spread, and whether what was
// computed is right.
#pragma once

#include "autotune/measurer.h"
#include "runtime/tuning/table.h"

namespace linnet::autotune {

constexpr size_t kCompared = 1 << 16;  // numbers of each output that are held against each other

// Adds the median of a workload's times, and how far apart they are.
void add_times(Sample& sample, std::vector<double> ms);

// Holds results against those of the first schedule, which `expected` keeps. Throws Error if they
// are further apart than rounding explains: a schedule that computes something else is no schedule.
void check_results(std::vector<float>& expected, const std::vector<float>& results,
                   const Problem& problem);

}  // namespace linnet::autotune
