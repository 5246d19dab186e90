// What a program's kernels need of a GPU's registers, as ptxas says: about a second of its time a
// program.
#pragma once

#include <functional>
#include <vector>

#include "autotune/space.h"
#include "model/cost_model.h"

namespace linnet::autotune {

// Of a program's kernels, in order. Throws DeviceError if there is no NVRTC or it does not compile.
std::vector<vgpu::KernelResources> resources_of(const CudaProgram& program,
                                                const std::string& arch);

int spilled_bytes(const std::vector<vgpu::KernelResources>& resources);

// Throws UserError if no block of a kernel fits on a multiprocessor, or if more bytes of registers
// are spilled than `most_spilled`.
void check_registers(const CudaProgram& program,
                     const std::vector<vgpu::KernelResources>& resources, const std::string& arch,
                     int most_spilled);

// Asks ptxas about every schedule of a space for a GPU: what does not fit, or spills more than the
// default, is left out; the others' notes say what they take. `seen` is called after each.
void check_registers(Space& space, Compiler& compiler, const Problem& problem, Direction direction,
                     const std::string& arch, const std::function<void(size_t)>& seen);

}  // namespace linnet::autotune
