// The CUDA kernels of an op: from a bundle, from the cache, or written by the compiler and compiled
// by NVRTC.
//
// Two keys lead to them. The short one names what is asked for (problem, schedule, target and the
// build of the generator): its entry says how the kernels are launched, and where their code is. So
// a process that finds it needs no MLIR. The full one names everything the code depends on: the
// emitted source, the templates, the options, NVRTC's version and the target. So a new build of
// Linnet that emits the same source compiles nothing again.
#pragma once

#include "linnet/bundle.h"
#include "linnet/compiler.h"
#include "runtime/cache/cache.h"

namespace linnet {

struct CudaImage {
  CudaProgram program;
  std::string code;      // a cubin, or PTX
  std::string log;       // what the compiler said of it
  std::string key = {};  // of the program's entry
  bool from_cache = true;
};

class CudaKernels {
 public:
  explicit CudaKernels(Cache::Options options) : cache_(std::move(options)) {}

  // For a GPU ("sm_90"); or, if it is virtual, for the PTX executor that plays it. Throws
  // DeviceError for a damaged bundle, and if kernels are missing and cannot be compiled.
  CudaImage load(const CudaRequest& request, const std::string& arch, bool is_virtual);

  // Compiles for a target, "sm_90" or "compute_90", and stores both entries in a bundle.
  Bundled add_to(const Store& bundle, const CudaRequest& request, const std::string& target);

 private:
  struct Built {
    CudaProgram program;
    std::string target;
    CacheKey image;
    std::string code, log;
    bool cached;
  };
  Built build(const CudaRequest& request, const std::string& target, const CacheKey& key);
  bool is_in_bundles_of_another_build(const std::string& what) const;
  std::optional<CudaImage> find_in_bundles(const std::string& what, const std::string& arch,
                                           bool is_virtual);

  Cache cache_;
};

// The request for a problem on a GPU; throws UserError for what GPUs do not do.
CudaRequest cuda_request(const Problem& problem, const BuildOptions& options);

}  // namespace linnet
