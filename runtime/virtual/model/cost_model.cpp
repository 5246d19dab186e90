#include "model/cost_model.h"

#include <algorithm>
#include <cmath>
#include <regex>

namespace linnet::vgpu {
namespace {

constexpr double kSectorBytes = 32;
// What long, well-formed streams reach of the rates data sheets state.
constexpr double kDramShare = 0.92, kL2Share = 0.7;
constexpr double kSchedulers = 4, kMufuLanes = 16, kLanesOfWarp = 32;
constexpr int kAssumedRegisters = 128;

int blocks_per_sm(const DeviceProfile& p, const KernelCounts& k, const KernelResources& r) {
  const int warps = (k.threads + 31) / 32;
  const int registers = (r.registers ? r.registers : kAssumedRegisters);
  const int of_block = (registers + 7) / 8 * 8 * 32 * warps;
  const int shared = k.shared_bytes + p.shared_reserved;
  return std::max(1, std::min({p.threads_per_sm / (warps * 32), p.registers_per_sm / of_block,
                               p.shared_per_sm / shared, p.blocks_per_sm}));
}

}  // namespace

KernelCounts::KernelCounts(const linnet_virtual_launch& launch)
    : kernel(launch.kernel),
      threads(static_cast<int>(launch.block[0] * launch.block[1] * launch.block[2])),
      shared_bytes(static_cast<int>(launch.shared_bytes)) {
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<double>(launch.counts[i]);
}

double KernelCounts::bytes_moved() const {
  return kSectorBytes * (counts[LINNET_COUNT_LOAD_SECTORS] + counts[LINNET_COUNT_STORE_SECTORS] +
                         counts[LINNET_COUNT_LOCAL_SECTORS]);
}

double KernelCounts::bytes_compulsory() const {
  return counts[LINNET_COUNT_BYTES_READ] + counts[LINNET_COUNT_BYTES_WRITTEN];
}

KernelResources resources_of(const std::string& log, const std::string& kernel) {
  const size_t at = log.find("entry function '" + kernel + "'");
  if (at == std::string::npos) return {};
  const std::string part = log.substr(at, log.find("entry function '", at + 16) - at);
  const auto number = [&](const char* pattern) {
    std::smatch match;
    return std::regex_search(part, match, std::regex(pattern)) ? std::stoi(match[1]) : 0;
  };
  return {number("Used (\\d+) registers"), number("(\\d+) bytes spill stores")};
}

const char* name_of(Bound bound) {
  static constexpr const char* names[] = {"DRAM",  "L2",      "tensor", "shared",
                                          "issue", "latency", "launch"};
  return names[static_cast<int>(bound)];
}

Cost model_cost(const DeviceProfile& p, const KernelCounts& k, const KernelResources& resources) {
  Cost cost;
  const auto set = [&](Bound bound, double seconds) {
    cost.parts[static_cast<size_t>(bound)] = seconds;
  };
  const double clock = p.clock_khz * 1e3;
  const double blocks = std::max(1.0, k[LINNET_COUNT_BLOCKS]);
  cost.blocks_per_sm = blocks_per_sm(p, k, resources);
  // The SM with most blocks decides; blocks are dealt out evenly.
  const double share = std::ceil(blocks / p.sm_count) / blocks;
  const auto of_sm = [&](double clocks) { return clocks * share / clock; };
  const double instructions = k[LINNET_COUNT_INSTRUCTIONS] - k[LINNET_COUNT_MOVES];
  const double issue =
      std::max({instructions / kSchedulers, k[LINNET_COUNT_FLOAT] * kLanesOfWarp / p.fp32_lanes,
                k[LINNET_COUNT_INTEGER] * kLanesOfWarp / p.integer_lanes,
                k[LINNET_COUNT_MUFU] * kLanesOfWarp / kMufuLanes});
  const double sectors = k.bytes_moved() / kSectorBytes;
  const double tensor_rate =
      p.tensor_bf16_tflops * 1e12 * p.mma_sync_percent / 100 / p.sm_count;  // of an SM
  set(Bound::dram, k.bytes_compulsory() / (p.bandwidth_gbs * 1e9 * kDramShare));
  set(Bound::l2, k.bytes_moved() / (p.l2_gbs * 1e9 * kL2Share));
  set(Bound::tensor, k[LINNET_COUNT_FLOP_AS_BF16] * share / tensor_rate);
  set(Bound::shared, of_sm(k[LINNET_COUNT_WAVEFRONTS] + sectors / 4));
  set(Bound::issue, of_sm(issue));
  const double rounds = std::ceil(blocks / (p.sm_count * double(cost.blocks_per_sm)));
  set(Bound::latency, rounds * k[LINNET_COUNT_BLOCK_CLOCKS] / clock);
  set(Bound::launch, p.latency_launch_ns * 1e-9);
  const auto largest = std::max_element(cost.parts.begin(), cost.parts.end());
  cost.bound = static_cast<Bound>(largest - cost.parts.begin());
  const double work = *std::max_element(cost.parts.begin(), cost.parts.end() - 1);
  cost.seconds = work + cost.parts[static_cast<size_t>(Bound::launch)];
  return cost;
}

}  // namespace linnet::vgpu
