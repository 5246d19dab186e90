// Threads of one process; also what ThreadSanitizer is run on.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "linnet/error.h"
#include "tests/cache/support.h"

using namespace linnet;
using namespace cache_test;
using namespace std::chrono_literals;

namespace {

template <class F>
void in_threads(int threads, F work) {
  std::vector<std::jthread> running;
  for (int i = 0; i < threads; ++i) running.emplace_back([&work, i] { work(i); });
}

}  // namespace

TEST_CASE("threads: eight that want the same entry build it once") {
  TempDirectory root;
  Cache cache({.root = root.path, .max_bytes = 1 << 30});
  std::atomic<int> built = 0, right = 0;
  in_threads(8, [&](int) {
    Files files = cache.find_or_build(key_of("kda"), [&] {
      ++built;
      std::this_thread::sleep_for(50ms);
      return files_of("kda");
    });
    right += files == files_of("kda");
  });
  CHECK(built == 1);
  CHECK(right == 8);
}

TEST_CASE("threads: they build once even where nothing can be stored") {
  Cache cache({.root = "/proc/linnet-cache", .max_bytes = 1 << 30});
  std::atomic<int> waiting = 0, built = 0, right = 0;
  in_threads(4, [&](int) {
    ++waiting;
    Files files = cache.find_or_build(key_of("kda"), [&] {
      ++built;
      eventually([&] { return waiting == 4; });
      std::this_thread::sleep_for(100ms);
      return files_of("kda");
    });
    right += files == files_of("kda");
  });
  CHECK(built == 1);
  CHECK(right == 4);
}

TEST_CASE("threads: two caches on one root build once between them") {
  TempDirectory root;
  Cache one({.root = root.path, .max_bytes = 1 << 30}),
      two({.root = root.path, .max_bytes = 1 << 30});
  std::atomic<int> built = 0;
  in_threads(2, [&](int i) {
    (i == 0 ? one : two).find_or_build(key_of("kda"), [&] {
      ++built;
      std::this_thread::sleep_for(100ms);
      return files_of("kda");
    });
  });
  CHECK(built == 1);
}

TEST_CASE("threads: if the one that builds throws, the next tries") {
  TempDirectory root;
  Cache cache({.root = root.path, .max_bytes = 1 << 30});
  std::atomic<int> tried = 0, failed = 0, right = 0;
  in_threads(6, [&](int) {
    try {
      Files files = cache.find_or_build(key_of("kda"), [&] {
        int attempt = ++tried;
        std::this_thread::sleep_for(20ms);
        if (attempt <= 2) throw DeviceError("out of memory");
        return files_of("kda");
      });
      right += files == files_of("kda");
    } catch (const DeviceError&) {
      ++failed;
    }
  });
  CHECK(tried == 3);
  CHECK(failed == 2);
  CHECK(right == 4);
}

TEST_CASE("threads: different entries are built side by side") {
  TempDirectory root;
  Cache cache({.root = root.path, .max_bytes = 1 << 30});
  std::atomic<int> building = 0, together = 0;
  in_threads(2, [&](int i) {
    cache.find_or_build(key_of(std::to_string(i)), [&] {
      ++building;
      together += eventually([&] { return building == 2; });
      return Files{};
    });
  });
  CHECK(together == 2);
}

TEST_CASE("threads: hammering a cache that evicts all the while gives right bytes, whole entries") {
  TempDirectory root;
  Cache cache({.root = root.path, .max_bytes = 30'000});
  std::atomic<int> wrong = 0, built = 0;
  in_threads(6, [&](int thread) {
    for (int i = 0; i < 150; ++i) {
      const std::string name = std::to_string((i * (thread + 1) + thread) % 12);
      Files files = cache.find_or_build(key_of(name), [&] {
        ++built;
        return files_of(name, 4000);
      });
      wrong += files != files_of(name, 4000);
      if (i % 50 == 49) cache.prune(8'000);
      if (i % 50 == 25) cache.list();
    }
  });
  CHECK(wrong == 0);
  CHECK(built >= 12);
  for (const EntryInfo& entry : cache.verify()) CHECK(entry.damage == "");
  CHECK(names(root / "staging").empty());
  CHECK(names(root / "locks").empty());
}
