// A lock between processes that dies with the process that holds it. It only saves work: whoever
// does not get it goes on without.
#pragma once

#include <filesystem>

#include "runtime/cache/posix.h"

namespace linnet {

class FileLock {
 public:
  enum class State {
    held,
    busy,        // another holds it
    unavailable  // the file cannot be created, or its file system knows no locks
  };

  explicit FileLock(std::filesystem::path path) : path_(std::move(path)) {}
  FileLock(const FileLock&) = delete;
  // Lets go of it, and removes its file.
  ~FileLock();

  // Takes the lock if it is free; does not wait and does not throw.
  State try_acquire();

 private:
  std::filesystem::path path_;
  posix::Fd file_;
};

}  // namespace linnet
