#include "runtime/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "linnet/error.h"

namespace linnet::cuda {

Library::Library(const std::filesystem::path& path, bool global) : path_(path.string()) {
  handle_ = dlopen(path_.c_str(), RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (!handle_) {
    const char* reason = dlerror();
    throw DeviceError(fmt::format("{}: expected a library that loads; {}", path_,
                                  reason ? reason : "it does not"));
  }
}

void* Library::try_find(const char* name) const { return dlsym(handle_, name); }

void* Library::find(const char* name) const {
  void* function = try_find(name);
  if (!function)
    throw DeviceError(fmt::format("{}: expected a function {}, found none", path_, name));
  return function;
}

std::vector<std::filesystem::path> own_folders() {
  std::vector<std::filesystem::path> folders;
  std::error_code error;
  Dl_info here;
  if (dladdr(reinterpret_cast<void*>(&own_folders), &here) && here.dli_fname)
    folders.push_back(std::filesystem::absolute(here.dli_fname, error).parent_path());
  auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path());
  return folders;
}

}  // namespace linnet::cuda
