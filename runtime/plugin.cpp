#include "runtime/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <filesystem>
#include <mutex>

#include "runtime/environment.h"

namespace linnet {

namespace {

std::atomic<Compiler*> compiler_in_use = nullptr;

std::string library_path() {
  if (auto path = environment::get(environment::compiler); path && !path->empty()) return *path;
  Dl_info here;
  if (dladdr(reinterpret_cast<void*>(&library_path), &here) && here.dli_fname) {
    auto beside = std::filesystem::path(here.dli_fname).parent_path() / "liblinnet_compiler.so";
    if (std::filesystem::exists(beside)) return beside.string();
  }
  return "liblinnet_compiler.so";
}

Compiler* load_compiler(const std::string& what) {
  std::string path = library_path();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw DeviceError(fmt::format(
        "no kernel in a bundle or the cache for: {}; and the compiler cannot be opened: {} "
        "(LINNET_COMPILER names it)",
        what, dlerror()));
  auto make = reinterpret_cast<Compiler* (*)()>(dlsym(library, "linnet_compiler"));
  if (!make) throw DeviceError(fmt::format("{} is not Linnet's compiler", path));
  return make();
}

}  // namespace

void use_compiler(Compiler* compiler) { compiler_in_use = compiler; }

Compiler& open_compiler() { return compiler_for("a request of the caller"); }

Compiler& compiler_for(const std::string& what) {
  std::string jit = environment::get(environment::jit).value_or("");
  if (!jit.empty() && jit != "0" && jit != "1")
    throw UserError(fmt::format("{}: expected 0 or 1, got '{}'", environment::jit.name, jit));
  if (jit == "0")
    throw DeviceError(fmt::format(
        "no kernel in a bundle or the cache for: {}; and LINNET_JIT=0 says not to compile one",
        what));
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (!compiler_in_use) compiler_in_use = load_compiler(what);
  return *compiler_in_use;
}

}  // namespace linnet
