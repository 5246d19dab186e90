#include "runtime/cuda/architectures.h"

#include <fmt/format.h>

#include <algorithm>

#include "linnet/error.h"
#include "runtime/cuda/nvrtc.h"

namespace linnet::cuda {

namespace {

constexpr int kKb = 1024;
constexpr Architecture kArchitectures[] = {
    {80, 164 * kKb, 163 * kKb, 2048, 32},  {86, 100 * kKb, 99 * kKb, 1536, 16},
    {87, 164 * kKb, 163 * kKb, 1536, 16},  {89, 100 * kKb, 99 * kKb, 1536, 24},
    {90, 228 * kKb, 227 * kKb, 2048, 32},  {100, 228 * kKb, 227 * kKb, 2048, 32},
    {103, 228 * kKb, 227 * kKb, 2048, 32}, {110, 228 * kKb, 227 * kKb, 1536, 24},
    {120, 100 * kKb, 99 * kKb, 1536, 24},  {121, 100 * kKb, 99 * kKb, 1536, 24},
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture& find_architecture(const std::string& target) {
  int number = architecture_number(target);
  std::string names;
  for (const Architecture& a : kArchitectures) {
    if (a.number == number) return a;
    names += fmt::format("{}sm_{}", names.empty() ? "" : ", ", a.number);
  }
  throw UserError(fmt::format("arch: expected one of {}; got '{}'", names, target));
}

int blocks_at_once(const Architecture& a, int threads, int registers, int shared_bytes) {
  // Registers are handed out to warps, 256 at a time.
  int warps = (threads + 31) / 32, per_warp = (registers * 32 + 255) / 256 * 256;
  int by_registers = registers > 0 ? kRegistersPerSm / per_warp / warps : a.blocks_per_sm;
  int shared = (shared_bytes + kSharedReserved + 127) / 128 * 128;
  return std::min(
      {a.blocks_per_sm, a.threads_per_sm / (warps * 32), by_registers, a.shared_per_sm / shared});
}

}  // namespace linnet::cuda
