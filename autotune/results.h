// What measurers of every kind do with runs: their middle, their spread, and whether what was
// computed is right.
#pragma once

#include "autotune/measurer.h"
#include "runtime/tuning/table.h"

namespace linnet::autotune {

constexpr size_t kCompared = 1 << 16;  // numbers of each output that are held against each other

// Adds what a workload's runs say: for every schedule, none if it failed, the times of its runs.
// The medians of the times, and of their ratios to the first schedule's in the same turn: what
// slows a machine down for a while slows both.
void add_times(std::vector<Sample>& samples, const std::vector<std::vector<double>>& ms);

// Holds results against those of the first schedule, which `expected` keeps. Throws Error if they
// are further apart than rounding explains: a schedule that computes something else is no schedule.
void check_results(std::vector<float>& expected, const std::vector<float>& results,
                   const Problem& problem);

}  // namespace linnet::autotune
