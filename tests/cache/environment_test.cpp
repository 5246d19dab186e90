#include "runtime/environment.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>

#include "linnet/error.h"
#include "tests/cache/support.h"

using namespace linnet;
using namespace cache_test;

namespace {

// Sets variables for a scope; nullptr unsets.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<std::string, const char*>> variables) {
    for (const auto& [name, value] : variables) {
      const char* before = std::getenv(name.c_str());
      before_[name] = before ? std::optional<std::string>(before) : std::nullopt;
      set(name, value);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) set(name, value ? value->c_str() : nullptr);
  }

 private:
  static void set(const std::string& name, const char* value) {
    value ? ::setenv(name.c_str(), value, 1) : ::unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace

TEST_CASE("root: LINNET_CACHE_DIR, else XDG_CACHE_HOME, else the home directory") {
  {
    Environment e{{"LINNET_CACHE_DIR", "/a"}, {"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}};
    CHECK(Cache::default_root() == "/a");
  }
  {
    Environment e{{"LINNET_CACHE_DIR", nullptr}, {"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}};
    CHECK(Cache::default_root() == "/b/linnet");
  }
  for (const char* none : {static_cast<const char*>(nullptr), "", "relative"}) {
    Environment e{{"LINNET_CACHE_DIR", nullptr}, {"XDG_CACHE_HOME", none}, {"HOME", "/c"}};
    CHECK(Cache::default_root() == "/c/.cache/linnet");
  }
}

TEST_CASE("root: an empty LINNET_CACHE_DIR is refused, saying what is expected") {
  Environment e{{"LINNET_CACHE_DIR", ""}};
  CHECK_THROWS_WITH_AS(Cache::default_root(),
                       "LINNET_CACHE_DIR: expected a directory, or not to be set at all for "
                       "$XDG_CACHE_HOME/linnet, else ~/.cache/linnet; got empty text",
                       UserError);
}

TEST_CASE("size: bytes with K, M and G; one gibibyte if not set") {
  const std::map<const char*, uint64_t> sizes = {
      {"0", 0}, {"123", 123}, {"2K", 2048}, {"10M", 10 << 20}, {"3g", 3ull << 30}};
  for (const auto& [text, bytes] : sizes) {
    Environment e{{"LINNET_CACHE_SIZE", text}};
    CHECK(Cache::default_max_bytes() == bytes);
  }
  Environment e{{"LINNET_CACHE_SIZE", nullptr}};
  CHECK(Cache::default_max_bytes() == 1ull << 30);
}

TEST_CASE("size: anything else is refused, with the variable's name") {
  for (const char* text :
       {"", "x", "-1", "1T", "1.5G", "10 M", "10MB", "99999999999999999999", "99999999999G"}) {
    Environment e{{"LINNET_CACHE_SIZE", text}};
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(
        Cache::default_max_bytes(),
        (std::string("LINNET_CACHE_SIZE: expected a number of bytes, with K, M or G for powers of "
                     "1024, such as 512M; got '") +
         text + "'")
            .c_str(),
        UserError);
  }
}

TEST_CASE("environment: every variable has a name, a default and a line of documentation") {
  for (const environment::Variable& variable : environment::all) {
    CHECK(std::string(variable.name).starts_with("LINNET_"));
    CHECK(std::string(variable.fallback) != "");
    CHECK(std::string(variable.doc) != "");
  }
}
