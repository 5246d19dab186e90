// Several processes on one cache, some of them killed, some out of disk.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "tests/cache/support.h"

using namespace linnet;
using namespace cache_test;
using namespace std::chrono_literals;

namespace {

struct Processes {
  TempDirectory directory;
  const fs::path root = directory / "cache", builds = directory / "builds", log = directory / "log";

  std::unique_ptr<Helper> start(std::vector<std::string> arguments, bool held = false) {
    arguments.insert(arguments.begin(), {"--root", root, "--builds", builds});
    return std::make_unique<Helper>(arguments, log, held);
  }
  int built(const std::string& name) { return count(read_text(builds), name + "\n"); }
  void expect_whole_entries() {
    for (const EntryInfo& entry : Cache({.root = root, .max_bytes = 1 << 30}).verify())
      CHECK_MESSAGE(entry.damage == "", entry.path.string());
  }
};

}  // namespace

TEST_CASE("processes: ten that start cold together build each of five entries once") {
  Processes p;
  std::vector<std::unique_ptr<Helper>> helpers;
  for (int i = 0; i < 10; ++i) {
    std::vector<std::string> arguments = {"--build-ms", "30", "--entry-bytes", "50000"};
    for (int k = 0; k < 5; ++k) arguments.push_back("entry" + std::to_string((i + k) % 5));
    helpers.push_back(p.start(arguments, true));
  }
  for (auto& helper : helpers) helper->go();
  for (auto& helper : helpers) CHECK(helper->result() == 0);
  for (int k = 0; k < 5; ++k) CHECK(p.built("entry" + std::to_string(k)) == 1);
  CHECK(read_text(p.log) == "");
  p.expect_whole_entries();
  CHECK(names(p.root / "staging").empty());
  CHECK(names(p.root / "locks").empty());
}

TEST_CASE("processes: one killed in the middle of its build harms none; another takes over") {
  Processes p;
  auto victim = p.start({"--build-ms", "600000", "kda"});
  REQUIRE(eventually([&] { return p.built("kda") == 1; }));
  std::vector<std::unique_ptr<Helper>> others;
  for (int i = 0; i < 3; ++i) others.push_back(p.start({"--build-ms", "20", "kda"}));
  std::this_thread::sleep_for(200ms);
  CHECK(p.built("kda") == 1);  // they wait
  const auto start = std::chrono::steady_clock::now();
  victim->kill();
  CHECK(victim->result() == -9);
  for (auto& other : others) CHECK(other->result() == 0);
  CHECK(std::chrono::steady_clock::now() - start < 10s);  // not the 30 s of the limit
  CHECK(p.built("kda") == 2);
  p.expect_whole_entries();
  CHECK(names(p.root / "staging").empty());
}

TEST_CASE("processes: killed at any moment of their stores, they leave no half entry") {
  Processes p;
  for (int i = 0; i < 25; ++i) {
    std::vector<std::string> arguments = {"--entry-bytes", "200000",      "--rounds",
                                          "1000",          "--max-bytes", "900000"};
    for (int k = 0; k < 10; ++k) arguments.push_back("entry" + std::to_string(k));
    auto one = p.start(arguments), two = p.start(arguments);
    std::this_thread::sleep_for(20ms + i * 3ms);
    one->kill();
    two->kill();
    CHECK(one->result() == -9);
    CHECK(two->result() == -9);
    p.expect_whole_entries();
  }
  CHECK(count(read_text(p.log), "damaged") == 0);
  auto next = p.start({"--entry-bytes", "200000", "entry0", "entry1"});
  CHECK(next->result() == 0);
}

TEST_CASE("processes: evicting under each other's feet, none sees a damaged entry") {
  Processes p;
  std::vector<std::unique_ptr<Helper>> helpers;
  for (int i = 0; i < 4; ++i) {
    std::vector<std::string> arguments = {"--entry-bytes", "20000", "--rounds", "15",
                                          "--max-bytes",   "100000"};
    for (int k = 0; k < 10; ++k) arguments.push_back("entry" + std::to_string((i * 3 + k) % 10));
    helpers.push_back(p.start(arguments, true));
  }
  for (auto& helper : helpers) helper->go();
  for (auto& helper : helpers) CHECK(helper->result() == 0);
  CHECK(read_text(p.log) == "");
  p.expect_whole_entries();
}

TEST_CASE("processes: one that has waited long enough builds its own copy and goes on") {
  Processes p;
  auto slow = p.start({"--build-ms", "600000", "kda"});
  REQUIRE(eventually([&] { return p.built("kda") == 1; }));
  Cache cache({.root = p.root, .max_bytes = 1 << 30, .wait = 100ms});
  int built = 0;
  const auto start = std::chrono::steady_clock::now();
  Files files = cache.find_or_build(key_of("kda"), [&] { return ++built, files_of("kda"); });
  const auto waited = std::chrono::steady_clock::now() - start;
  CHECK(files == files_of("kda"));
  CHECK(built == 1);
  CHECK(waited >= 100ms);
  CHECK(waited < 5s);
  CHECK(cache.find(key_of("kda")) == files_of("kda"));  // stored for the others
}

TEST_CASE(
    "processes: of two that stored the same entry, the loser uses its own and leaves nothing") {
  TempDirectory root;
  Store store(root.path);
  Files first = {{"kernel.bin", "first"}}, second = {{"kernel.bin", "second"}};
  store.write(key_of("kda"), first);
  store.write(key_of("kda"), second);
  CHECK(store.read(key_of("kda").hex()).files == first);
  CHECK(names(root / "staging").empty());
}

TEST_CASE("processes: a full disk costs one line, not a result, and leaves no half entry") {
  Processes p;
  auto helper = p.start({"--file-limit", "4096", "--entry-bytes", "50000", "a", "b", "c", "a"});
  CHECK(helper->result() == 0);
  CHECK(p.built("a") == 2);
  const std::string log = read_text(p.log);
  CHECK(count(log, "\n") == 1);
  CHECK(count(log, "takes no entries") == 1);
  CHECK(count(log, "File too large") == 1);
  CHECK(names(p.root / "staging").empty());
  CHECK(Store(p.root).scan().empty());
}

TEST_CASE("processes: a root that cannot be written costs one line in a process") {
  Processes p;
  write_text(p.root, "a file, not a directory");
  auto helper = p.start({"--rounds", "3", "a", "b"});
  CHECK(helper->result() == 0);
  CHECK(p.built("a") == 3);
  const std::string log = read_text(p.log);
  CHECK(count(log, "\n") == 1);
  CHECK(count(log, p.root.string() + " takes no entries") == 1);
}

TEST_CASE("log: LINNET_LOG chooses between nothing, the unusual and everything") {
  for (const auto& [level, lines] :
       std::map<std::string, int>{{"0", 0}, {"quiet", 0}, {"info", 1}, {"2", 3}}) {
    Processes p;
    write_text(p.root, "a file, not a directory");
    ::setenv("LINNET_LOG", level.c_str(), 1);
    CHECK(p.start({"a", "b"})->result() == 0);
    ::unsetenv("LINNET_LOG");
    CAPTURE(level);
    CHECK(count(read_text(p.log), "\n") == lines);
  }
  Processes p;
  ::setenv("LINNET_LOG", "loud", 1);
  CHECK(p.start({"a"})->result() == 0);
  ::unsetenv("LINNET_LOG");
  CHECK(count(read_text(p.log), "LINNET_LOG: expected 0 or quiet") == 1);
}
