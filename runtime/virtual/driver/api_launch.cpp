// Launching kernels, and occupancy.
#include <algorithm>

#include "driver/boundary.h"
#include "driver/kernel_launch.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::driver;

namespace {

void launch(State& state, CUfunction function, const Dim3& grid, const Dim3& block, unsigned shared,
            CUstream stream, void** params, void** extra, const Dim3& cluster = {1, 1, 1}) {
  state.check_failure();
  LaunchRequest request =
      make_request(state, function, grid, block, cluster, shared, params, extra);
  state.submit(stream, NodeKind::Kernel,
               [&state, request = std::move(request)] { run_request(state, request); });
}

// Blocks of one kernel an SM holds at once, by threads, registers, shared memory and slots.
int active_blocks(const State& state, const FunctionHandle& function, int block, size_t dynamic) {
  if (block <= 0) invalid_value("the block size must be positive");
  const DeviceProfile& profile = *state.profile;
  const int warps = (block + 31) / 32;
  const int by_threads = profile.threads_per_sm / (warps * 32);
  const int registers = (estimated_registers(*function.code) + 7) / 8 * 8 * 32 * warps;
  const int by_registers = profile.registers_per_sm / registers;
  const size_t shared =
      function.code->static_shared + dynamic + static_cast<size_t>(profile.shared_reserved);
  const int by_shared = static_cast<int>(static_cast<size_t>(profile.shared_per_sm) / shared);
  return std::min({by_threads, by_registers, by_shared, profile.blocks_per_sm});
}

}  // namespace

VGPU_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared, CUstream stream, void** params,
                                 void** extra) {
  return guarded_context("cuLaunchKernel", [&](State& state) {
    launch(state, function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream,
           params, extra);
  });
}

VGPU_API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                            unsigned grid_z, unsigned block_x, unsigned block_y,
                                            unsigned block_z, unsigned shared, CUstream stream,
                                            void** params) {
  return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                        params, nullptr);
}

VGPU_API CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                                   void** extra) {
  return guarded_context("cuLaunchKernelEx", [&](State& state) {
    required(config, "config");
    Dim3 cluster{1, 1, 1};
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const CUlaunchAttribute& attribute = config->attrs[i];
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        std::copy_n(attribute.value.cluster, 3, cluster.begin());
    }
    launch(state, function, {config->gridDimX, config->gridDimY, config->gridDimZ},
           {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes,
           config->hStream, params, extra, cluster);
  });
}

VGPU_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                              int block, size_t dynamic) {
  return guarded_context("cuOccupancyMaxActiveBlocksPerMultiprocessor", [&](State& state) {
    required(blocks, "numBlocks") =
        active_blocks(state, required(function, "function"), block, dynamic);
  });
}

VGPU_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                       CUfunction function,
                                                                       int block, size_t dynamic,
                                                                       unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block, dynamic);
}

VGPU_API CUresult cuOccupancyMaxPotentialBlockSize(int* min_grid, int* block, CUfunction function,
                                                   size_t (*dynamic_of)(int), size_t dynamic,
                                                   int limit) {
  return guarded_context("cuOccupancyMaxPotentialBlockSize", [&](State& state) {
    required(function, "function");
    const int largest = std::min(limit > 0 ? limit : 1024, max_threads(*function->code));
    int best_block = 0, best_threads = 0, best_count = 0;
    for (int size = largest / 32 * 32; size > 0; size -= 32) {
      const int count =
          active_blocks(state, *function, size, dynamic_of ? dynamic_of(size) : dynamic);
      if (count * size <= best_threads) continue;
      best_threads = count * size;
      best_block = size;
      best_count = count;
    }
    required(block, "blockSize") = best_block;
    required(min_grid, "minGridSize") = best_count * state.profile->sm_count;
  });
}

VGPU_API CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction function,
                                                          int blocks, int) {
  return guarded_context("cuOccupancyAvailableDynamicSMemPerBlock", [&](State& state) {
    required(function, "function");
    if (blocks <= 0) invalid_value("the number of blocks must be positive");
    const int64_t share = state.profile->shared_per_sm / blocks - state.profile->shared_reserved -
                          static_cast<int64_t>(function->code->static_shared);
    const int64_t limit = std::max(function->max_dynamic_shared, state.profile->shared_per_block);
    required(bytes, "dynamicSmemSize") = static_cast<size_t>(std::clamp<int64_t>(share, 0, limit));
  });
}
