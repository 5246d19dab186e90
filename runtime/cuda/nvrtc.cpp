#include "runtime/cuda/nvrtc.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "linnet/error.h"
#include "runtime/cuda/library.h"
#include "runtime/environment.h"

namespace linnet::cuda {

namespace fs = std::filesystem;

struct Nvrtc::Api {
  explicit Api(const fs::path& path) : library(path) {
    library.bind("nvrtcVersion", version);
    library.bind("nvrtcGetErrorString", error_string);
    library.bind("nvrtcCreateProgram", create);
    library.bind("nvrtcDestroyProgram", destroy);
    library.bind("nvrtcCompileProgram", compile);
    library.bind("nvrtcGetPTXSize", ptx_size);
    library.bind("nvrtcGetPTX", ptx);
    library.bind("nvrtcGetCUBINSize", cubin_size);
    library.bind("nvrtcGetCUBIN", cubin);
    library.bind("nvrtcGetProgramLogSize", log_size);
    library.bind("nvrtcGetProgramLog", log);
  }
  Library library;
  int (*version)(int*, int*);
  const char* (*error_string)(int);
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(void**);
  int (*compile)(void*, int, const char* const*);
  int (*ptx_size)(void*, size_t*);
  int (*ptx)(void*, char*);
  int (*cubin_size)(void*, size_t*);
  int (*cubin)(void*, char*);
  int (*log_size)(void*, size_t*);
  int (*log)(void*, char*);
};

namespace {

std::optional<fs::path> file_starting(const fs::path& folder, const std::string& prefix) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.find(".alt") == std::string::npos)
      found.push_back(entry.path());
  }
  if (found.empty()) return std::nullopt;
  return *std::max_element(found.begin(), found.end());
}

// lib/python3.*/site-packages/nvidia/*/lib of an environment.
void add_wheels(const fs::path& environment, std::vector<fs::path>& folders) {
  std::error_code error;
  for (const auto& python : fs::directory_iterator(environment / "lib", error)) {
    std::error_code none;
    for (const auto& package :
         fs::directory_iterator(python.path() / "site-packages" / "nvidia", none))
      folders.push_back(package.path() / "lib");
  }
}

std::vector<fs::path> places() {
  std::vector<fs::path> folders;
  if (auto chosen = environment::get(environment::nvrtc)) {
    fs::path path(*chosen);
    return {fs::is_directory(path) ? path : path.parent_path()};
  }
  if (const char* environment = std::getenv("VIRTUAL_ENV")) add_wheels(environment, folders);
  for (fs::path up : own_folders())
    for (; up.has_relative_path(); up = up.parent_path()) {
      add_wheels(up / ".venv", folders);
      add_wheels(up, folders);
    }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* toolkit = std::getenv(variable)) folders.push_back(fs::path(toolkit) / "lib64");
  folders.push_back("/usr/local/cuda/lib64");
  return folders;
}

// The line of the source a log speaks of first, "name(12): error: ...", as it stands there.
std::string line_in_question(const std::string& log, const std::string& name,
                             const std::string& source) {
  size_t at = log.find(name + "(");
  if (at == std::string::npos) return "";
  int number = std::atoi(log.c_str() + at + name.size() + 1);
  std::istringstream lines(source);
  std::string line;
  for (int i = 0; i < number && std::getline(lines, line);) ++i;
  return fmt::format("line {}: {}\n", number, line);
}

}  // namespace

std::string Nvrtc::identity() {
  for (const fs::path& folder : places())
    if (auto library = file_starting(folder, "libnvrtc.so")) {
      std::error_code error;
      return fmt::format("{} of {} bytes", library->filename().string(),
                         fs::file_size(*library, error));
    }
  return "none";
}

Nvrtc::Nvrtc() {
  std::string tried;
  for (const fs::path& folder : places()) {
    auto library = file_starting(folder, "libnvrtc.so");
    tried += fmt::format("\n  {}", folder.string());
    if (!library) continue;
    // The compiler asks for its built-ins by name: they have to be in the process already.
    if (auto builtins = file_starting(folder, "libnvrtc-builtins.so")) Library(*builtins, true);
    api_ = std::make_unique<Api>(*library);
    return;
  }
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
    try {
      api_ = std::make_unique<Api>(name);
      return;
    } catch (const DeviceError&) {
    }
  }
  throw DeviceError(fmt::format(
      "NVRTC: expected libnvrtc (pip install nvidia-cuda-nvrtc, or LINNET_NVRTC), found none in{}",
      tried));
}
Nvrtc::~Nvrtc() = default;

const Nvrtc& Nvrtc::get() {
  static const Nvrtc nvrtc;
  return nvrtc;
}

const std::string& Nvrtc::path() const { return api_->library.path(); }

std::string Nvrtc::version() const {
  int major = 0, minor = 0;
  api_->version(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

Nvrtc::Cubin Nvrtc::run(const std::string& source, const std::string& name,
                        const std::map<std::string, std::string>& headers,
                        const std::vector<std::string>& options, bool cubin) const {
  std::vector<const char*> texts, names, arguments;
  for (const auto& [header, text] : headers) {
    names.push_back(header.c_str());
    texts.push_back(text.c_str());
  }
  for (const std::string& option : options) arguments.push_back(option.c_str());
  void* program = nullptr;
  int result = api_->create(&program, source.c_str(), name.c_str(), static_cast<int>(names.size()),
                            texts.data(), names.data());
  if (result) throw DeviceError(fmt::format("NVRTC: {}", api_->error_string(result)));
  result = api_->compile(program, static_cast<int>(arguments.size()), arguments.data());
  auto fetch = [&](auto size_of, auto get) {
    size_t size = 0;
    size_of(program, &size);
    std::string text(size, '\0');
    if (size) get(program, text.data());
    return text;
  };
  Cubin made;
  made.log = fetch(api_->log_size, api_->log).c_str();  // up to its terminating zero
  if (!result)
    made.image = cubin ? fetch(api_->cubin_size, api_->cubin)
                       : std::string(fetch(api_->ptx_size, api_->ptx).c_str());
  api_->destroy(&program);
  if (result)
    throw DeviceError(fmt::format("NVRTC {}: {} ({}): {}\n{}{}", version(), name,
                                  fmt::join(options, " "), api_->error_string(result),
                                  line_in_question(made.log, name, source), made.log));
  return made;
}

std::string Nvrtc::compile(const std::string& source, const std::string& name,
                           const std::string& arch,
                           const std::map<std::string, std::string>& headers,
                           std::vector<std::string> options) const {
  options.push_back("--gpu-architecture=compute_" + arch.substr(arch.find('_') + 1));
  options.push_back("--std=c++17");
  return run(source, name, headers, options, false).image;
}

Nvrtc::Cubin Nvrtc::compile_cubin(const std::string& source, const std::string& name,
                                  const std::string& arch,
                                  const std::map<std::string, std::string>& headers,
                                  std::vector<std::string> options) const {
  options.push_back("--gpu-architecture=" + arch);
  options.push_back("--std=c++17");
  return run(source, name, headers, options, true);
}

}  // namespace linnet::cuda
