// Entries that were damaged on the disk.
#include <doctest/doctest.h>

#include "tests/cache/support.h"

using namespace linnet;
using namespace cache_test;

namespace {

// Damages the entry of "kda" with `damage`, and expects a miss, then a repair.
template <class F>
void expect_repair(F damage) {
  TempDirectory root;
  Cache cache({.root = root.path, .max_bytes = 1 << 30});
  const CacheKey key = key_of("kda");
  cache.find_or_build(key, [] { return files_of("kda"); });
  REQUIRE(cache.find(key));
  const fs::path entry = Store(root.path).entry_path(key.hex());
  damage(entry);

  CHECK_FALSE(cache.find(key));
  int built = 0;
  auto build = [&] {
    ++built;
    return files_of("kda");
  };
  CHECK(cache.find_or_build(key, build) == files_of("kda"));
  CHECK(built == 1);
  CHECK(cache.find(key) == files_of("kda"));
  CHECK(Cache({.root = root.path, .max_bytes = 1 << 30}).find_or_build(key, build) ==
        files_of("kda"));
  CHECK(built == 1);
  CHECK(names(root / "staging").empty());
  CHECK(names(root / "locks").empty());
}

void replace_in(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = read_text(path);
  size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  write_text(path, text.replace(at, from.size(), to));
}

}  // namespace

TEST_CASE("damage: a changed byte is a miss and is repaired") {
  expect_repair([](const fs::path& entry) {
    std::string code = read_text(entry / "kernel.bin");
    code[500] ^= 1;
    write_text(entry / "kernel.bin", code);
  });
}

TEST_CASE("damage: a truncated file is a miss and is repaired") {
  expect_repair([](const fs::path& entry) { fs::resize_file(entry / "kernel.bin", 999); });
  expect_repair([](const fs::path& entry) { fs::resize_file(entry / "kernel.bin", 0); });
}

TEST_CASE("damage: a file that grew is a miss and is repaired") {
  expect_repair([](const fs::path& entry) { fs::resize_file(entry / "kernel.bin", 1001); });
}

TEST_CASE("damage: a missing file is a miss and is repaired") {
  expect_repair([](const fs::path& entry) { fs::remove(entry / "signature.json"); });
}

TEST_CASE("damage: a missing, empty, cut or garbled manifest is a miss and is repaired") {
  expect_repair([](const fs::path& entry) { fs::remove(entry / "manifest.json"); });
  expect_repair([](const fs::path& entry) { fs::resize_file(entry / "manifest.json", 0); });
  expect_repair([](const fs::path& entry) { fs::resize_file(entry / "manifest.json", 100); });
  expect_repair([](const fs::path& entry) { write_text(entry / "manifest.json", "garbage"); });
  expect_repair([](const fs::path& entry) {
    write_text(entry / "manifest.json", std::string(2 << 20, '{'));
  });
}

TEST_CASE("damage: a manifest with a huge length asks for no memory, is a miss and is repaired") {
  expect_repair([](const fs::path& entry) {
    replace_in(entry / "manifest.json", "\"bytes\": 1000", "\"bytes\": 10000000000000000000");
  });
}

TEST_CASE("damage: a manifest of another format or another key is a miss and is repaired") {
  expect_repair([](const fs::path& entry) {
    replace_in(entry / "manifest.json", "\"format\": 1", "\"format\": 2");
  });
  expect_repair([](const fs::path& entry) {
    write_text(entry / "manifest.json", Manifest::of(key_of("gla"), files_of("kda"), 1).text());
  });
  expect_repair([](const fs::path& entry) { replace_in(entry / "manifest.json", "kda", "gla"); });
}

TEST_CASE("damage: an empty directory, a file or a dangling link for an entry is repaired") {
  expect_repair([](const fs::path& entry) {
    fs::remove_all(entry);
    fs::create_directory(entry);
  });
  expect_repair([](const fs::path& entry) {
    fs::remove_all(entry);
    write_text(entry, "not a directory");
  });
  expect_repair([](const fs::path& entry) {
    fs::remove_all(entry);
    fs::create_symlink("/nonexistent/linnet", entry);
  });
}

TEST_CASE("damage: a directory in the place of a file is a miss and is repaired") {
  expect_repair([](const fs::path& entry) {
    fs::remove(entry / "kernel.bin");
    fs::create_directories(entry / "kernel.bin/inside");
  });
}

TEST_CASE("damage: verify names the entry and what is wrong, and nothing else") {
  TempDirectory root;
  Cache cache({.root = root.path, .max_bytes = 1 << 30});
  for (const char* name : {"kda", "gla", "rwkv7"})
    cache.find_or_build(key_of(name), [&] { return files_of(name); });
  for (const EntryInfo& entry : cache.verify()) CHECK(entry.damage == "");
  const fs::path entry = Store(root.path).entry_path(key_of("gla").hex());
  fs::resize_file(entry / "kernel.bin", 10);
  int damaged = 0;
  for (const EntryInfo& info : cache.verify())
    if (!info.damage.empty()) {
      ++damaged;
      CHECK(info.key == key_of("gla").hex());
      CHECK(info.damage == "kernel.bin: expected 1000 bytes, got 10");
    }
  CHECK(damaged == 1);
}
