#include "driver/kernel_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "counts/report.h"
#include "driver/boundary.h"

namespace linnet::vgpu::driver {
namespace {

constexpr size_t kReportsKept = 256;

void check_geometry(const State& state, const FunctionHandle& function, const Dim3& grid,
                    const Dim3& block, unsigned shared_bytes) {
  for (const uint32_t extent : grid)
    if (extent == 0) invalid_value("a grid extent is zero");
  for (const uint32_t extent : block)
    if (extent == 0) invalid_value("a block extent is zero");
  if (grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535)
    invalid_value("the grid is too large");
  if (uint64_t{grid[0]} * grid[1] * grid[2] > 0xffff'fffeull)
    throw DriverError(CUDA_ERROR_NOT_SUPPORTED, "grids of more than 2^32 - 2 blocks");
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  if (block[0] > 1024 || block[1] > 1024 || block[2] > 64 ||
      threads > static_cast<uint64_t>(max_threads(*function.code)))
    invalid_value(fmt::format("blocks of {} threads; '{}' allows {}", threads, function.code->name,
                              max_threads(*function.code)));
  const uint32_t* required = function.code->bounds.required_threads;
  if (required[0] &&
      (block[0] != required[0] || block[1] != required[1] || block[2] != required[2]))
    invalid_value(fmt::format("'{}' requires blocks of {} x {} x {}", function.code->name,
                              required[0], required[1], required[2]));
  const uint64_t total = uint64_t{function.code->static_shared} + shared_bytes;
  const int limit = std::max(state.profile->shared_per_block, function.max_dynamic_shared);
  if (shared_bytes > static_cast<unsigned>(limit) ||
      total > static_cast<uint64_t>(state.profile->shared_per_block_optin) ||
      (function.max_dynamic_shared == 0 &&
       total > static_cast<uint64_t>(state.profile->shared_per_block)))
    invalid_value(
        fmt::format("{} bytes of shared memory; raise "
                    "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES (up to {})",
                    total, state.profile->shared_per_block_optin));
}

// What the kernel was compiled for, or what the launch asks for; it must divide the grid.
Dim3 cluster_of(const State& state, const FunctionHandle& function, const Dim3& grid,
                const Dim3& asked) {
  constexpr uint32_t kMostBlocks = 8;  // more need an attribute we do not have
  const uint32_t* fixed = function.code->bounds.cluster;
  const bool asks = asked[0] * asked[1] * asked[2] > 1;
  Dim3 cluster = asked;
  if (fixed[0]) cluster = {fixed[0], std::max(1u, fixed[1]), std::max(1u, fixed[2])};
  if (fixed[0] && asks && cluster != asked)
    invalid_value(fmt::format("'{}' was compiled for clusters of {} x {} x {}", function.code->name,
                              cluster[0], cluster[1], cluster[2]));
  const uint32_t blocks = cluster[0] * cluster[1] * cluster[2];
  if (blocks > 1 && state.profile->major < 9)
    throw DriverError(CUDA_ERROR_NOT_SUPPORTED, "clusters need sm_90");
  if (blocks > kMostBlocks)
    invalid_value(fmt::format("clusters of {} blocks; 8 are the most", blocks));
  for (size_t i = 0; i < 3; ++i)
    if (cluster[i] == 0 || grid[i] % cluster[i])
      invalid_value("the cluster does not divide the grid");
  return cluster;
}

std::vector<uint8_t> copy_params(const Code& code, void** params, void** extra) {
  std::vector<uint8_t> bytes(code.param_bytes, 0);
  if (extra && !params) {
    const void* buffer = nullptr;
    size_t size = 0;
    // Pairs of a key (1: buffer, 2: size) and a value, ended by 0.
    for (size_t i = 0; extra[i]; i += 2) {
      const auto key = reinterpret_cast<uintptr_t>(extra[i]);
      if (key == 1) buffer = extra[i + 1];
      if (key == 2) size = *static_cast<const size_t*>(extra[i + 1]);
    }
    if (buffer) std::memcpy(bytes.data(), buffer, std::min(size, bytes.size()));
    return bytes;
  }
  if (!code.param_sizes.empty() && !params) invalid_value("kernelParams is null");
  for (size_t i = 0; i < code.param_sizes.size(); ++i) {
    if (!params[i]) invalid_value(fmt::format("kernel parameter {} is null", i));
    std::memcpy(bytes.data() + code.param_offsets[i], params[i], code.param_sizes[i]);
  }
  return bytes;
}

void finish(State& state, const Launch& launch, Counters counters) {
  LaunchReport report;
  report.kernel = launch.kernel->name;
  std::copy(launch.grid.begin(), launch.grid.end(), report.grid);
  std::copy(launch.block.begin(), launch.block.end(), report.block);
  report.shared_bytes = launch.shared_bytes();
  report.program = launch.program;
  report.counters = std::move(counters);
  if (state.reports.size() >= kReportsKept) state.reports.pop_front();
  state.reports.push_back({launch_record(report), report_json(report)});
}

}  // namespace

int max_threads(const Code& code) {
  const uint32_t* bound =
      code.bounds.required_threads[0] ? code.bounds.required_threads : code.bounds.max_threads;
  if (!bound[0]) return 1024;
  return static_cast<int>(std::min<uint64_t>(1024, uint64_t{bound[0]} * bound[1] * bound[2]));
}

int estimated_registers(const Code& code) {
  return static_cast<int>(std::clamp<uint32_t>(code.register_count / 3, 16, 255));
}

LaunchRequest make_request(State& state, FunctionHandle* function, const Dim3& grid,
                           const Dim3& block, const Dim3& cluster, unsigned shared_bytes,
                           void** params, void** extra) {
  required(function, "function");
  const bool known = state.modules.count(function->module) != 0;
  if (!known) throw DriverError(CUDA_ERROR_INVALID_HANDLE, "not a valid function handle");
  check_geometry(state, *function, grid, block, shared_bytes);
  LaunchRequest request;
  request.function = function;
  request.grid = grid;
  request.block = block;
  request.cluster = cluster_of(state, *function, grid, cluster);
  request.dynamic_shared = shared_bytes;
  request.params = copy_params(*function->code, params, extra);
  return request;
}

void run_request(State& state, const LaunchRequest& request) {
  if (state.failure != CUDA_SUCCESS) return;  // a failed device runs nothing more
  Launch launch;
  launch.program = request.function->module->program.get();
  launch.kernel = request.function->code;
  launch.grid = request.grid;
  launch.block = request.block;
  launch.cluster = request.cluster;
  launch.dynamic_shared = request.dynamic_shared;
  launch.params = request.params;
  launch.settings = state.settings;
  launch.profile = state.profile;
  launch.memory = state.memory.get();
  launch.findings = &state.findings;
  if (++state.launch_serial == 0) state.launch_serial = 1;
  launch.serial = state.launch_serial;
  const size_t findings_before = state.findings.size();
  try {
    finish(state, launch, run_launch(launch));
    if (launch.finding_count.load() && state.settings.strict) {
      const auto all = state.findings.all();
      const size_t first = std::min(findings_before, all.size() - 1);
      state.fail(CUDA_ERROR_LAUNCH_FAILED, all[first].message());
    }
  } catch (const KernelFault& error) {
    state.fail(fault_code(error.finding()), error.what());
  }
  if (state.failure != CUDA_SUCCESS) {
    state.last_error = state.failure_text;
    if (state.settings.log) std::fprintf(stderr, "[virtual gpu] %s\n", state.failure_text.c_str());
  }
}

}  // namespace linnet::vgpu::driver
