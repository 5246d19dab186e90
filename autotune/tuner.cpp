#include "autotune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "autotune/store.h"
#include "runtime/cache/sha256.h"
#include "runtime/cuda/device.h"
#include "runtime/log.h"
#include "runtime/plugin.h"
#include "runtime/tuning/table.h"

namespace linnet::autotune {

namespace {

using Clock = std::chrono::steady_clock;

bool is_cpu(const TuneOptions& options) { return options.device == "cpu"; }

std::string architecture_of(const TuneOptions& options) {
  if (is_cpu(options)) return cpu_architecture();
  auto gpu = cuda::Device::open(options.device);
  return gpu_architecture(gpu->arch(), gpu->processors());
}

std::string today() {
  std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

// What stands for a class of lengths.
int64_t tokens_of(Length length) {
  return length == Length::short_ ? 128 : length == Length::medium ? 1024 : 8192;
}

Unit unit_of(const Problem& problem, Direction direction, ShapeClass shape, int64_t processors) {
  Unit unit{{problem, direction, {}}, shape};
  int64_t tokens = direction == Direction::decode ? 1 : tokens_of(shape.length);
  auto add = [&](int64_t batch, int64_t heads) {
    unit.subject.shapes.push_back({batch, tokens, heads, heads});
  };
  if (processors > 0) {  // a GPU
    int64_t many = (processors + 31) / 32 * 32;
    add(1, shape.width == Width::few ? 8 : many);
  } else if (direction == Direction::decode) {
    add(1, 32);
    add(16, 32);
  } else {  // one schedule for any number of heads
    add(1, 1);
    add(1, 8);
  }
  return unit;
}

// Of a budget: a run of a long sequence takes longer.
double weight_of(const Unit& unit) {
  if (unit.subject.direction == Direction::decode) return 1;
  return unit.shape.length == Length::short_ ? 1 : unit.shape.length == Length::medium ? 2 : 4;
}

std::unique_ptr<Measurer> measurer_for(const Unit& unit, const TuneOptions& options) {
  if (is_cpu(options))
    return measure_on_cpu(Device::open("cpu", {.threads = options.threads}), unit.subject);
  if (options.device.starts_with("virtual:")) return model(options.device, unit.subject);
  return measure_on_cuda(options.device, unit.subject, options.memory_bytes);
}

class Tuner {
 public:
  Tuner(const std::vector<Problem>& problems, const TuneOptions& options)
      : options_(options),
        architecture_(architecture_of(options)),
        path_(tuning_file_for(options)),
        limits_(limits_of(options.device)),
        units_(units_of(problems, options)) {
    if (options.generic) limits_.vector_registers = Limits().vector_registers;
  }

  std::vector<Tuned> run() {
    for (at_ = 0; at_ < units_.size() && !options_.stop(); ++at_) {
      try {
        tune_one(units_[at_]);
      } catch (const Error& error) {
        if (at_ + 1 == units_.size() && found_.empty()) throw;  // nothing can be tuned
        log_info("{}: not tuned: {}", place(units_[at_]), error.what());
      }
    }
    options_.progress(1, 0, "");
    return std::move(found_);
  }

 private:
  std::string place(const Unit& unit) const {
    return TuningEntry{.key = {unit.subject.problem, unit.subject.direction}, .shape = unit.shape}
        .place();
  }
  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  void tune_one(const Unit& unit) {
    const std::optional<Schedule> sums = sums_of_largest(unit);
    std::vector<Schedule> space = space_of(unit, sums);
    auto measurer = measurer_for(unit, options_);
    std::string what = fmt::format("{}; {}; {}; {}", place(unit), generator_version(),
                                   measurer->device(), unit.subject.describe());
    for (const Schedule& schedule : space) what += "; " + schedule.describe();
    what = sha256_hex(what);
    auto journal_path = path_;
    journal_path += fmt::format(".search-{}", what.substr(0, 16));
    Journal journal(journal_path, what);
    if (journal.remembered() > 0)
      log_info("{}: goes on after {} measurements", place(unit), journal.remembered());
    double left = 0;
    for (size_t i = at_; i < units_.size(); ++i) left += weight_of(units_[i]);
    double share = options_.budget_s > 0
                       ? std::max(0.1, (options_.budget_s - elapsed_s()) * weight_of(unit) / left)
                       : 0;
    SearchOptions search_options{.budget_s = share,
                                 .default_may_win = !sums || space[0].same_sums(*sums),
                                 .stop = options_.stop};
    search_options.progress = [&](double done, const std::string& schedule) {
      double all = (static_cast<double>(at_) + done) / static_cast<double>(units_.size());
      double seconds = options_.budget_s > 0 ? options_.budget_s - elapsed_s()
                       : all > 0.02          ? elapsed_s() * (1 - all) / all
                                             : -1;
      options_.progress(all, seconds, fmt::format("{}: {}", place(unit), schedule));
    };
    SearchResult result = search(space, *measurer, &journal, search_options);
    // What a budget cut short is finished; what a person stopped may go on.
    if (!options_.stop()) journal.remove();
    found_.push_back({entry_for(unit, result, *measurer), result});
    update_tuning_file(path_, architecture_, {found_.back().entry}, options_.made_by);
  }

  // On a GPU all shapes of a problem add their sums as the first, its largest, does.
  std::optional<Schedule> sums_of_largest(const Unit& unit) const {
    if (is_cpu(options_)) return std::nullopt;
    TuningKey key(unit.subject.problem, unit.subject.direction);
    for (const Tuned& tuned : found_)
      if (tuned.entry.key == key) return tuned.entry.schedule;
    return std::nullopt;
  }

  // The default is always there, for others to be held against.
  std::vector<Schedule> space_of(const Unit& unit, const std::optional<Schedule>& sums) const {
    std::vector<Schedule> space =
        make_space(compiler_for(place(unit)), unit.subject.problem, unit.subject.direction, limits_)
            .schedules();
    // Segments are for long sequences.
    auto is_out = [&](const Schedule& s) {
      return sums ? !s.same_sums(*sums) : s.segment > 0 && unit.shape.length != Length::long_;
    };
    space.erase(std::remove_if(space.begin() + 1, space.end(), is_out), space.end());
    return space;
  }

  TuningEntry entry_for(const Unit& unit, const SearchResult& result,
                        const Measurer& measurer) const {
    auto sum = [](const std::vector<double>& ms) {
      double total = 0;
      for (double one : ms) total += one;
      return total;
    };
    // The default's time as it would be beside the best.
    return {.key = {unit.subject.problem, unit.subject.direction},
            .shape = unit.shape,
            .schedule = result.best.schedule,
            .how = measurer.how(),
            .device = measurer.device(),
            .generator = generator_version(),
            .date = today(),
            .workload = unit.subject.describe(),
            .ms = sum(result.best.ms),
            .default_ms = sum(result.best.ms) / result.best.ratio};
  }

  const TuneOptions& options_;
  std::string architecture_;
  std::filesystem::path path_;
  Limits limits_;
  std::vector<Unit> units_;
  size_t at_ = 0;
  std::vector<Tuned> found_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

std::vector<Unit> units_of(const std::vector<Problem>& problems, const TuneOptions& options) {
  int64_t processors = is_cpu(options) ? 0 : cuda::Device::open(options.device)->processors();
  std::vector<Unit> units;
  for (const Problem& problem : problems)
    for (Direction direction : options.directions) {
      bool decode = direction == Direction::decode;
      for (Width width : processors > 0 ? options.widths : std::vector{Width::many})
        for (Length length : decode ? std::vector{Length::short_} : options.lengths)
          units.push_back(unit_of(problem, direction, {width, length}, processors));
    }
  return units;
}

std::vector<Compared> compare(const std::vector<Problem>& problems,
                              const std::vector<Schedule>& others, int runs,
                              const TuneOptions& options) {
  std::vector<TuningFile> files;
  if (auto own = read_tuning_file(tuning_file_for(options))) files.push_back(*own);
  DeviceKind kind = is_cpu(options) ? DeviceKind::cpu : DeviceKind::gpu;
  if (auto shipped = shipped_tuning(kind, architecture_of(options))) files.push_back(*shipped);
  ScheduleTable table(kind, files);
  std::vector<Compared> list;
  for (const Unit& unit : units_of(problems, options)) {
    Compared one{unit, {}, {}};
    one.schedules.push_back(
        table.find(unit.subject.problem, unit.subject.direction).at(unit.shape));
    for (const Schedule& other : others)
      if (unit.subject.direction != Direction::decode || other.chunk == 1)
        one.schedules.push_back(other);
    one.samples = measurer_for(unit, options)->measure(one.schedules, runs);
    list.push_back(std::move(one));
    if (options.stop()) break;
  }
  return list;
}

std::vector<Tuned> tune(const std::vector<Problem>& problems, const TuneOptions& options) {
  return Tuner(problems, options).run();
}

std::filesystem::path tuning_file_for(const TuneOptions& options) {
  auto directory = options.directory.empty() ? tuning_directory() : options.directory;
  if (directory.empty())
    throw UserError("directory: expected one for the results, because LINNET_TUNING_DIR is empty");
  return tuning_path(directory, architecture_of(options));
}

Limits limits_of(const std::string& device) {
  return device == "cpu" ? Limits::of_this_cpu() : Limits::of_gpu(device);
}

}  // namespace linnet::autotune
