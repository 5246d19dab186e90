// One process, one thread: what is stored is found, and roots that take nothing do no harm.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "linnet/error.h"
#include "tests/cache/support.h"

using namespace linnet;
using namespace cache_test;
using namespace std::chrono_literals;

namespace {

Cache::Options options_in(const fs::path& root) { return {.root = root, .max_bytes = 1 << 30}; }

// Two kernels in a root that takes none: built each time, and nothing thrown.
void expect_only_builds(const fs::path& root) {
  CAPTURE(root);
  Cache cache(options_in(root));
  int built = 0;
  for (const char* name : {"kda", "kda", "gla"})
    CHECK(cache.find_or_build(key_of(name), [&] {
      ++built;
      return files_of(name);
    }) == files_of(name));
  CHECK(built == 3);
  CHECK_FALSE(cache.find(key_of("kda")));
  CHECK(cache.list().empty());
}

}  // namespace

TEST_CASE("cache: what is stored is found, here and by another cache on the same root") {
  TempDirectory root;
  Cache cache(options_in(root / "deep/er"));
  CHECK_FALSE(cache.find(key_of("kda")));
  CHECK_FALSE(fs::exists(root / "deep"));  // looking creates nothing
  int built = 0;
  auto build = [&] {
    ++built;
    return files_of("kda");
  };
  CHECK(cache.find_or_build(key_of("kda"), build) == files_of("kda"));
  CHECK(cache.find_or_build(key_of("kda"), build) == files_of("kda"));
  CHECK(Cache(options_in(root / "deep/er")).find(key_of("kda")) == files_of("kda"));
  CHECK(built == 1);
  CHECK_FALSE(cache.find(key_of("gla")));
}

TEST_CASE(
    "cache: an entry is a directory with its files and a manifest, and nothing else is left") {
  TempDirectory root;
  Cache(options_in(root.path)).find_or_build(key_of("kda"), [] { return files_of("kda"); });
  const std::string hex = key_of("kda").hex();
  const fs::path entry = root.path / hex.substr(0, 2) / hex;
  CHECK(names(entry) == std::vector<std::string>{"kernel.bin", "manifest.json", "signature.json"});
  CHECK(read_text(entry / "kernel.bin") == files_of("kda").at("kernel.bin"));
  CHECK(names(root / "staging").empty());
  CHECK(names(root / "locks").empty());
}

TEST_CASE("cache: an empty file and an entry without files are entries too") {
  TempDirectory root;
  Cache cache(options_in(root.path));
  cache.find_or_build(key_of("a"), [] { return Files{{"empty", ""}}; });
  cache.find_or_build(key_of("b"), [] { return Files{}; });
  CHECK(cache.find(key_of("a")) == Files{{"empty", ""}});
  CHECK(cache.find(key_of("b")) == Files{});
}

TEST_CASE("cache: a build that throws passes through, leaves nothing, and may be tried again") {
  TempDirectory root;
  Cache cache(options_in(root.path));
  auto fails = []() -> Files { throw UserError("no such law"); };
  CHECK_THROWS_WITH_AS(cache.find_or_build(key_of("kda"), fails), "no such law", UserError);
  CHECK(names(root / "staging").empty());
  CHECK(names(root / "locks").empty());
  CHECK(cache.list().empty());
  CHECK(cache.find_or_build(key_of("kda"), [] { return files_of("kda"); }) == files_of("kda"));
}

TEST_CASE("cache: switched off it finds nothing, stores nothing and builds each time") {
  TempDirectory root;
  Cache(options_in(root.path)).find_or_build(key_of("kda"), [] { return files_of("kda"); });
  Cache::Options off = options_in(root.path);
  off.enabled = false;
  Cache cache(off);
  int built = 0;
  for (int i = 0; i < 2; ++i) cache.find_or_build(key_of("kda"), [&] { return ++built, Files{}; });
  CHECK(built == 2);
  CHECK_FALSE(cache.find(key_of("kda")));
}

TEST_CASE("cache: a root that cannot be written or does not exist builds and goes on") {
  TempDirectory directory;
  write_text(directory / "file", "");
  expect_only_builds(directory / "file/cache");  // its parent is a file
  expect_only_builds(directory / "file");
  expect_only_builds("/proc/linnet-cache");
  expect_only_builds("/dev/null/cache");
  expect_only_builds(fs::path("/tmp") / std::string(300, 'x'));  // a name that is too long
  expect_only_builds("");                                        // no home directory
}

TEST_CASE("cache: a file where a directory of the cache should be does no harm") {
  for (const char* name : {"staging", "locks"}) {
    TempDirectory root;
    write_text(root / name, "");
    Cache cache(options_in(root.path));
    for (int i = 0; i < 2; ++i)
      CHECK(cache.find_or_build(key_of("kda"), [] { return files_of("kda"); }) == files_of("kda"));
    CHECK(bool(cache.find(key_of("kda"))) == (name == std::string("locks")));
  }
}

TEST_CASE("cache: bundles are looked in first, and never written") {
  TempDirectory root, bundle;
  Cache(options_in(bundle.path)).find_or_build(key_of("kda"), [] {
    return Files{{"a", "bundle"}};
  });
  Cache(options_in(root.path)).find_or_build(key_of("kda"), [] { return Files{{"a", "root"}}; });
  Cache::Options options = options_in(root.path);
  TempDirectory empty;
  options.bundles = {empty.path, bundle.path};
  Cache cache(options);
  CHECK(cache.find(key_of("kda")) == Files{{"a", "bundle"}});

  const fs::path entry = Store(bundle.path).entry_path(key_of("kda").hex());
  const auto before = fs::last_write_time(entry / "manifest.json");
  std::this_thread::sleep_for(20ms);
  cache.find(key_of("kda"));
  cache.find_or_build(key_of("gla"), [] { return files_of("gla"); });
  CHECK(fs::last_write_time(entry / "manifest.json") == before);
  CHECK(Store(bundle.path).scan().size() == 1);
  CHECK(Store(root.path).scan().size() == 2);

  // A cache that is off has bundles all the same.
  options.enabled = false;
  CHECK(Cache(options).find_or_build(key_of("kda"), [] { return Files{}; }) ==
        Files{{"a", "bundle"}});
}

TEST_CASE(
    "cache: a bundle that is damaged or not there is an error, though the root has the entry") {
  TempDirectory root, bundle;
  for (const fs::path& path : {root.path, bundle.path})
    Cache(options_in(path)).find_or_build(key_of("kda"), [] { return Files{{"a", "text"}}; });
  Cache::Options options = options_in(root.path);
  options.bundles = {bundle.path};
  Cache cache(options);
  const fs::path entry = Store(bundle.path).entry_path(key_of("kda").hex());
  write_text(entry / "a", "texT");
  CHECK_THROWS_WITH_AS(cache.find(key_of("kda")), doctest::Contains("is damaged: a: its digest"),
                       DeviceError);
  write_text(entry / "a", "tex");
  CHECK_THROWS_WITH_AS(cache.find_or_build(key_of("kda"), [] { return Files{}; }),
                       doctest::Contains("a: expected 4 bytes, got 3"), DeviceError);
  CHECK(read_text(entry / "a") == "tex");
  options.bundles = {root / "none"};
  CHECK_THROWS_WITH_AS(Cache{options}, doctest::Contains("bundle: expected a directory"),
                       UserError);
}

TEST_CASE("cache: whatever the umask, the owner can read entries and nobody else can write them") {
  TempDirectory root;
  for (mode_t mask : {0777, 0077, 0022, 0000}) {
    const std::string name = std::to_string(mask);
    mode_t before = ::umask(mask);
    Cache(options_in(root / name)).find_or_build(key_of("kda"), [] { return files_of("kda"); });
    ::umask(before);
    int seen = 0;
    for (const auto& file : fs::recursive_directory_iterator(root / name)) {
      struct stat status;
      REQUIRE(::stat(file.path().c_str(), &status) == 0);
      const mode_t owner = file.is_directory() ? 0700 : 0600;
      CHECK((status.st_mode & owner) == owner);
      CHECK((status.st_mode & 0022) == 0);
      if (mask == 0077) CHECK((status.st_mode & 0077) == 0);
      ++seen;
    }
    CHECK(seen == 7);  // the shard, the entry, three files, staging, locks
  }
}

TEST_CASE("cache: a warm find of 100 KB takes well under a millisecond") {
  TempDirectory root;
  Cache cache(options_in(root.path));
  const Files files = files_of("kda", 100 << 10);
  cache.find_or_build(key_of("kda"), [&] { return files; });
  std::vector<std::chrono::nanoseconds> times;
  for (int i = 0; i < 200; ++i) {
    auto start = std::chrono::steady_clock::now();
    auto found = cache.find(key_of("kda"));
    times.push_back(std::chrono::steady_clock::now() - start);
    REQUIRE(found);
  }
  std::sort(times.begin(), times.end());
  MESSAGE("200 warm finds of 100 KB: best ", times[0].count() / 1000, " us, median ",
          times[100].count() / 1000, " us");
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(times[0] < 1ms);
#endif
}
