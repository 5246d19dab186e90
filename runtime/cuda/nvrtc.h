// NVIDIA's run-time compiler, found on this machine and loaded when it is first needed.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace linnet::cuda {

class Nvrtc {
 public:
  // The one of nvrtc_library(), loaded once. Throws DeviceError that says where it was looked for.
  static const Nvrtc& get();
  // A library. Throws DeviceError if it does not load, lacks a function or is too old.
  explicit Nvrtc(const std::filesystem::path& library);
  ~Nvrtc();

  std::string version() const;              // "13.4"
  const std::string& full_version() const;  // "13.4.92", as it writes into PTX
  const std::string& path() const;
  bool can_split() const;  // whether it knows --split-compile, which compiles kernels in parallel
  // Architectures it compiles for, as numbers: 80, 90, ...; empty if it does not say.
  const std::vector<int>& architectures() const { return architectures_; }
  bool knows(const std::string& target) const;
  // Throws DeviceError if it does not know the architecture of "sm_90" or "compute_90".
  void check(const std::string& target) const;

  // CUDA text to PTX for "sm_90". `headers` by the name they are included with. Throws DeviceError
  // with the compiler's log and the line of the source it speaks of.
  std::string compile(const std::string& source, const std::string& name, const std::string& arch,
                      const std::map<std::string, std::string>& headers,
                      std::vector<std::string> options = {}) const;
  // The same to machine code, with what the compiler said on the way. ptxas is given the option
  // that a line "// ptxas: -O1" of the source asks for.
  struct Cubin {
    std::string image, log;
  };
  Cubin compile_cubin(const std::string& source, const std::string& name, const std::string& arch,
                      const std::map<std::string, std::string>& headers,
                      std::vector<std::string> options = {}) const;

 private:
  struct Api;
  Cubin run(const std::string& source, const std::string& name, const std::string& target,
            const std::map<std::string, std::string>& headers,
            std::vector<std::string> options) const;
  std::unique_ptr<Api> api_;
  std::vector<int> architectures_;
};

// What ptxas says of a kernel in the log of compile_cubin (with "--ptxas-options=-v"); -1: nothing.
struct KernelResources {
  int registers = -1, spilled = -1;  // spilled: bytes
};
KernelResources resources_of(const std::string& log, const std::string& kernel);

// The library to load: LINNET_NVRTC (a library or its folder), else that of the Python
// environment's nvidia wheels, of the CUDA toolkit, or wherever the system's loader finds one.
// Throws DeviceError that lists the places.
std::filesystem::path nvrtc_library();

// What the cache knows that library by without loading it; "none" if there is none.
std::string nvrtc_identity();

// A program that comes with CUDA or NVIDIA's wheels, "nvdisasm"; empty if there is none.
std::filesystem::path cuda_tool(const std::string& name);

// 90 of "sm_90", "compute_90" or "sm_90a". Throws UserError for another text.
int architecture_number(const std::string& target);

}  // namespace linnet::cuda
