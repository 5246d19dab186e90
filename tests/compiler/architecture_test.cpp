// The arrow of dependencies (STYLE.md), read from the includes.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

namespace fs = std::filesystem;

TEST_CASE("architecture: a folder includes only what it may use") {
  // Public headers under linnet/ may be included by all.
  const std::map<std::string, std::vector<std::string>> allowed = {
      {"templates", {"templates"}},
      {"runtime", {"runtime"}},
      {"compiler", {"compiler", "templates"}},
      {"ops", {"ops", "compiler"}},
      {"autotune", {"autotune", "compiler", "runtime"}},
      {"python", {"python", "autotune"}},
      {"tests/reference", {"tests/reference"}},
  };
  const std::regex include(
      R"re(^\s*#include "((?:templates|runtime|compiler|ops|autotune|python|tests)/[^"]*)")re");
  int seen = 0;
  for (const auto& [folder, may_use] : allowed)
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      std::string path = entry.path().generic_string();
      bool source = path.ends_with(".h") || path.ends_with(".cpp") || path.ends_with(".cuh");
      // The command line and the library put everything together.
      bool whole = path.starts_with("compiler/cli/") || path.starts_with("compiler/plugin/");
      if (!source || whole) continue;
      ++seen;
      std::ifstream file(path);
      std::smatch match;
      for (std::string line; std::getline(file, line);) {
        if (!std::regex_search(line, match, include)) continue;
        bool fine = false;
        for (const std::string& prefix : may_use) fine |= match[1].str().starts_with(prefix + "/");
        CHECK_MESSAGE(fine, path, " includes ", match[1].str());
      }
    }
  CHECK(seen > 40);
}
