#include "autotune/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "linnet/error.h"
#include "runtime/cuda/architectures.h"
#include "runtime/cuda/nvrtc.h"

namespace linnet::autotune {

std::vector<vgpu::KernelResources> resources_of(const CudaProgram& program,
                                                const std::string& arch) {
  const cuda::Nvrtc& nvrtc = cuda::Nvrtc::get();
  auto made = nvrtc.compile_cubin(program.source, program.name + ".cu", arch, program.headers,
                                  {"--ptxas-options=-v"});
  std::vector<vgpu::KernelResources> resources;
  for (const CudaKernel& kernel : program.kernels)
    resources.push_back(vgpu::resources_of(made.log, kernel.name));
  return resources;
}

int spilled_bytes(const std::vector<vgpu::KernelResources>& resources) {
  int bytes = 0;
  for (const auto& kernel : resources) bytes += kernel.spilled_bytes;
  return bytes;
}

void check_registers(const CudaProgram& program,
                     const std::vector<vgpu::KernelResources>& resources, const std::string& arch,
                     int most_spilled) {
  const cuda::Architecture& a = cuda::find_architecture(arch);
  for (size_t k = 0; k < program.kernels.size(); ++k) {
    const CudaKernel& kernel = program.kernels[k];
    if (cuda::blocks_at_once(a, kernel.threads, resources[k].registers, kernel.shared_bytes) < 1)
      throw UserError(fmt::format("{} takes {} registers of each of {} threads: no block fits",
                                  kernel.name, resources[k].registers, kernel.threads));
  }
  if (int bytes = spilled_bytes(resources); bytes > most_spilled)
    throw UserError(fmt::format("registers do not suffice, {} bytes are spilled", bytes));
}

void check_registers(Space& space, Compiler& compiler, const Problem& problem, Direction direction,
                     const std::string& arch, const std::function<void(size_t)>& seen) {
  int most_spilled = INT_MAX;  // the default is first, and always there
  std::vector<Candidate> fit;
  for (Candidate& candidate : space.candidates) {
    try {
      CudaProgram program = compiler.emit({problem, direction, candidate.schedule});
      auto resources = resources_of(program, arch);
      check_registers(program, resources, arch, most_spilled);
      if (fit.empty()) most_spilled = spilled_bytes(resources);
      int registers = 0;
      for (const auto& kernel : resources) registers = std::max(registers, kernel.registers);
      candidate.note +=
          fmt::format(", {} registers, {} bytes spilled", registers, spilled_bytes(resources));
      fit.push_back(std::move(candidate));
    } catch (const UserError& error) {
      if (fit.empty()) throw;
      space.refused.push_back({candidate.schedule, error.what()});
    }
    seen(fit.size() + space.refused.size());
  }
  space.candidates = std::move(fit);
}

}  // namespace linnet::autotune
