// NVIDIA's run-time compiler, found on this machine and loaded when it is first needed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace linnet::cuda {

class Nvrtc {
 public:
  // Looks in LINNET_NVRTC (a library or its folder), the Python environment's nvidia wheels, the
  // CUDA toolkit, then wherever the system's loader looks. Throws DeviceError that lists the
  // places.
  static const Nvrtc& get();
  // The library that would be loaded, for the cache's key; "none" if there is none. Does not load
  // it.
  static std::string identity();
  ~Nvrtc();

  std::string version() const;  // "13.4"
  const std::string& path() const;
  // CUDA text to PTX for "sm_90". `headers` by the name they are included with. Throws DeviceError
  // with the compiler's log and the line of the source it speaks of.
  std::string compile(const std::string& source, const std::string& name, const std::string& arch,
                      const std::map<std::string, std::string>& headers,
                      std::vector<std::string> options = {}) const;
  // The same to machine code, with what the compiler said on the way.
  struct Cubin {
    std::string image, log;
  };
  Cubin compile_cubin(const std::string& source, const std::string& name, const std::string& arch,
                      const std::map<std::string, std::string>& headers,
                      std::vector<std::string> options = {}) const;

 private:
  Nvrtc();
  struct Api;
  Cubin run(const std::string& source, const std::string& name,
            const std::map<std::string, std::string>& headers,
            const std::vector<std::string>& options, bool cubin) const;
  std::unique_ptr<Api> api_;
};

}  // namespace linnet::cuda
