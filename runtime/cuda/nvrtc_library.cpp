// Where NVIDIA's libraries and tools are on this machine.
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <vector>

#include "linnet/error.h"
#include "runtime/cuda/library.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/environment.h"

namespace linnet::cuda {

namespace fs = std::filesystem;

namespace {

std::optional<fs::path> library_in(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with("libnvrtc.so") && name.find(".alt") == std::string::npos)
      found.push_back(entry.path());
  }
  if (found.empty()) return std::nullopt;
  return *std::max_element(found.begin(), found.end());
}

// lib/python3.*/site-packages/nvidia/* of an environment: "cu13", "cuda_nvrtc". The last in the
// alphabet first: "cuda_nvrtc" is what CUDA 12 and older call it, so "cu13" goes before it.
void add_wheels(const fs::path& environment, std::vector<fs::path>& folders) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& python : fs::directory_iterator(environment / "lib", error)) {
    std::error_code none;
    for (const auto& package :
         fs::directory_iterator(python.path() / "site-packages" / "nvidia", none))
      found.push_back(package.path());
  }
  auto rank = [](const fs::path& path) {
    std::string name = path.filename().string();
    return std::pair(!name.starts_with("cuda_"), name);
  };
  std::sort(found.begin(), found.end(),
            [&](const fs::path& a, const fs::path& b) { return rank(a) > rank(b); });
  folders.insert(folders.end(), found.begin(), found.end());
}

// Folders that have lib, lib64 or bin in them, in the order they are looked in.
std::vector<fs::path> homes() {
  std::vector<fs::path> folders;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* environment = std::getenv(variable)) add_wheels(environment, folders);
  for (fs::path up : own_folders())
    for (; up.has_relative_path(); up = up.parent_path()) {
      add_wheels(up / ".venv", folders);
      add_wheels(up, folders);
    }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"})
    if (const char* toolkit = std::getenv(variable)) folders.emplace_back(toolkit);
  folders.emplace_back("/usr/local/cuda");
  std::vector<fs::path> once;
  for (const fs::path& folder : folders)
    if (std::find(once.begin(), once.end(), folder) == once.end()) once.push_back(folder);
  return once;
}

// The file the system's loader takes for a name.
std::optional<fs::path> loaded_by_name(const char* name) {
  void* library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  link_map* map = nullptr;
  if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return std::nullopt;
  return map->l_name;
}

}  // namespace

fs::path nvrtc_library() {
  if (auto chosen = environment::get(environment::nvrtc)) {
    if (fs::is_directory(*chosen)) {
      if (auto library = library_in(*chosen)) return *library;
    } else if (fs::exists(*chosen)) {
      return *chosen;
    }
    throw DeviceError(fmt::format(
        "{}: expected the library libnvrtc.so or the folder it is in; got '{}', where none is",
        environment::nvrtc.name, *chosen));
  }
  std::string looked;
  for (const fs::path& home : homes())
    for (const char* lib : {"lib", "lib64"}) {
      if (auto library = library_in(home / lib)) return *library;
      looked += fmt::format("\n  {}", (home / lib).string());
    }
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
    if (auto library = loaded_by_name(name)) return *library;
  throw DeviceError(
      fmt::format("NVRTC: expected libnvrtc (pip install nvidia-cuda-nvrtc, or {}), found none "
                  "where the system's loader looks, nor in{}",
                  environment::nvrtc.name, looked));
}

std::string nvrtc_identity() {
  try {
    fs::path library = nvrtc_library();
    std::error_code error;
    // Its time too: another build may have as many bytes. A file that was only copied costs the
    // derivation, for the kernels are then found by the version NVRTC itself tells.
    auto time = fs::last_write_time(library, error).time_since_epoch();
    return fmt::format("{} of {} bytes, {}", library.filename().string(),
                       fs::file_size(library, error),
                       std::chrono::duration_cast<std::chrono::seconds>(time).count());
  } catch (const DeviceError&) {
    return "none";
  }
}

fs::path cuda_tool(const std::string& name) {
  for (const fs::path& home : homes())
    if (fs::path tool = home / "bin" / name; fs::exists(tool)) return tool;
  const char* path = std::getenv("PATH");
  for (std::string rest = path ? path : ""; !rest.empty();) {
    size_t end = std::min(rest.find(':'), rest.size());
    if (fs::path tool = fs::path(rest.substr(0, end)) / name; fs::exists(tool)) return tool;
    rest.erase(0, end + 1);
  }
  return {};
}

int architecture_number(const std::string& target) {
  size_t at = target.starts_with("sm_") ? 3 : target.starts_with("compute_") ? 8 : 0;
  size_t digits = 0;
  while (at + digits < target.size() && std::isdigit(target[at + digits])) ++digits;
  std::string rest = target.substr(at + digits);
  if (at == 0 || digits < 2 || digits > 6 || (!rest.empty() && rest != "a" && rest != "f"))
    throw UserError(fmt::format(
        "arch: expected sm_<number>, machine code, or compute_<number>, PTX; got '{}'", target));
  return std::stoi(target.substr(at, digits));
}

}  // namespace linnet::cuda
