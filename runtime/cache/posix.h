// The few file operations the cache is made of. They throw std::system_error, which the cache
// catches: its callers never see one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace linnet::posix {

// An open file; closed with the object.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept;
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Throws what errno says about `path`.
[[noreturn]] void fail(const char* what, const std::filesystem::path& path);

// Creates a directory and its parents, or leaves them. Others may read what the umask lets them;
// nobody else may write; the owner always may do both, whatever the umask.
void make_directories(const std::filesystem::path& path);
// Opens a file for writing, with permissions alike; `flags` are added to O_WRONLY | O_CREAT.
Fd create_file(const std::filesystem::path& path, int flags);
// Writes a new file and waits until it is on the disk.
void write_file(const std::filesystem::path& path, std::string_view bytes);
void sync_directory(const std::filesystem::path& path);

uint64_t size_of(const Fd& file);
// The first `size` bytes; throws if there are fewer.
std::string read_bytes(const Fd& file, uint64_t size);
// Whether the path still leads to the open file.
bool is_at(const Fd& file, const std::filesystem::path& path);

// The names in a directory, sorted; none if it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& directory);
// A name nobody else has, on this machine or on one that shares the directory.
std::string unique_name();

}  // namespace linnet::posix
