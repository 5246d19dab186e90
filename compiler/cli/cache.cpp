#include "runtime/cache/cache.h"

#include <fmt/format.h>

#include <ctime>

#include "compiler/cli/commands.h"
#include "linnet/error.h"
#include "runtime/environment.h"

namespace linnet::cli {

namespace {

std::string size_text(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double size = static_cast<double>(bytes) / 1024;
  for (const char* unit : {"KB", "MB"}) {
    if (size < 1000) return fmt::format("{:.1f} {}", size, unit);
    size /= 1024;
  }
  return fmt::format("{:.1f} GB", size);
}

std::string entries_text(size_t count) {
  return count == 1 ? "1 entry" : fmt::format("{} entries", count);
}

// "40 s", "12 min", "5 h", "3 days" since a time.
std::string age_text(int64_t time) {
  const int64_t seconds = std::max<int64_t>(0, std::time(nullptr) - time);
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 120 * 60) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} days", seconds / 86400);
}

// The fields on one line that is not too long.
std::string what_it_is(const EntryInfo& entry) {
  if (!entry.damage.empty()) return "damaged: " + entry.damage;
  std::string text;
  for (const auto& [name, value] : entry.fields)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", name, value);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return text.size() <= 100 ? text : text.substr(0, 97) + "...";
}

struct CacheCommand {
  std::string directory, size;
  bool all = false;

  Cache open() const {
    std::filesystem::path root = directory;
    if (directory.empty()) root = Cache::default_root();
    if (root.empty())
      throw UserError("--dir: expected a directory, because there is no home directory");
    return Cache({.root = root, .max_bytes = Cache::default_max_bytes()});
  }

  void list() const {
    const Cache cache = open();
    const std::vector<EntryInfo> entries = cache.list();
    if (entries.empty()) return fmt::print("{}: empty\n", cache.root().string());
    fmt::print("{:<12} {:>8} {:>8} {:>8}  {}\n", "key", "size", "built", "used", "what it is");
    uint64_t bytes = 0;
    for (const EntryInfo& entry : entries) {
      std::string built = entry.created > 0 ? age_text(entry.created) : "?";
      std::string used = entry.used > 0 ? age_text(entry.used) : "?";
      fmt::print("{:<12} {:>8} {:>8} {:>8}  {}\n", entry.key.substr(0, 12), size_text(entry.bytes),
                 built, used, what_it_is(entry));
      bytes += entry.bytes;
    }
    fmt::print("{}: {}, {} of {}\n", cache.root().string(), entries_text(entries.size()),
               size_text(bytes), size_text(Cache::default_max_bytes()));
  }

  void verify() const {
    const Cache cache = open();
    int damaged = 0, intact = 0;
    for (const EntryInfo& entry : cache.verify()) {
      ++(entry.damage.empty() ? intact : damaged);
      if (!entry.damage.empty()) fmt::print("{}: {}\n", entry.path.string(), entry.damage);
    }
    fmt::print("{}: {} intact, {} damaged\n", cache.root().string(), entries_text(intact), damaged);
    if (damaged == 0) return;
    fmt::print("A damaged entry is never used; it is built again when it is next needed.\n");
    throw ExitCode{1};
  }

  void prune() const {
    Cache cache = open();
    uint64_t limit = all            ? 0
                     : size.empty() ? Cache::default_max_bytes()
                                    : environment::parse_bytes(size, "--size");
    Store::Removed removed = cache.prune(limit);
    fmt::print("{}: removed {}, {}; {} left\n", cache.root().string(),
               entries_text(removed.entries), size_text(removed.bytes),
               size_text(removed.bytes_left));
    if (removed.failed == 0) return;
    throw DeviceError(fmt::format("{} could not be removed", entries_text(removed.failed)));
  }
};

std::string variables_text() {
  std::string text = "Environment:\n";
  for (const environment::Variable& variable : environment::all)
    text += fmt::format("  {:<18} {}\n  {:<18} default: {}\n", variable.name, variable.doc, "",
                        variable.fallback);
  return text;
}

}  // namespace

void add_cache(CLI::App& app) {
  auto cache = std::make_shared<CacheCommand>();
  CLI::App* command = app.add_subcommand(
      "cache",
      "look at, check and shrink the compiled kernels kept on disk\n"
      "  linnet cache list                what is there, the most recently used first\n"
      "  linnet cache verify              read every file and compare its digest\n"
      "  linnet cache prune --size 100M   remove the least recently used beyond a size\n"
      "  linnet cache prune --all         remove all of them\n"
      "Removing is always safe, while kernels are being compiled or run too.");
  command->require_subcommand(1);
  command->fallthrough();  // --dir may also come last
  command->footer(variables_text());
  command->add_option("--dir", cache->directory, "another directory than LINNET_CACHE_DIR's");

  command->add_subcommand("list", "the entries: key, size, age, last use, what it is")
      ->callback([cache] { cache->list(); });
  command->add_subcommand("verify", "read every entry; names the damaged ones and ends with 1")
      ->callback([cache] { cache->verify(); });
  CLI::App* prune = command->add_subcommand(
      "prune", "remove the least recently used entries, down to LINNET_CACHE_SIZE or --size");
  CLI::Option* size = prune->add_option("--size", cache->size, "bytes to keep: 64K, 100M, 1G");
  prune->add_flag("--all", cache->all, "keep nothing")->excludes(size);
  prune->callback([cache] { cache->prune(); });
}

}  // namespace linnet::cli
