// Runs PTX text on the executor directly, without the Driver API: one kernel, buffers in and out.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "exec/launch.h"
#include "exec/loader.h"
#include "memory/device_memory.h"

namespace linnet::vgpu::testing {

inline const std::string kHeader = ".version 8.0\n.target sm_90\n.address_size 64\n";

class PtxRunner {
 public:
  explicit PtxRunner(const std::string& arch = "sm_90") : memory(uint64_t{1} << 30) {
    profile = find_profile(arch);
  }

  void load(const std::string& ptx) { program = load_program(ptx, memory); }

  template <class T>
  uint64_t upload(const std::vector<T>& values) {
    const uint64_t address = memory.allocate(values.size() * sizeof(T), RegionKind::Device, "test");
    std::memcpy(reinterpret_cast<void*>(address), values.data(), values.size() * sizeof(T));
    memory.mark_written(address, values.size() * sizeof(T));
    return address;
  }

  template <class T>
  std::vector<T> download(uint64_t address, size_t count) {
    std::vector<T> values(count);
    std::memcpy(values.data(), reinterpret_cast<const void*>(address), count * sizeof(T));
    return values;
  }

  // Parameters are 64-bit words, in the order of the kernel's .param declarations.
  Counters run(const std::string& kernel, Dim3 grid, Dim3 block, std::vector<uint64_t> params,
               uint32_t dynamic_shared = 0) {
    Launch launch;
    launch.program = program.get();
    launch.kernel = program->codes[static_cast<size_t>(program->code_index.at(kernel))].get();
    launch.grid = grid;
    launch.block = block;
    launch.cluster = cluster;
    launch.dynamic_shared = dynamic_shared;
    launch.params.resize(std::max<size_t>(launch.kernel->param_bytes, params.size() * 8));
    if (!params.empty()) std::memcpy(launch.params.data(), params.data(), params.size() * 8);
    launch.settings = settings;
    launch.profile = profile;
    launch.memory = &memory;
    launch.findings = &findings;
    launch.serial = ++serial;
    return run_launch(launch);
  }

  DeviceMemory memory;
  std::unique_ptr<Program> program;
  const DeviceProfile* profile = nullptr;
  Dim3 cluster{1, 1, 1};
  Settings settings;
  Findings findings;
  uint16_t serial = 0;
};

// A kernel of 32 threads: loads 32 x `inputs` 64-bit words, runs `body`, stores %out (64-bit).
// Register %in0, %in1, ... hold the inputs.
inline std::string lane_kernel(const std::string& body, int inputs,
                               const std::string& declarations = "") {
  std::string text = kHeader +
                     ".visible .entry k(.param .u64 src, .param .u64 dst)\n{\n"
                     ".reg .b64 %in<8>; .reg .b64 %out; .reg .b64 %a<8>; .reg .b32 %t<8>;\n" +
                     declarations +
                     "\nld.param.u64 %a0, [src];\nld.param.u64 %a1, [dst];\n"
                     "mov.u32 %t0, %tid.x;\nmul.wide.u32 %a2, %t0, 8;\nadd.u64 %a1, %a1, %a2;\n"
                     "add.u64 %a0, %a0, %a2;\nmov.u64 %out, 0;\n";
  for (int i = 0; i < inputs; ++i)
    text += fmt::format("ld.global.u64 %in{}, [%a0+{}];\n", i, i * 256);
  return text + body + "\nst.global.u64 [%a1], %out;\nret;\n}\n";
}

// Runs a lane_kernel body on `inputs[i][lane]` and gives %out of each lane.
inline std::vector<uint64_t> run_lanes(const std::string& body,
                                       const std::vector<std::vector<uint64_t>>& inputs,
                                       const std::string& declarations = "",
                                       const Settings& settings = {}) {
  PtxRunner runner;
  runner.settings = settings;
  runner.load(lane_kernel(body, static_cast<int>(inputs.size()), declarations));
  std::vector<uint64_t> flat;
  for (const auto& input : inputs) flat.insert(flat.end(), input.begin(), input.end());
  if (flat.empty()) flat.resize(32);
  const uint64_t src = runner.upload(flat);
  const uint64_t dst = runner.upload(std::vector<uint64_t>(32, 0));
  runner.run("k", {1, 1, 1}, {32, 1, 1}, {src, dst});
  return runner.download<uint64_t>(dst, 32);
}

// Interesting and random bit patterns for one operand.
inline std::vector<uint64_t> patterns(uint32_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t special[] = {0,
                              1,
                              ~uint64_t{0},
                              0x8000000080000000ull,
                              0x7fffffff7fffffffull,
                              0x8000,
                              0x7fff,
                              0xffff,
                              31,
                              32,
                              33,
                              64};
  std::vector<uint64_t> values;
  for (size_t i = 0; i < 32; ++i)
    values.push_back(i < 24 ? random() : special[random() % std::size(special)]);
  return values;
}

}  // namespace linnet::vgpu::testing
