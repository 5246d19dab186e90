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

std::filesystem::path program_folder() {
  std::error_code error;
  auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path(".") : program.parent_path();
}

}  // namespace linnet::cuda
