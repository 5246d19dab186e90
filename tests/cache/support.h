// What the tests of the cache share: directories that go away, keys, entries, other processes.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/cache/cache.h"
#include "tests/cache/shared.h"

namespace cache_test {

namespace fs = std::filesystem;

// A new directory, removed with the object.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  fs::path operator/(const std::string& name) const { return path / name; }

  const fs::path path;
};

std::string read_text(const fs::path& path);
void write_text(const fs::path& path, const std::string& text);
// How often a text occurs in another.
int count(const std::string& text, const std::string& part);
// The names in a directory; none if it is not there.
std::vector<std::string> names(const fs::path& directory);

// The helper of tests/cache/helper.cpp, running.
class Helper {
 public:
  // Does not begin before go() if `held`. Its stderr goes to the file `log`.
  Helper(std::vector<std::string> arguments, const fs::path& log, bool held = false);
  ~Helper();
  Helper(const Helper&) = delete;
  void go();
  void kill();
  // 0 if it ended well, else its exit code or minus the signal.
  int result();

 private:
  pid_t pid_ = -1;
  int gate_ = -1;
};

// Waits for a condition up to ten seconds; false if it does not come true.
bool eventually(const std::function<bool()>& condition);

}  // namespace cache_test
