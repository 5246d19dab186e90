#include "runtime/cache/file_lock.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace linnet {

FileLock::~FileLock() {
  if (file_) ::unlink(path_.c_str());
}

FileLock::State FileLock::try_acquire() try {
  if (file_) return State::held;
  for (int attempt = 0; attempt < 100; ++attempt) {
    posix::make_directories(path_.parent_path());
    posix::Fd file = posix::create_file(path_, 0);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      return errno == EWOULDBLOCK ? State::busy : State::unavailable;
    }
    // The last holder may have removed the file after it was opened here: then this is a lock on
    // nothing, and another process may hold the one that counts.
    if (!posix::is_at(file, path_)) continue;
    file_ = std::move(file);
    return State::held;
  }
  return State::unavailable;
} catch (const std::system_error&) {
  return State::unavailable;
}

}  // namespace linnet
