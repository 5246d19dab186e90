// Tuning files: what they hold, and that nothing which happens to them loses anything or crashes.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "autotune/store.h"
#include "linnet/error.h"
#include "tests/autotune/support.h"

using namespace linnet;
using namespace linnet::autotune;
using namespace std::chrono_literals;

namespace {

const Problem kKda{.op = "kda"};

TuningFile file_of(std::vector<TuningEntry> entries) {
  return {"cpu test", "a test", std::move(entries)};
}

Problem numbered(int n) { return {.op = "op" + std::to_string(n)}; }

// Runs in a process of its own.
template <class F>
pid_t start(F body) {
  pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}
int result_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  return names;
}

}  // namespace

TEST_CASE("schedule: text and back, and what is not one is refused by name") {
  Schedule s{.chunk = 32, .register_rows = 6, .warps = 8, .value_block = 32};
  s.stages.distribute_inverse = true;
  CHECK(s.describe() == "chunk=32 register_rows=6 warps=8 value_block=32 distribute_inverse=1");
  CHECK(Schedule::parse(s.describe()) == s);
  CHECK(Schedule::parse("chunk=32,register_rows=6, warps=8 value_block=32 distribute_inverse=1") ==
        s);
  CHECK(Schedule::parse("").describe() == "chunk=16");
  for (const char* wrong : {"chunk", "chunk=", "chunk=x", "chunk=-1", "chunk=99999999999999999999",
                            "chunks=16", "fuse_stages=2", "=3", "chunk=16.5"}) {
    CAPTURE(wrong);
    try {
      Schedule::parse(wrong, "--schedule");
      FAIL("taken");
    } catch (const UserError& error) {
      CHECK(std::string(error.what()).starts_with("--schedule: expected <field>=<number>"));
      CHECK(std::string(error.what()).ends_with("got '" + std::string(wrong) + "'"));
    }
  }
}

TEST_CASE("store: a file reads back as it was, in an order of its own") {
  TuningEntry a = entry(kKda, {.chunk = 32}),
              b = entry(kKda, {.chunk = 64}, {Width::few, Length::long_});
  b.device = "a \"quoted\" \\ name\n";
  b.key.tf32 = true;
  TuningFile file = file_of({b, a});
  TuningFile back = TuningFile::parse(file.text());
  CHECK(back.architecture == "cpu test");
  REQUIRE(back.entries.size() == 2);
  CHECK(back.entries[0].same_place(a));
  CHECK(back.entries[1].same_place(b));
  CHECK(back.entries[1].schedule == b.schedule);
  CHECK(back.entries[1].device == b.device);
  CHECK(back.text() == file.text());
  CHECK(file_of({a, b}).text() == file.text());
}

TEST_CASE("store: merged entries take the place of those for the same, and only of those") {
  TuningFile file = file_of({entry(kKda, {.chunk = 32})});
  Problem softplus = kKda;
  softplus.gate = Gate::softplus;
  file.merge(
      {entry(softplus, {.chunk = 64}), entry(kKda, {.chunk = 1}, {Width::many, Length::short_})});
  CHECK(file.entries.size() == 3);
  file.merge({entry(kKda, {.chunk = 64})});
  CHECK(file.entries.size() == 3);
  CHECK(file.entries[0].schedule.chunk == 64);
}

TEST_CASE("store: files that are broken, cut short, foreign or newer are refused with the reason") {
  const std::string good = file_of({entry(kKda, {.chunk = 32})}).text();
  auto message = [](const std::string& text) -> std::string {
    try {
      TuningFile::parse(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  };
  auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  CHECK(message(good) == "taken");
  CHECK(message("") == "expected a value at byte 0");
  CHECK(message("[]") == "expected an object");
  CHECK(message("{}") == "expected a number as \"format\"");
  CHECK(message(with("\"format\": 1", "\"format\": 2")) ==
        "it is of another version: \"format\" 2, this is 1");
  CHECK(message(with("\"schedules\": 1", "\"schedules\": 0")) ==
        "it is of another version: \"schedules\" 0, this is 1");
  CHECK(message(with("\"chunk\": 32", "\"chunks\": 32")) ==
        "a schedule with chunks = 32 is not known");
  CHECK(message(with("\"chunk\": 32", "\"chunk\": 0")) == "a schedule has no chunk");
  CHECK(message(with("\"forward\"", "\"sideways\"")) ==
        "expected another \"direction\" than \"sideways\"");
  CHECK(message(with("\"K\": 128", "\"K\": -1")) == "expected another \"K\" than -1");
  CHECK(message(std::string(100000, '[')).starts_with("expected fewer brackets"));
  for (size_t cut = 0; cut + 2 < good.size(); ++cut) CHECK(message(good.substr(0, cut)) != "taken");
  // Bytes at random: an answer or an Error, never a crash.
  unsigned state = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    for (int n = 0; n < 3; ++n) {
      state = state * 1664525u + 1013904223u;
      text[state % text.size()] = static_cast<char>(state >> 24);
    }
    message(text);
  }
}

TEST_CASE("store: a file that cannot be used is kept under another name") {
  TempDirectory directory;
  auto path = directory.path / "cpu.json";
  for (std::string old : {std::string("{ half a fi"), TuningFile{"cpu other", "", {}}.text()}) {
    for (const auto& name : names_in(directory.path))
      std::filesystem::remove(directory.path / name);
    write_text(path, old);
    update_tuning_file(path, "cpu test", {entry(kKda, {.chunk = 32})}, "a test");
    CHECK(read_tuning_file(path)->entries.size() == 1);
    bool kept = false;
    for (const auto& name : names_in(directory.path))
      kept |= name.find(".kept-") != std::string::npos && text_of(directory.path / name) == old;
    CHECK(kept);
  }
}

TEST_CASE("store: a file names the commands that made it, each once") {
  TempDirectory directory;
  auto path = directory.path / "cpu.json";
  for (const char* command : {"tune kda", "tune gla", "tune kda"})
    update_tuning_file(path, "cpu test", {entry(kKda, {.chunk = 32})}, command);
  CHECK(read_tuning_file(path)->made_by == "tune kda; tune gla");
  for (int i = 0; i < 100; ++i)
    update_tuning_file(path, "cpu test", {}, std::string(90, 'x') + std::to_string(i));
  std::string made_by = read_tuning_file(path)->made_by;
  CHECK(made_by.size() <= 4000);
  CHECK(made_by.ends_with("x99"));
}

TEST_CASE("store: ten processes that write one file lose nothing") {
  TempDirectory directory;
  auto path = directory.path / "cpu.json";
  constexpr int kProcesses = 10, kEntries = 8;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p)
    children.push_back(start([&] {
      for (int e = 0; e < kEntries; ++e)
        update_tuning_file(path, "cpu test", {entry(numbered(p * kEntries + e), {.chunk = 32})},
                           "");
    }));
  // Whoever reads meanwhile sees a whole file.
  for (int i = 0; i < 200; ++i) CHECK_NOTHROW(read_tuning_file(path));
  for (pid_t child : children) CHECK(result_of(child) == 0);
  CHECK(read_tuning_file(path)->entries.size() == kProcesses * kEntries);
  CHECK(names_in(directory.path) == std::vector<std::string>{"cpu.json"});
}

TEST_CASE("store: writers that are killed at any moment leave a whole file and no lock") {
  TempDirectory directory;
  auto path = directory.path / "cpu.json";
  size_t before = 0;
  for (int round = 0; round < 25; ++round) {
    pid_t victim = start([&] {
      for (int e = 0;; ++e)
        update_tuning_file(path, "cpu test", {entry(numbered(e % 50), {.chunk = 32})}, "");
    });
    std::this_thread::sleep_for(3ms + round * 1ms);
    kill(victim, SIGKILL);
    CHECK(result_of(victim) == -SIGKILL);
    auto file = read_tuning_file(path);
    CHECK((!file || file->entries.size() >= before));
    before = file ? file->entries.size() : 0;
  }
  CHECK(before > 0);
  update_tuning_file(path, "cpu test", {entry(kKda, {.chunk = 64})}, "");
  CHECK(read_tuning_file(path)->entries.size() == before + 1);
  CHECK(names_in(directory.path) == std::vector<std::string>{"cpu.json"});
}

TEST_CASE("store: a place that cannot be written is named") {
  CHECK_THROWS_AS(update_tuning_file("/proc/linnet/cpu.json", "cpu test", {}, ""), DeviceError);
  CHECK_THROWS_AS(write_tuning_file("/proc/linnet/cpu.json", {}), DeviceError);
}
