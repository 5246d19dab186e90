// A process that uses the cache; the tests start several, and kill some.
//   cache_helper --root DIR --builds FILE [--build-ms N] [--entry-bytes N] [--max-bytes N]
//                [--file-limit N] [--rounds N] NAME...
// Reads stdin to its end first, so that several begin together. Then finds or builds each name,
// with a line in FILE for each build. Ends with 1 if it gets other bytes than it should.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/cache/shared.h"

using namespace cache_test;

namespace {

struct Arguments {
  linnet::Cache::Options options{.root = {}, .max_bytes = 1 << 30};
  std::string builds;
  int build_ms = 0, rounds = 1;
  size_t entry_bytes = 1000;
  rlim_t file_limit = 0;
  std::vector<std::string> names;

  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      std::string word = argv[i];
      if (!word.starts_with("--")) {
        names.push_back(word);
        continue;
      }
      std::string value = argv[++i];
      if (word == "--root") options.root = value;
      if (word == "--builds") builds = value;
      if (word == "--build-ms") build_ms = std::stoi(value);
      if (word == "--rounds") rounds = std::stoi(value);
      if (word == "--entry-bytes") entry_bytes = std::stoul(value);
      if (word == "--max-bytes") options.max_bytes = std::stoul(value);
      if (word == "--file-limit") file_limit = std::stoul(value);
    }
  }
};

// One write at the end of the file, so that lines of several processes stay whole.
void note_build(const std::string& path, const std::string& name) {
  int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  std::string line = name + "\n";
  if (::write(file, line.data(), line.size()) < 0) std::_Exit(2);
  ::close(file);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  if (arguments.file_limit > 0) {  // a disk that is full after so many bytes of a file
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{arguments.file_limit, arguments.file_limit};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  linnet::Cache cache(arguments.options);
  for (int round = 0; round < arguments.rounds; ++round)
    for (const std::string& name : arguments.names) {
      linnet::Files expected = files_of(name, arguments.entry_bytes);
      linnet::Files files = cache.find_or_build(key_of(name), [&] {
        note_build(arguments.builds, name);
        std::this_thread::sleep_for(std::chrono::milliseconds(arguments.build_ms));
        return expected;
      });
      if (files != expected) return 1;
    }
  return 0;
}
