// A tuning file: schedules found for one architecture, each with what it is for and how it was
// found. Readable text, to be shipped, merged and reviewed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "linnet/problem.h"
#include "linnet/schedule.h"

namespace linnet {

// How long sequences are. Never their exact length: a new batch must not mean a new schedule.
enum class Length { short_, medium, long_ };
// Whether sequences x heads leave parts of the device idle. On a CPU always `many`: there a
// schedule must not depend on a sequence's neighbours (DESIGN.md).
enum class Width { few, many };

struct ShapeClass {
  Width width = Width::many;
  Length length = Length::medium;
  bool operator==(const ShapeClass&) const = default;
};
inline constexpr int64_t kShortTokens = 512, kLongTokens = 4096;  // below, and from
inline Length length_of(int64_t tokens) {
  return tokens < kShortTokens  ? Length::short_
         : tokens < kLongTokens ? Length::medium
                                : Length::long_;
}
const char* name_of(Length length);
const char* name_of(Width width);
const char* name_of(Direction direction);

// What of a problem its schedules are kept by.
struct TuningKey {
  std::string op;
  Direction direction = Direction::forward;
  std::string gate;  // the gate's mode: "pre", "pre_bounded", "softplus", "bounded"
  DType dtype = DType::f32, gate_dtype = DType::f32, state_dtype = DType::f32;
  bool tf32 = false;
  int64_t key_dim = 0, value_dim = 0;

  TuningKey() = default;
  TuningKey(const Problem& problem, Direction direction);
  bool operator==(const TuningKey&) const = default;
  std::string describe() const;  // "kda forward, gate pre, f32 (gate f32, state f32), K 128, V 128"
};

struct TuningEntry {
  TuningKey key;
  ShapeClass shape;
  Schedule schedule;
  // How it was found.
  std::string how;        // "measured", "modelled" or "by hand"
  std::string device;     // on what
  std::string generator;  // by which version
  std::string date;       // "2026-11-16"
  std::string workload;   // "B=1 T=1024 H=8"
  double ms = 0, default_ms = 0;

  bool same_place(const TuningEntry& other) const {
    return key == other.key && shape == other.shape;
  }
  std::string place() const;  // key and shape, for people
};

struct TuningFile {
  // Of the file's form, and of what schedules mean: one more whenever an old schedule would no
  // longer be a good choice. Files of another version are not used.
  static constexpr int kFormat = 1, kSchedules = 1;

  std::string architecture;
  std::string made_by;  // the command
  std::vector<TuningEntry> entries;

  // Throws Error that says what is wrong: not JSON, of another version, an entry that makes no
  // sense.
  static TuningFile parse(std::string_view text);
  std::string text() const;  // entries in a fixed order
  // Puts entries in, in place of those for the same.
  void merge(const std::vector<TuningEntry>& other);
};

// The file at a path; nothing if there is none. Throws Error that begins with the path.
std::optional<TuningFile> read_tuning_file(const std::filesystem::path& path);

}  // namespace linnet
