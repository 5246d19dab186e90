#include "runtime/cuda/nvrtc.h"

#include <fmt/format.h>

#include <fmt/ranges.h>
#include <cstring>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <sstream>

#include "linnet/error.h"
#include "runtime/cuda/library.h"
#include "runtime/environment.h"
#include "runtime/log.h"

namespace linnet::cuda {

namespace fs = std::filesystem;

struct Nvrtc::Api {
  explicit Api(const fs::path& path) : library(path) {
    library.bind("nvrtcVersion", version);
    library.bind("nvrtcGetErrorString", error_string);
    library.bind("nvrtcGetNumSupportedArchs", architecture_count);
    library.bind("nvrtcGetSupportedArchs", architectures);
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
  int (*architecture_count)(int*);
  int (*architectures)(int*);
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(void**);
  int (*compile)(void*, int, const char* const*);
  int (*ptx_size)(void*, size_t*);
  int (*ptx)(void*, char*);
  int (*cubin_size)(void*, size_t*);
  int (*cubin)(void*, char*);
  int (*log_size)(void*, size_t*);
  int (*log)(void*, char*);
  std::once_flag asked;
  std::string full_version;
};

namespace {

constexpr int kOldest = 12;  // older ones have never been tried

// libnvrtc-builtins lies beside the compiler, which asks for it by name: the loader finds it only
// if it is in the process already.
void load_builtins(const fs::path& library) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(library.parent_path(), error)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with("libnvrtc-builtins.so") && name.find(".alt") == std::string::npos)
      Library(fs::absolute(entry.path(), error), true);
  }
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

Nvrtc::Nvrtc(const fs::path& library) {
  load_builtins(library);
  api_ = std::make_unique<Api>(library);
  int major = 0, minor = 0;
  api_->version(&major, &minor);
  if (major < kOldest)
    throw DeviceError(
        fmt::format("NVRTC: expected version {}.0 or later, got {}.{} in {} (pip install "
                    "nvidia-cuda-nvrtc, or {})",
                    kOldest, major, minor, path(), environment::nvrtc.name));
  int count = 0;
  if (api_->architecture_count(&count) == 0 && count > 0) {
    architectures_.resize(count);
    api_->architectures(architectures_.data());
  }
  log_debug("NVRTC {} in {}", version(), path());
}
Nvrtc::~Nvrtc() = default;

const Nvrtc& Nvrtc::get() {
  // Never closed: it has work of its own to do when the process ends.
  static const Nvrtc& nvrtc = *new Nvrtc(nvrtc_library());
  return nvrtc;
}

const std::string& Nvrtc::path() const { return api_->library.path(); }

std::string Nvrtc::version() const {
  int major = 0, minor = 0;
  api_->version(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

bool Nvrtc::can_split() const {
  int major = 0, minor = 0;
  api_->version(&major, &minor);
  return major >= 13;
}

// PTX says it in a comment: "// Cuda compilation tools, release 13.4, V13.4.92".
const std::string& Nvrtc::full_version() const {
  std::call_once(api_->asked, [&] {
    int number = architectures_.empty() ? 80 : architectures_.back();
    std::string ptx = run("", "version.cu", fmt::format("compute_{}", number), {}, {}).image;
    size_t at = ptx.find(", V"), end = ptx.find('\n', at);
    api_->full_version = at == std::string::npos ? version() : ptx.substr(at + 3, end - at - 3);
  });
  return api_->full_version;
}

bool Nvrtc::knows(const std::string& target) const {
  int number = architecture_number(target);
  return architectures_.empty() ||
         std::find(architectures_.begin(), architectures_.end(), number) != architectures_.end();
}

void Nvrtc::check(const std::string& target) const {
  if (knows(target)) return;
  bool newer = architecture_number(target) > architectures_.back();
  throw DeviceError(fmt::format(
      "arch: expected sm_{}, which NVRTC {} compiles for; got {}{}",
      fmt::join(architectures_, ", sm_"), version(), target,
      newer ? fmt::format(": no such architecture, or {} is too old for it", path()) : ""));
}

Nvrtc::Cubin Nvrtc::run(const std::string& source, const std::string& name,
                        const std::string& target,
                        const std::map<std::string, std::string>& headers,
                        std::vector<std::string> options) const {
  check(target);
  options.push_back("--gpu-architecture=" + target);
  bool cubin = target.starts_with("sm_");
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
  options.push_back("--std=c++17");
  return run(source, name, "compute_" + arch.substr(arch.find('_') + 1), headers,
             std::move(options))
      .image;
}

namespace {
constexpr const char* kWish = "\n// ptxas: ";
}

Nvrtc::Cubin Nvrtc::compile_cubin(const std::string& source, const std::string& name,
                                  const std::string& arch,
                                  const std::map<std::string, std::string>& headers,
                                  std::vector<std::string> options) const {
  options.push_back("--std=c++17");
  if (size_t at = source.find(kWish); at != std::string::npos) {
    at += std::strlen(kWish);
    options.push_back("--ptxas-options=" + source.substr(at, source.find_first_of(" \n", at) - at));
  }
  return run(source, name, arch, headers, std::move(options));
}

KernelResources resources_of(const std::string& log, const std::string& kernel) {
  size_t at = log.find("entry function '" + kernel + "'");
  if (at == std::string::npos) return {};
  std::string part = log.substr(at, log.find("entry function '", at + 16) - at);
  // The number in front of a text, as in "24 bytes spill stores".
  auto number_before = [&](const char* text) {
    size_t end = part.find(text), begin = end;
    if (end == std::string::npos) return -1;
    while (begin > 0 && std::isdigit(part[begin - 1])) --begin;
    return begin == end ? -1 : std::stoi(part.substr(begin, end - begin));
  };
  return {number_before(" registers"), number_before(" bytes spill stores")};
}

}  // namespace linnet::cuda
