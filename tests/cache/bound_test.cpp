// The size bound: what goes, and what stays.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/cache/support.h"

using namespace linnet;
using namespace cache_test;

namespace {

// As if the file had last been written so many seconds ago.
void make_older(const fs::path& path, int seconds) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec -= seconds;
  timespec times[2] = {now, now};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

struct Bounded {
  TempDirectory root;
  Cache cache;
  explicit Bounded(uint64_t max_bytes) : cache({.root = root.path, .max_bytes = max_bytes}) {}

  void store(const std::string& name, size_t bytes, int seconds_ago = 0) {
    cache.find_or_build(key_of(name),
                        [&] { return Files{{"kernel.bin", std::string(bytes, 'x')}}; });
    if (seconds_ago > 0) make_older(entry(name) / "manifest.json", seconds_ago);
  }
  fs::path entry(const std::string& name) {
    return Store(root.path).entry_path(key_of(name).hex());
  }
  bool has(const std::string& name) { return fs::exists(entry(name)); }
  uint64_t bytes() {
    uint64_t sum = 0;
    for (const EntryInfo& info : cache.list()) sum += info.bytes;
    return sum;
  }
};

}  // namespace

TEST_CASE("bound: the least recently used go first, until a tenth is free") {
  Bounded b(100'000);
  b.store("a", 20'000, 50);
  b.store("b", 20'000, 40);
  b.store("c", 20'000, 30);
  b.store("d", 20'000, 20);
  CHECK(b.has("a"));
  REQUIRE(b.cache.find(key_of("a")));  // now the most recently used
  b.store("e", 20'000);                // 5 x 20,000 and their manifests: too much
  CHECK(b.has("a"));
  CHECK_FALSE(b.has("b"));
  CHECK(b.has("c"));
  CHECK(b.has("d"));
  CHECK(b.has("e"));
  CHECK(b.bytes() <= 90'000);
  CHECK(names(b.root / "staging").empty());
}

TEST_CASE("bound: a hundred stores stay below it") {
  Bounded b(100'000);
  for (int i = 0; i < 100; ++i) {
    b.store(std::to_string(i), 9'000);
    REQUIRE(b.bytes() <= 100'000);
  }
  CHECK(b.has("99"));
  CHECK(b.cache.list().size() >= 8);
}

TEST_CASE("bound: the entry just stored stays, even if it alone is too large") {
  Bounded b(10'000);
  b.store("small", 1'000, 10);
  b.store("large", 50'000);
  CHECK(b.has("large"));
  CHECK_FALSE(b.has("small"));
  b.store("next", 1'000);
  CHECK(b.has("next"));
  CHECK_FALSE(b.has("large"));
}

TEST_CASE("bound: what other processes stored counts") {
  Bounded b(100'000);
  b.store("mine", 10'000, 100);
  Cache other({.root = b.root.path, .max_bytes = 1 << 30});
  for (int i = 0; i < 20; ++i)
    other.find_or_build(key_of(std::to_string(i)),
                        [&] { return Files{{"kernel.bin", std::string(10'000, 'x')}}; });
  CHECK(b.bytes() > 200'000);
  for (int i = 0; i < 64; ++i) b.store("small" + std::to_string(i), 10);
  CHECK(b.bytes() <= 100'000);
  CHECK_FALSE(b.has("mine"));
}

TEST_CASE("bound: a damaged entry without a manifest is the first to go") {
  Bounded b(50'000);
  b.store("old", 15'000, 1000);
  b.store("damaged", 15'000);
  fs::remove(b.entry("damaged") / "manifest.json");
  b.store("new", 20'000);
  CHECK_FALSE(b.has("damaged"));
  CHECK(b.has("old"));
}

TEST_CASE("prune: keeps the most recently used within the given size; zero removes all") {
  Bounded b(1 << 30);
  b.store("a", 10'000, 30);
  b.store("b", 10'000, 20);
  b.store("c", 10'000, 10);
  Store::Removed removed = b.cache.prune(25'000);
  CHECK(removed.entries == 1);
  CHECK(removed.bytes > 10'000);
  CHECK(removed.bytes_left == b.bytes());
  CHECK_FALSE(b.has("a"));
  fs::create_directories(b.entry("empty"));
  fs::create_directories(b.entry("file").parent_path());
  write_text(b.entry("file"), "not a directory");
  CHECK(b.cache.prune(0).entries == 4);
  CHECK(b.cache.list().empty());
  CHECK(b.cache.prune(0).entries == 0);
}

TEST_CASE(
    "leftovers: staging and locks of processes that died an hour ago are removed, no others") {
  Bounded b(1 << 30);
  for (const char* name : {"staging/old", "staging/new", "locks"})
    fs::create_directories(b.root / name);
  for (const char* name :
       {"staging/old/kernel.bin", "staging/new/kernel.bin", "locks/old", "locks/new"})
    write_text(b.root / name, "half");
  make_older(b.root / "staging/old", 4000);
  make_older(b.root / "locks/old", 4000);
  b.store("a", 10);
  CHECK(names(b.root / "staging") == std::vector<std::string>{"new"});
  CHECK(names(b.root / "locks") == std::vector<std::string>{"new"});
}

TEST_CASE("list: the most recently used first, with size, fields and times") {
  Bounded b(1 << 30);
  b.store("a", 100, 7200);
  b.store("b", 100);
  std::vector<EntryInfo> entries = b.cache.list();
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].key == key_of("b").hex());
  CHECK(entries[1].key == key_of("a").hex());
  CHECK(entries[1].fields == key_of("a").fields());
  CHECK(entries[1].bytes == 100 + fs::file_size(b.entry("a") / "manifest.json"));
  CHECK(entries[0].used - entries[1].used >= 7199);
  CHECK(entries[0].created - entries[1].created <= 60);
  CHECK(entries[0].created > 1'700'000'000);
}
