#include "compiler/cli/tune_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "autotune/store.h"
#include "autotune/tuner.h"
#include "compiler/cli/commands.h"
#include "runtime/tuning/table.h"

namespace linnet::cli {

namespace {

struct TuneFiles {
  std::string device = "cpu", directory;
  std::vector<std::string> files;
  std::string file, out;
  bool generic = false;
  double least_gain = 0;

  autotune::TuneOptions options() const { return {.device = device, .directory = directory}; }

  static TuningFile read(const std::string& path) {
    try {
      if (auto file = read_tuning_file(path)) return *file;
    } catch (const Error& error) {
      throw UserError(error.what());
    }
    throw UserError(fmt::format("{}: expected a tuning file; it cannot be opened", path));
  }

  // The user's file, and what is shipped, without what the user's overrides.
  void show() const {
    bool cpu = device == "cpu";
    auto path = autotune::tuning_file_for(options());
    std::string architecture = autotune::limits_of(device).name;
    TuningFile own;
    try {
      own = read_tuning_file(path).value_or(TuningFile{});
    } catch (const Error& error) {
      fmt::print("ignored: {}\n", error.what());
    }
    auto print = [](const TuningEntry& e, const char* from) {
      fmt::print("{}\n  {}\n  {} {:.2f} x the default's speed on {}, {}, {} ({})\n", e.place(),
                 e.schedule.describe(), e.how, e.default_ms / e.ms, e.device, e.date, e.generator,
                 from);
    };
    for (const TuningEntry& e : own.entries) print(e, "your file");
    auto shipped = shipped_tuning(cpu ? DeviceKind::cpu : DeviceKind::gpu, architecture);
    size_t hidden = 0;
    if (shipped)
      for (const TuningEntry& e : shipped->entries) {
        auto same = [&](const TuningEntry& o) { return o.same_place(e); };
        bool overridden = std::any_of(own.entries.begin(), own.entries.end(), same);
        overridden ? void(++hidden) : print(e, "shipped");
      }
    fmt::print("{}: {} entries of {}, {} shipped ({} of them overridden)\n", architecture,
               own.entries.size(), path.string(), shipped ? shipped->entries.size() : 0, hidden);
  }

  void export_to() const {
    auto path = autotune::tuning_file_for(options());
    TuningFile own = read(path.string());
    if (generic) own.architecture = own.architecture.substr(0, own.architecture.find(' '));
    std::string exported = "linnet tune export";
    if (generic) exported += " --generic";
    if (least_gain > 0) {
      keep_what_pays(own);
      exported += fmt::format(" --least-gain {:g}", least_gain);
    }
    own.made_by += fmt::format("; {} (on {})", exported, autotune::limits_of(device).name);
    autotune::write_tuning_file(file, own);
    fmt::print("{}: {} entries for {}\n", file, own.entries.size(), own.architecture);
  }

  // What gains less than asked takes the default, which costs nobody a kernel of its own.
  void keep_what_pays(TuningFile& file) const {
    DeviceKind kind = device == "cpu" ? DeviceKind::cpu : DeviceKind::gpu;
    for (TuningEntry& e : file.entries) {
      if (e.default_ms >= least_gain * e.ms) continue;
      Problem problem{.op = e.key.op, .key_dim = e.key.key_dim, .value_dim = e.key.value_dim};
      problem.dtype = e.key.dtype;
      e.schedule = default_schedule(kind, problem, e.key.direction, /*here=*/!generic);
      e.ms = e.default_ms;
    }
  }

  // Into the file of the architecture it speaks of, whichever machine this is.
  void import_from() const {
    TuningFile other = read(file);
    std::filesystem::path directory = this->directory;
    if (directory.empty()) directory = tuning_directory();
    if (directory.empty())
      throw UserError("--dir: expected a directory, LINNET_TUNING_DIR is empty");
    auto path = tuning_path(directory, other.architecture);
    autotune::update_tuning_file(path, other.architecture, other.entries,
                                 fmt::format("linnet tune import {}", file));
    fmt::print("{}: {} entries came from {}\n", path.string(), other.entries.size(), file);
  }

  void merge() const {
    TuningFile result = read(files.front());
    for (size_t i = 1; i < files.size(); ++i) {
      TuningFile next = read(files[i]);
      if (next.architecture != result.architecture)
        throw UserError(fmt::format("{}: expected a file for {}, got one for {}", files[i],
                                    result.architecture, next.architecture));
      result.merge(next.entries);
    }
    result.made_by = "linnet tune merge";
    autotune::write_tuning_file(out, result);
    fmt::print("{}: {} entries of {} files\n", out, result.entries.size(), files.size());
  }

  void diff() const {
    TuningFile a = read(files.at(0)), b = read(files.at(1));
    size_t differences = 0;
    auto find = [](const TuningFile& file, const TuningEntry& entry) -> const TuningEntry* {
      for (const TuningEntry& e : file.entries)
        if (e.same_place(entry)) return &e;
      return nullptr;
    };
    if (a.architecture != b.architecture) {
      fmt::print("- {}\n+ {}\n", a.architecture, b.architecture);
      ++differences;
    }
    for (const TuningEntry& e : a.entries) {
      const TuningEntry* other = find(b, e);
      if (other && other->schedule == e.schedule) continue;
      fmt::print("{}\n- {}\n", e.place(), e.schedule.describe());
      if (other) fmt::print("+ {}\n", other->schedule.describe());
      ++differences;
    }
    for (const TuningEntry& e : b.entries)
      if (!find(a, e)) {
        fmt::print("{}\n+ {}\n", e.place(), e.schedule.describe());
        ++differences;
      }
    if (differences) throw ExitCode{1};
  }
};

}  // namespace

void add_tune_files(CLI::App& tune) {
  auto state = std::make_shared<TuneFiles>();
  auto add = [&](const char* name, const char* what, void (TuneFiles::*run)() const) {
    CLI::App* command = tune.add_subcommand(name, what);
    command->callback([state, run] { ((*state).*run)(); });
    return command;
  };
  auto with_place = [&](CLI::App* command) {
    command->add_option("--device", state->device, "whose schedules")->capture_default_str();
    command->add_option("--dir", state->directory, "another directory than LINNET_TUNING_DIR's");
    return command;
  };
  with_place(
      add("show", "the schedules known for a device, and how they were found", &TuneFiles::show));
  CLI::App* copy = with_place(add("export", "copy a device's file", &TuneFiles::export_to));
  copy->add_option("file", state->file, "to this one")->required();
  copy->add_flag("--generic", state->generic,
                 "for every CPU, or every GPU of the architecture: how shipped files are made");
  copy->add_option("--least-gain", state->least_gain,
                   "what gains less over the default takes the default: 1.05")
      ->check(CLI::Range(1.0, 100.0));
  with_place(add("import", "take the entries of a file, in place of those for the same",
                 &TuneFiles::import_from))
      ->add_option("file", state->file, "from this one")
      ->required();
  CLI::App* merge = add("merge", "one file of several; later ones win", &TuneFiles::merge);
  merge->add_option("files", state->files, "tuning files")->required();
  merge->add_option("-o,--output", state->out, "the result")->required();
  add("diff", "where two files disagree; ends with 1 if they do", &TuneFiles::diff)
      ->add_option("files", state->files, "two tuning files")
      ->required()
      ->expected(2);
}

}  // namespace linnet::cli
