// Times a list of works and prints it, with what users run today beside it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/workload.h"

namespace linnet::cli {

enum class Pass { forward, backward, train, decode };

// One line of the table.
struct Work {
  std::string op;
  Pass pass = Pass::forward;
  Shape shape;
  int64_t key_dim = 128, value_dim = 128;
  std::optional<Schedule> schedule;
  DType dtype = DType::f32;
  int threads = 2;
  std::string target_cpu;    // code for another processor than this one
  std::string goal;          // as text, for people
  double goal_mm = 0;        // at most so many mm; 0: none
  double goal_ms = 0;        // at most so many milliseconds
  bool beside_peers = true;  // whether --peers times them for this line
  double goal_band = 0;      // at least this share of the bandwidth of a scaled array
  // Linnet's other way of the same work, timed in turns with this one: it takes at least
  // `goal_ratio` times as long.
  std::shared_ptr<const Work> beside;
  double goal_ratio = 0;
  std::string title() const;
};

// The works docs/performance.md has goals for.
std::vector<Work> goals(int threads, const std::string& target_cpu);

struct TableOptions {
  int runs = 15;
  bool peers = false, compiled = false;
  double give_up_s = 60;
  std::string plot;
};
// What `linnet bench --compile` prints: the derivation of these ops (all, if none is named), and
// KDA's way from nothing to machine code for GPUs, with its goals.
void print_compile_times(std::vector<std::string> ops, int64_t chunk, int runs);

void print_table(const std::vector<Work>& works, const TableOptions& options);

// What was drawn from one line: its bars, ours first.
struct Bars {
  std::string title;
  std::vector<std::pair<std::string, double>> ms;
};
// Writes an SVG picture; throws UserError if the file cannot be written.
void plot_bars(const std::string& path, const std::vector<Bars>& lines);

struct Timing {
  double best_ms, median_ms;
};
// Of up to `runs` calls, fewer once `limit_ms` have gone by.
Timing timed(int runs, double limit_ms, const std::function<void()>& call);

}  // namespace linnet::cli
