#include "nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <vector>

namespace linnet::vgpu::testing {
namespace {

namespace fs = std::filesystem;

// The directory with libnvrtc.so.*: $LINNET_NVRTC_DIR, or the project's own environment.
fs::path find_directory() {
  std::vector<fs::path> roots;
  if (const char* chosen = std::getenv("LINNET_NVRTC_DIR")) roots.emplace_back(chosen);
  roots.emplace_back(fs::path(LINNET_SOURCE_DIR) / ".venv" / "lib");
  for (const fs::path& root : roots) {
    std::error_code error;
    for (fs::recursive_directory_iterator it(root, error), end; it != end; it.increment(error))
      if (it->path().filename().string().starts_with("libnvrtc.so."))
        return it->path().parent_path();
  }
  return {};
}

fs::path find_library(const fs::path& directory, const std::string& prefix) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.find(".alt") == std::string::npos) return entry.path();
  }
  return {};
}

struct Nvrtc {
  void* library = nullptr;
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile)(void*, int, const char* const*);
  int (*ptx_size)(void*, size_t*);
  int (*ptx)(void*, char*);
  int (*log_size)(void*, size_t*);
  int (*log)(void*, char*);
  int (*destroy)(void**);
};

template <class F>
void bind(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function) throw std::runtime_error(std::string("libnvrtc lacks ") + name);
}

Nvrtc load() {
  Nvrtc nvrtc{};
  const fs::path directory = find_directory();
  if (directory.empty()) return nvrtc;
  // The compiler looks for its built-ins by name, so they must already be in the process.
  dlopen(find_library(directory, "libnvrtc-builtins.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
  nvrtc.library = dlopen(find_library(directory, "libnvrtc.so.").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!nvrtc.library) return nvrtc;
  bind(nvrtc.library, "nvrtcCreateProgram", nvrtc.create);
  bind(nvrtc.library, "nvrtcCompileProgram", nvrtc.compile);
  bind(nvrtc.library, "nvrtcGetPTXSize", nvrtc.ptx_size);
  bind(nvrtc.library, "nvrtcGetPTX", nvrtc.ptx);
  bind(nvrtc.library, "nvrtcGetProgramLogSize", nvrtc.log_size);
  bind(nvrtc.library, "nvrtcGetProgramLog", nvrtc.log);
  bind(nvrtc.library, "nvrtcDestroyProgram", nvrtc.destroy);
  return nvrtc;
}

const Nvrtc& nvrtc() {
  static const Nvrtc loaded = load();
  return loaded;
}

}  // namespace

std::string compile_cuda(const std::string& source, const std::string& arch,
                         const std::string& file) {
  const Nvrtc& api = nvrtc();
  if (!api.library) throw std::runtime_error("NVRTC is not installed (run setup.sh)");
  void* program = nullptr;
  if (api.create(&program, source.c_str(), file.c_str(), 0, nullptr, nullptr) != 0)
    throw std::runtime_error("nvrtcCreateProgram failed");
  std::string compute = arch;
  compute.replace(0, 2, "compute");
  const std::string arch_option = "--gpu-architecture=" + compute;
  const char* options[] = {arch_option.c_str(), "--generate-line-info", "--std=c++17"};
  const int result = api.compile(program, 3, options);
  size_t size = 0;
  std::string text;
  if (result != 0) {
    api.log_size(program, &size);
    text.resize(size);
    api.log(program, text.data());
    api.destroy(&program);
    throw std::runtime_error("NVRTC: " + text);
  }
  api.ptx_size(program, &size);
  text.resize(size);
  api.ptx(program, text.data());
  api.destroy(&program);
  return text;
}

}  // namespace linnet::vgpu::testing
