#include "tests/cache/support.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "runtime/cache/posix.h"

extern char** environ;

namespace cache_test {

TempDirectory::TempDirectory()
    : path(fs::temp_directory_path() / ("linnet-cache-test-" + linnet::posix::unique_name())) {
  fs::create_directories(path);
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

std::string read_text(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::vector<std::string> names(const fs::path& directory) {
  return linnet::posix::names_in(directory);
}

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

Helper::Helper(std::vector<std::string> arguments, const fs::path& log, bool held) {
  arguments.insert(arguments.begin(), LINNET_CACHE_HELPER);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  int gate[2];
  if (::pipe2(gate, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  gate_ = gate[1];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, gate[0], STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  int error = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(gate[0]);
  if (error != 0) throw std::runtime_error("cannot start " + arguments[0]);
  if (!held) go();
}

Helper::~Helper() {
  go();
  if (pid_ < 0) return;
  kill();
  result();
}

void Helper::go() {
  if (gate_ >= 0) ::close(gate_);
  gate_ = -1;
}

void Helper::kill() { ::kill(pid_, SIGKILL); }

int Helper::result() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace cache_test
