// Programs that link liblinnet.so: where it finds its compiler and its cache, several at a time.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "linnet/bundle.h"
#include "tests/cuda/device_fixture.h"

extern char** environ;

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using linnet::compile_ahead, linnet::Direction;

// A new directory, removed with the object.
struct Directory {
  Directory() {
    std::string name = (fs::temp_directory_path() / "linnet-runtime-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    path = name;
  }
  Directory(const Directory&) = delete;
  ~Directory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

std::string text_of(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// tests/runtime/helper.cpp, running. Its stdout and stderr go to files.
class Helper {
 public:
  Helper(const fs::path& out, const fs::path& log, std::vector<std::string> variables,
         std::string device = "cpu")
      : out_(out) {
    for (char** variable = environ; *variable; ++variable)
      if (!std::string_view(*variable).starts_with("LINNET_")) variables.push_back(*variable);
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    std::string program = LINNET_RUNTIME_HELPER;
    char* argv[] = {program.data(), device.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    auto open = [&](int to, const fs::path& file) {
      posix_spawn_file_actions_addopen(&actions, to, file.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                       0644);
    };
    open(STDOUT_FILENO, out);
    open(STDERR_FILENO, log);
    int error = posix_spawn(&pid_, argv[0], &actions, nullptr, argv, environment.data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("cannot start " + program);
  }
  Helper(const Helper&) = delete;
  ~Helper() {
    if (pid_ < 0) return;
    kill();
    result();
  }
  void kill() { ::kill(pid_, SIGKILL); }
  // The exit code, or minus the signal.
  int result() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string output() const { return text_of(out_); }

 private:
  pid_t pid_ = -1;
  fs::path out_;
};

// Helpers with one cache and one log.
struct Processes {
  Directory directory;
  std::string cache = (directory.path / "cache").string();
  fs::path log = directory.path / "log";
  int started = 0;
  std::string device = "cpu";

  std::unique_ptr<Helper> start(std::vector<std::string> variables = {}) {
    variables.push_back("LINNET_CACHE_DIR=" + cache);
    variables.push_back("LINNET_LOG=debug");
    variables.push_back("LINNET_THREADS=1");
    return std::make_unique<Helper>(directory.path / std::to_string(started++), log, variables,
                                    device);
  }
  // What one prints, having ended with a code.
  std::string run(int expected, std::vector<std::string> variables = {}) {
    auto helper = start(std::move(variables));
    CHECK(helper->result() == expected);
    return helper->output();
  }
  int compiled() const { return count(text_of(log), "linnet: compiled "); }
};

constexpr int kKernels = 2;  // of the helper

}  // namespace

TEST_CASE("runtime: liblinnet.so needs neither MLIR nor LLVM, no CUDA driver and no NVRTC") {
  FILE* pipe = popen("readelf -d '" LINNET_RUNTIME_LIBRARY "'", "r");
  REQUIRE(pipe);
  std::string text;
  char line[512];
  while (fgets(line, sizeof line, pipe)) text += line;
  REQUIRE(pclose(pipe) == 0);
  CHECK(count(text, "(NEEDED)") > 0);
  CHECK(count(text, "LLVM") == 0);
  CHECK(count(text, "MLIR") == 0);
  CHECK(count(text, "libcuda") == 0);
  CHECK(count(text, "nvrtc") == 0);
}

TEST_CASE(
    "runtime: a program finds the compiler beside the library, and then kernels in the cache") {
  Processes p;
  std::string cold = p.run(0);
  CHECK(p.compiled() == kKernels);
  CHECK(count(cold, "\n") == kKernels);
  CHECK(p.run(0) == cold);
  CHECK(p.run(0, {"LINNET_JIT=0", "LINNET_COMPILER=/nowhere/compiler.so"}) == cold);
  CHECK(p.compiled() == kKernels);
}

TEST_CASE("runtime: LINNET_JIT=0 with an empty cache says which kernel is missing") {
  Processes p;
  std::string message = p.run(2, {"LINNET_JIT=0"});
  CHECK(count(message, "DeviceError: no kernel in a bundle or the cache for: kda forward") == 1);
  CHECK(count(message, "(key ") == 1);
  CHECK(count(message, "LINNET_JIT=0") == 1);
}

TEST_CASE("runtime: a compiler that is not there, or is not one, is named") {
  Processes p;
  std::string message = p.run(2, {"LINNET_COMPILER=/nowhere/compiler.so"});
  CHECK(count(message, "DeviceError: no kernel in a bundle or the cache for: kda forward") == 1);
  CHECK(count(message, "the compiler cannot be opened") == 1);
  CHECK(count(message, "/nowhere/compiler.so") >= 1);
  message = p.run(2, {"LINNET_COMPILER=libm.so.6"});
  CHECK(count(message, "DeviceError: libm.so.6 is not Linnet's compiler") == 1);
}

TEST_CASE("runtime: a program runs from a bundle on a GPU, with neither compiler nor NVRTC there") {
  Processes p;
  p.device = "virtual:sm_80";
  const std::string bundle = (p.directory.path / "bundle").string();
  for (Direction direction : {Direction::forward, Direction::decode})
    compile_ahead({.op = "kda", .key_dim = 16, .value_dim = 16}, {.direction = direction},
                  "compute_80", bundle);
  const std::vector<std::string> alone = {"LINNET_NVRTC=/nowhere",
                                          "LINNET_COMPILER=/nowhere/compiler.so"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), alone.begin(), alone.end());
    return more;
  };
  std::string bundled = p.run(0, with({"LINNET_BUNDLE=" + bundle, "LINNET_JIT=0"}));
  CHECK(p.compiled() == 0);
  CHECK_FALSE(fs::exists(p.cache));
  // The same numbers as the CPU's, which were compiled here.
  Processes cpu;
  double forward = 0, decode = 0, expected_forward = 0, expected_decode = 0;
  REQUIRE(std::sscanf(bundled.c_str(), "%lf %lf", &forward, &decode) == 2);
  REQUIRE(std::sscanf(cpu.run(0).c_str(), "%lf %lf", &expected_forward, &expected_decode) == 2);
  CHECK(forward == doctest::Approx(expected_forward).epsilon(1e-5));
  CHECK(decode == doctest::Approx(expected_decode).epsilon(1e-5));
  // Without the bundle there is nothing to run.
  CHECK(count(p.run(2, with({"LINNET_JIT=0"})), "for compute_80 (key ") == 1);
  CHECK(count(p.run(2, with({})), "the compiler cannot be opened") == 1);
  CHECK(count(p.run(2, {"LINNET_NVRTC=/nowhere"}), "LINNET_NVRTC: expected the library") == 1);
  CHECK(count(p.run(1, with({"LINNET_BUNDLE=/nowhere"})), "bundle: expected a directory") == 1);
  // A byte changed anywhere in the code.
  for (const auto& entry : fs::recursive_directory_iterator(bundle))
    if (entry.path().filename() == "kernels.bin") {
      std::string text = text_of(entry.path());
      text[text.size() / 3] ^= 4;
      std::ofstream(entry.path()) << text;
    }
  CHECK(count(p.run(2, with({"LINNET_BUNDLE=" + bundle})),
              "kernels.bin: its digest is not the manifest's") == 1);
}

TEST_CASE("runtime: LINNET_THREADS that is no number of threads is refused") {
  Processes p;
  for (const char* threads : {"0", "-1", "two", "", "1.5", "4097", "99999999999999999999"}) {
    CAPTURE(threads);
    Directory out;
    Helper helper(out.path / "out", out.path / "log",
                  {std::string("LINNET_THREADS=") + threads, "LINNET_CACHE_DIR=" + p.cache});
    CHECK(helper.result() == 1);
    CHECK(helper.output().starts_with("UserError: LINNET_THREADS: expected a number from 1"));
  }
}

TEST_CASE("runtime: a cache that cannot be written costs a build, no more") {
  Processes p;
  std::string expected = p.run(0);
  int before = p.compiled();
  CHECK(p.run(0, {"LINNET_JIT=1"}) == expected);
  CHECK(p.compiled() == before);
  // Read-only with the kernels in it (root may write all the same, and finds them too).
  for (const auto& entry : fs::recursive_directory_iterator(p.cache))
    fs::permissions(entry, fs::perms::owner_write, fs::perm_options::remove);
  fs::permissions(p.cache, fs::perms::owner_write, fs::perm_options::remove);
  CHECK(p.run(0) == expected);
  CHECK(p.compiled() == before);
  for (const auto& entry : fs::recursive_directory_iterator(p.cache))
    fs::permissions(entry, fs::perms::owner_write, fs::perm_options::add);
  fs::permissions(p.cache, fs::perms::owner_write, fs::perm_options::add);
  // Not writable by anyone.
  p.cache = "/proc/linnet-cache";
  CHECK(p.run(0) == expected);
  CHECK(p.compiled() == before + kKernels);
}

TEST_CASE("runtime: ten programs that start cold together compile each kernel once") {
  Processes p;
  std::vector<std::unique_ptr<Helper>> helpers;
  for (int i = 0; i < 10; ++i) helpers.push_back(p.start());
  for (auto& helper : helpers) CHECK(helper->result() == 0);
  CHECK(p.compiled() == kKernels);
  for (auto& helper : helpers) CHECK(helper->output() == helpers[0]->output());
}

TEST_CASE("runtime: programs that are killed while they compile harm none") {
  Processes p;
  std::string expected;
  {
    Processes alone;
    expected = alone.run(0);
  }
  for (auto wait : {5ms, 30ms, 80ms, 150ms, 250ms}) {
    auto victim = p.start();
    auto other = p.start(), third = p.start();
    std::this_thread::sleep_for(wait);
    victim->kill();
    victim->result();
    CHECK(other->result() == 0);
    CHECK(third->result() == 0);
    CHECK(other->output() == expected);
    CHECK(third->output() == expected);
    fs::remove_all(p.cache);
  }
}
