// Every environment variable the runtime reads, its default and its meaning; documented from here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace linnet::environment {

struct Variable {
  const char* name;
  const char* fallback;  // what holds if it is not set
  const char* doc;
};

inline constexpr Variable cache_dir = {"LINNET_CACHE_DIR",
                                       "$XDG_CACHE_HOME/linnet, else ~/.cache/linnet",
                                       "the directory that compiled kernels are kept in"};
inline constexpr Variable cache_size = {"LINNET_CACHE_SIZE", "1G",
                                        "bytes the kernel cache may hold (K, M, G: powers of "
                                        "1024); beyond, the least recently used go"};
inline constexpr Variable bundle = {"LINNET_BUNDLE", "none",
                                    "directories of kernels compiled ahead (linnet compile), "
                                    "separated by colons; looked in before the cache"};
inline constexpr Variable log = {"LINNET_LOG", "info",
                                 "what goes to stderr: 0 or quiet, 1 or info, 2 or debug"};

inline constexpr Variable threads = {"LINNET_THREADS", "one a core", "threads of the device cpu"};
inline constexpr Variable compiler = {"LINNET_COMPILER",
                                      "liblinnet_compiler.so beside liblinnet.so",
                                      "the compiler's library, opened when a kernel is missing"};
inline constexpr Variable jit = {"LINNET_JIT", "1",
                                 "0: never compile; a kernel that is not in the cache is an error"};

inline constexpr Variable tuning_dir = {"LINNET_TUNING_DIR",
                                        "tuning in the directory of LINNET_CACHE_DIR",
                                        "the directory of the schedules found by linnet tune; "
                                        "empty: only the shipped ones"};

inline constexpr Variable cuda_driver = {"LINNET_CUDA_DRIVER", "libcuda.so.1",
                                         "the CUDA driver's library"};
inline constexpr Variable nvrtc = {"LINNET_NVRTC",
                                   "Python's nvidia wheels, the CUDA toolkit, the system",
                                   "NVIDIA's run-time compiler: the library or its folder"};

inline constexpr Variable all[] = {cache_dir, cache_size, bundle,     log,         threads,
                                   compiler,  jit,        tuning_dir, cuda_driver, nvrtc};

// The variable's text, empty text included; nothing if it is not set.
std::optional<std::string> get(const Variable& variable);

// "512", "64K", "10M", "1G" in bytes; throws a UserError that begins with `name`.
uint64_t parse_bytes(const std::string& text, const std::string& name);

}  // namespace linnet::environment
