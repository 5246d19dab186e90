#include "runtime/cache/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <tuple>

#include "linnet/error.h"
#include "runtime/cache/posix.h"
#include "runtime/cache/sha256.h"

namespace linnet {

namespace fs = std::filesystem;
using posix::Fd;

namespace {

bool is_hex(const std::string& text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Fd open_directory(const fs::path& path) {
  return Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

Fd open_file(const Fd& directory, const std::string& name) {
  Fd file(::openat(directory.get(), name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) posix::fail("cannot open", name);
  return file;
}

Manifest manifest_in(const Fd& directory, const std::string& key) {
  Fd file = open_file(directory, manifest_name);
  uint64_t size = posix::size_of(file);
  if (size > 1 << 20) throw Error(fmt::format("{}: {} bytes long", manifest_name, size));
  Manifest manifest = Manifest::parse(posix::read_bytes(file, size));
  if (manifest.key.hex() != key) throw Error(fmt::format("{}: of another key", manifest_name));
  return manifest;
}

// With read(), not mmap(): a file that is cut short under a mapping is a SIGBUS.
Files files_in(const Fd& directory, const std::string& key) {
  Files files;
  for (const auto& [name, expected] : manifest_in(directory, key).files) {
    Fd file = open_file(directory, name);
    // Before it is read, so that a wrong length asks for no memory.
    if (uint64_t size = posix::size_of(file); size != expected.bytes)
      throw Error(fmt::format("{}: expected {} bytes, got {}", name, expected.bytes, size));
    std::string bytes = posix::read_bytes(file, expected.bytes);
    if (sha256_hex(bytes) != expected.sha256)
      throw Error(fmt::format("{}: its digest is not the manifest's", name));
    files.emplace(name, std::move(bytes));
  }
  return files;
}

int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000LL + time.tv_nsec; }

int64_t now_in_seconds() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// Whether nobody has written here for an hour, which no store takes.
bool is_stale(const fs::path& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0 && status.st_mtim.tv_sec < now_in_seconds() - 3600;
}

void remove_tree(const fs::path& path) {
  std::error_code ignored;  // what cannot be removed now is a leftover, for later
  fs::remove_all(path, ignored);
}

}  // namespace

// A new directory in staging/, removed with the object unless it was renamed away.
class Store::Staging {
 public:
  explicit Staging(const fs::path& root) : path(root / "staging" / posix::unique_name()) {
    posix::make_directories(path);
  }
  Staging(const Staging&) = delete;
  ~Staging() { remove_tree(path); }

  const fs::path path;
};

fs::path Store::entry_path(const std::string& key) const { return root_ / key.substr(0, 2) / key; }

Store::Lookup Store::read(const std::string& key) const {
  const fs::path path = entry_path(key);
  for (int attempt = 0; attempt < 3; ++attempt) {
    Fd directory = open_directory(path);
    if (!directory) return {};
    try {
      return {files_in(directory, key), ""};
    } catch (const std::exception& error) {
      if (posix::is_at(directory, path)) return {std::nullopt, error.what()};
      // Another process removed or replaced the entry while it was read: look again.
    }
  }
  return {};
}

Manifest Store::read_manifest(const std::string& key) const {
  Fd directory = open_directory(entry_path(key));
  if (!directory) posix::fail("cannot open", entry_path(key));
  return manifest_in(directory, key);
}

void Store::touch(const std::string& key) const {
  ::utimensat(AT_FDCWD, (entry_path(key) / manifest_name).c_str(), nullptr, 0);
}

uint64_t Store::write(const CacheKey& key, const Files& files) const {
  const Manifest manifest = Manifest::of(key, files, now_in_seconds());
  Staging staging(root_);
  for (const auto& [name, bytes] : files) posix::write_file(staging.path / name, bytes);
  posix::write_file(staging.path / manifest_name, manifest.text());
  posix::sync_directory(staging.path);
  posix::make_directories(entry_path(key.hex()).parent_path());
  install(staging.path, key.hex());
  uint64_t written = manifest.text().size();
  for (const auto& [name, bytes] : files) written += bytes.size();
  return written;
}

void Store::install(const fs::path& staged, const std::string& key) const {
  const fs::path entry = entry_path(key);
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (::rename(staged.c_str(), entry.c_str()) == 0) return;
    if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) break;
    if (read(key).files) return;  // another process was first, and its entry is as good
    Staging trash(root_);
    if (!retire(entry, trash)) posix::fail("cannot remove", entry);
  }
  posix::fail("cannot rename to", entry);
}

// Out of sight in one step; removed with the trash. False, with errno, if that is not possible.
bool Store::retire(const fs::path& entry, const Staging& trash) const {
  const fs::path place = trash.path / entry.filename();
  return ::rename(entry.c_str(), place.c_str()) == 0 || errno == ENOENT;
}

std::vector<Store::Info> Store::scan() const {
  std::vector<Info> entries;
  for (const std::string& shard : posix::names_in(root_)) {
    if (!is_hex(shard, 2)) continue;
    for (const std::string& key : posix::names_in(root_ / shard)) {
      if (!is_hex(key, 64) || !key.starts_with(shard)) continue;
      Info info{key};
      Fd directory = open_directory(entry_path(key));
      for (const std::string& name : posix::names_in(entry_path(key))) {
        struct stat status;
        if (::fstatat(directory.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
        info.bytes += status.st_size;
        if (name == manifest_name) info.used = nanoseconds(status.st_mtim);
      }
      entries.push_back(std::move(info));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Info& a, const Info& b) {
    return std::tie(a.used, a.key) < std::tie(b.used, b.key);
  });
  return entries;
}

Store::Removed Store::shrink(uint64_t limit, uint64_t target, const std::string& keep) const {
  Removed removed;
  const std::vector<Info> entries = scan();
  for (const Info& entry : entries) removed.bytes_left += entry.bytes;
  // Down to nothing, what is damaged and has no bytes goes too.
  auto within = [&](uint64_t bound) { return bound > 0 && removed.bytes_left <= bound; };
  if (entries.empty() || within(limit)) return removed;
  Staging trash(root_);
  for (const Info& entry : entries) {
    if (within(target)) break;
    if (entry.key == keep) continue;
    if (!retire(entry_path(entry.key), trash)) {
      ++removed.failed;
      continue;
    }
    removed.bytes_left -= entry.bytes;
    removed.bytes += entry.bytes;
    ++removed.entries;
  }
  return removed;
}

void Store::remove_leftovers() const {
  for (const std::string& name : posix::names_in(root_ / "staging"))
    if (is_stale(root_ / "staging" / name)) remove_tree(root_ / "staging" / name);
  for (const std::string& name : posix::names_in(root_ / "locks"))
    if (is_stale(root_ / "locks" / name))
      lock(name).try_acquire();  // which removes it if it is free
}

}  // namespace linnet
