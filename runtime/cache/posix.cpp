#include "runtime/cache/posix.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>
#include <system_error>
#include <utility>

namespace linnet::posix {

namespace fs = std::filesystem;

Fd::Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

void fail(const char* what, const fs::path& path) {
  throw std::system_error(errno, std::generic_category(),
                          fmt::format("{} {}", what, path.string()));
}

void make_directories(const fs::path& path) {
  std::error_code ignored;
  // Looked at first: some file systems do not say "exists" of what they would not create.
  if (fs::is_directory(path, ignored)) return;
  if (path.has_parent_path() && path.parent_path() != path) make_directories(path.parent_path());
  if (::mkdir(path.c_str(), 0755) != 0) {
    if (errno == EEXIST && fs::is_directory(path, ignored)) return;  // another process was first
    fail("cannot create", path);
  }
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) fail("cannot look at", path);
  if ((status.st_mode & 0700) != 0700) ::chmod(path.c_str(), (status.st_mode & 0777) | 0700);
}

Fd create_file(const fs::path& path, int flags) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644));
  if (!file) fail("cannot create", path);
  struct stat status;
  if (::fstat(file.get(), &status) != 0) fail("cannot look at", path);
  if ((status.st_mode & 0600) != 0600) ::fchmod(file.get(), (status.st_mode & 0777) | 0600);
  return file;
}

void write_file(const fs::path& path, std::string_view bytes) {
  Fd file = create_file(path, O_EXCL);
  while (!bytes.empty()) {
    ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write", path);
    bytes.remove_prefix(written);
  }
  if (::fsync(file.get()) != 0) fail("cannot write", path);
}

void sync_directory(const fs::path& path) {
  Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) fail("cannot write", path);
}

uint64_t size_of(const Fd& file) {
  struct stat status;
  if (::fstat(file.get(), &status) != 0) fail("cannot look at", "a file");
  return status.st_size;
}

std::string read_bytes(const Fd& file, uint64_t size) {
  std::string bytes(size, '\0');
  for (uint64_t done = 0; done < size;) {
    ssize_t got = ::read(file.get(), bytes.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read", "a file");
    if (got == 0) throw std::runtime_error("a file became shorter");
    done += got;
  }
  return bytes;
}

bool is_at(const Fd& file, const fs::path& path) {
  struct stat here, there;
  return ::fstat(file.get(), &here) == 0 && ::stat(path.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), ::closedir);
  if (!stream) return names;
  while (const dirent* entry = ::readdir(stream.get()))
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string unique_name() {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}", ::getpid(), random(), random());
}

}  // namespace linnet::posix
