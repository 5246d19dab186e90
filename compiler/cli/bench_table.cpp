#include "compiler/cli/bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "compiler/cli/peers.h"
#include "compiler/flops.h"
#include "compiler/pipeline.h"
#include "ops/registry.h"
#include "runtime/cpu/code.h"

namespace linnet::cli {

Timing timed(int runs, double limit_ms, const std::function<void()>& call) {
  std::vector<double> times;
  double total = 0;
  for (int i = 0; i < runs && (i == 0 || total < limit_ms); ++i) {
    auto start = std::chrono::steady_clock::now();
    call();
    auto taken = std::chrono::steady_clock::now() - start;
    times.push_back(std::chrono::duration<double, std::milli>(taken).count());
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

std::string Work::title() const {
  static const char* passes[] = {"forward", "backward", "forward + backward", "decode"};
  std::string size = pass == Pass::decode ? fmt::format("B={} H={}", shape.batch, shape.heads)
                                          : fmt::format("T={}", shape.tokens);
  if (pass != Pass::decode && shape.batch != 1) size += fmt::format(" B={}", shape.batch);
  if (pass != Pass::decode && shape.heads != 8) size += fmt::format(" H={}", shape.heads);
  if (dtype != DType::f32) size += fmt::format(" {}", name_of(dtype));
  return fmt::format("{} {} {}, {} thread{}", op, passes[static_cast<int>(pass)], size, threads,
                     threads == 1 ? "" : "s");
}

std::vector<Work> goals(int threads, const std::string& target_cpu) {
  auto prefill = [&](const char* op, double mm, std::string goal, int64_t tokens = 4096) {
    return Work{.op = op,
                .shape = {.tokens = tokens},
                .threads = threads,
                .target_cpu = target_cpu,
                .goal = std::move(goal),
                .goal_mm = mm};
  };
  auto train = [&](const char* op, double mm, std::string goal) {
    return Work{.op = op,
                .pass = Pass::train,
                .shape = {.tokens = 1024},
                .threads = threads,
                .target_cpu = target_cpu,
                .goal = std::move(goal),
                .goal_mm = mm};
  };
  auto decode = [&](const char* op, int64_t batch, double ms) {
    return Work{.op = op,
                .pass = Pass::decode,
                .shape = {batch, 1, 32, 32},
                .threads = threads,
                .target_cpu = target_cpu,
                .goal = ms > 0 ? fmt::format("<= {} ms", ms) : ">= 85 % of scale",
                .goal_ms = ms,
                .goal_band = ms > 0 ? 0 : 0.85};
  };
  std::vector<Work> list = {
      prefill("gated_delta_rule", 0.30, "<= 0.30 mm"),
      prefill("kda", 0.40, "<= 0.40 mm"),
      prefill("delta_rule", 0, ""),  // beside KDA, below
      prefill("gla", 0, ""),
      prefill("simple_gla", 0.20, "<= 0.20 mm"),
      prefill("linear_attention", 0.20, "<= 0.20 mm"),
      train("gated_delta_rule", 0.32, "<= 0.32 mm"),
      train("kda", 0.45, "<= 0.45 mm"),
      decode("gated_delta_rule", 32, 0),
      decode("kda", 32, 0),
      decode("gated_delta_rule", 1, 0.08),
      decode("kda", 1, 0.09),
  };
  // Linnet against itself.
  auto beside = [](Work& work, Work other, double ratio, const char* goal) {
    work.goal = goal;
    work.goal_mm = 0;
    work.beside = std::make_shared<const Work>(std::move(other));
    work.goal_ratio = ratio;
  };
  for (Work& work : list)
    if (work.op == "delta_rule" || work.op == "gla")
      beside(work, prefill("kda", 0, ""), 1, "<= kda");
  auto against = [&](Work work, Work other, double ratio, const char* goal) {
    work.beside_peers = false;
    beside(work, std::move(other), ratio, goal);
    list.push_back(std::move(work));
  };
  bool has_matrix_unit = target_cpu.empty() && allow_matrix_unit();
  for (const char* op : {"gated_delta_rule", "kda"}) {
    Work narrow = prefill(op, 0, "");
    narrow.dtype = DType::bf16;
    against(narrow, prefill(op, 0, ""), has_matrix_unit ? 2 : 1,
            has_matrix_unit ? "2 x faster than f32" : "no slower than f32");
  }
  against(prefill("kda", 0, "", 16384), prefill("kda", 0, ""), 1 / 4.1, "<= 4.1 x T=4096");
  if (threads == 2) {
    for (auto [tokens, heads, ratio, goal] :
         {std::tuple{4096, 8, 1.85, "1.85 x one thread"}, {65536, 1, 1.7, "1.7 x one thread"}}) {
      Work both = prefill("kda", 0, "", tokens);
      both.shape.heads = both.shape.value_heads = heads;
      Work one = both;
      one.threads = 1;
      against(both, one, ratio, goal);
    }
    Work both = train("kda", 0, "");
    both.shape = {.tokens = 16384, .heads = 1, .value_heads = 1};
    Work one = both;
    one.threads = 1;
    against(both, one, 1.6, "1.6 x one thread");
  }
  return list;
}

namespace {

// An op's calls for one line, ready to be timed.
class Runner {
 public:
  explicit Runner(const Work& work)
      : work_(work), device_(Device::open("cpu", {.threads = work.threads})) {
    problem_ = {
        .op = work.op, .key_dim = work.key_dim, .value_dim = work.value_dim, .dtype = work.dtype};
    if (work.pass == Pass::forward || work.pass == Pass::train) add(Direction::forward);
    if (work.pass == Pass::backward || work.pass == Pass::train) add(Direction::backward);
    if (work.pass == Pass::decode) add(Direction::decode);
  }

  void run() const {
    for (const Workload& load : loads_) load.run();
  }
  double build_ms() const { return build_ms_; }
  double flops() const { return flops_; }
  double bytes() const { return bytes_; }
  const Problem& problem() const { return problem_; }

 private:
  void add(Direction direction) {
    std::optional<Op> op;
    build_ms_ += timed(1, 0, [&] {
                   op = device_.build(problem_, {.direction = direction,
                                                 .schedule = work_.schedule,
                                                 .target_cpu = work_.target_cpu});
                 }).best_ms;
    loads_.emplace_back(device_, *op, work_.shape);
    bytes_ += loads_.back().bytes();
    int64_t chunk = work_.schedule                   ? work_.schedule->chunk
                    : direction == Direction::decode ? 1
                                                     : 16;
    auto context = make_context();
    auto module =
        derive(*context, linnet::ops::find(work_.op).define, problem_,
               {.chunk_size = chunk,
                .direction = direction == Direction::backward ? direction : Direction::forward});
    const Shape& s = work_.shape;
    flops_ += static_cast<double>(count_flops(graph_of(*module))) / static_cast<double>(chunk) *
              static_cast<double>(s.batch * s.tokens * s.value_heads);
  }

  Work work_;
  Device device_;
  Problem problem_;
  std::vector<Workload> loads_;
  double build_ms_ = 0, flops_ = 0, bytes_ = 0;
};

constexpr double kMatmulFlops = 2.0 * 2048 * 2048 * 2048;

class Table {
 public:
  explicit Table(const TableOptions& options) : options_(options) {}

  void print(const std::vector<Work>& works) {
    fmt::print("{:<46} {:>8} {:>9} {:>7} {:>11} {:>8} {:>6} {:>6} {:>6}  {}\n", "work", "build ms",
               "run ms", "in mm", "tokens/s", "GFLOP/s", "of mm", "GB/s", "of bw", "goal");
    for (const Work& work : works) print_line(work);
    if (!options_.plot.empty()) {
      plot_bars(options_.plot, bars_);
      fmt::print("drawn in {}\n", options_.plot);
    }
  }

 private:
  Peers* peers_for(int threads) {
    auto [it, fresh] = servers_.try_emplace(threads);
    if (!fresh) return it->second.get();
    std::string why;
    it->second = Peers::start(threads, why);
    if (!it->second && servers_.size() == 1) fmt::print("no yardstick and no peers: {}\n", why);
    return it->second.get();
  }

  // What one turn took: the line's own work, and beside it what it is judged by.
  struct Turn {
    double own = 0, mm = 0, scale_bandwidth = 0, beside = 0;
  };

  // All of it takes turns, and a ratio is that of one turn: a machine that is slower for a while is
  // so for both sides.
  std::vector<Turn> take_turns(const Work& work, Runner& runner, Runner* other) {
    bool decode = work.pass == Pass::decode;
    int turns = decode ? 9 : 5;
    double yardstick_s = 2.0 / turns;
    // A step is over before a neighbour's noise is: its runs fill as much time as the yardstick's.
    int runs = decode ? std::numeric_limits<int>::max() : std::max(1, options_.runs / turns);
    double limit_ms = decode ? 1e3 * yardstick_s : 10e3 / turns;
    Peers* peers = peers_for(work.threads);
    std::vector<Turn> taken(turns);
    for (Turn& turn : taken) {
      if (peers) {
        turn.mm = peers->matmul_ms(yardstick_s);
        int64_t bytes = static_cast<int64_t>(std::clamp(runner.bytes() / 2, 1e6, 1e9));
        turn.scale_bandwidth = peers->scale_bandwidth(bytes, yardstick_s);
        // Threads of the yardstick's process look for work a while before they sleep.
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      }
      auto time = [&](const Runner& who) {
        who.run();
        return timed(runs, limit_ms, [&] { who.run(); }).best_ms;
      };
      turn.own = time(runner);
      if (other) turn.beside = time(*other);
    }
    return taken;
  }

  // The median of what is known of it; 0 if nothing is.
  template <class F>
  static double median(const std::vector<Turn>& turns, F value) {
    std::vector<double> values;
    for (const Turn& turn : turns)
      if (double x = value(turn); std::isfinite(x) && x > 0) values.push_back(x);
    if (values.empty()) return 0;
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  }

  struct Judged {
    double ms, in_mm, of_bandwidth, beside_ms, times_beside;
  };

  void print_line(const Work& work) {
    Runner runner(work);
    std::optional<Runner> other;
    if (work.beside) other.emplace(*work.beside);
    std::vector<Turn> turns = take_turns(work, runner, other ? &*other : nullptr);
    auto least = [&](auto field) { return std::ranges::min(turns, {}, field).*field; };
    double best = least(&Turn::own), bytes = runner.bytes() / best / 1e6;
    Judged seen{
        .ms = best,
        .in_mm = median(turns, [](const Turn& t) { return t.own / t.mm; }),
        .of_bandwidth = median(
            turns, [&](const Turn& t) { return runner.bytes() * 1e3 / t.own / t.scale_bandwidth; }),
        .beside_ms = least(&Turn::beside),
        .times_beside = median(turns, [](const Turn& t) { return t.beside / t.own; })};
    double rate = runner.flops() / best / 1e6,
           mm = median(turns, [](const Turn& t) { return t.mm; });
    auto share = [](double x) { return x > 0 ? fmt::format("{:.0f} %", 100 * x) : "-"; };
    double tokens = static_cast<double>(work.shape.batch * work.shape.tokens);
    fmt::print("{:<46} {:>8.1f} {:>9.3f} {:>7} {:>11.0f} {:>8.1f} {:>6} {:>6.1f} {:>6}  {}\n",
               work.title(), runner.build_ms(), best,
               seen.in_mm > 0 ? fmt::format("{:.3f}", seen.in_mm) : "-", tokens / best * 1e3, rate,
               share(rate * 1e6 * mm / kMatmulFlops), bytes, share(seen.of_bandwidth),
               judged(work, seen));
    std::fflush(stdout);
    bars_.push_back({work.title(), {{"linnet", best}}});
    Peers* peers = peers_for(work.threads);
    if (options_.peers && peers && work.beside_peers)
      print_peers(*peers, work, runner.problem(), best);
  }

  static std::string judged(const Work& work, const Judged& seen) {
    auto misses = [](double goal, double came, bool at_most) {
      return goal > 0 && came > 0 && (at_most ? came > goal : came < goal);
    };
    bool known = work.goal_ms > 0 || (work.goal_mm > 0 && seen.in_mm > 0) ||
                 (work.goal_band > 0 && seen.of_bandwidth > 0) || seen.times_beside > 0;
    if (!known) return work.goal;
    bool missed = misses(work.goal_ms, seen.ms, true) || misses(work.goal_mm, seen.in_mm, true) ||
                  misses(work.goal_band, seen.of_bandwidth, false) ||
                  misses(work.goal_ratio, seen.times_beside, false);
    std::string ratio;
    if (seen.times_beside > 0)
      ratio = work.beside->shape.tokens == work.shape.tokens
                  ? fmt::format(" ({:.2f} x, {:.3f} ms)", seen.times_beside, seen.beside_ms)
                  : fmt::format(" ({:.2f} x {:.3f} ms)", 1 / seen.times_beside, seen.beside_ms);
    return fmt::format("{}: {}{}", work.goal, missed ? "MISSED" : "met", ratio);
  }

  void print_peers(Peers& peers, const Work& work, const Problem& problem, double own) {
    static const char* directions[] = {"forward", "backward", "backward", "decode"};
    if (work.pass == Pass::backward) return;  // peers run both passes
    std::string direction = directions[static_cast<int>(work.pass)];
    for (const std::string& name : peers.names(work.op, direction)) {
      if (name.ends_with("_compiled") && !options_.compiled) continue;
      Peers::Time time =
          peers.time(name, work.op, direction, work.shape, problem, options_.give_up_s);
      if (!time.error.empty()) {
        fmt::print("  {:<44} {}\n", name, time.error);
      } else {
        std::string compile =
            time.compile_s > 0 ? fmt::format(", {:.0f} s to compile", time.compile_s) : "";
        std::string load = time.other_load > 0.1
                               ? fmt::format(", {:.1f} cores were busy elsewhere", time.other_load)
                               : "";
        fmt::print("  {:<44} {:>8} {:>9.3f} {:>9.1f} x ours{}{}\n", name, "", time.ms,
                   time.ms / own, compile, load);
        bars_.back().ms.push_back({name, time.ms});
      }
      std::fflush(stdout);
    }
  }

  TableOptions options_;
  std::map<int, std::unique_ptr<Peers>> servers_;
  std::vector<Bars> bars_;
};

}  // namespace

void print_table(const std::vector<Work>& works, const TableOptions& options) {
  Table(options).print(works);
}

}  // namespace linnet::cli
