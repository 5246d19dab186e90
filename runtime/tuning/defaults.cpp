#include "runtime/tuning/defaults.h"

#include <fmt/format.h>

#include "runtime/cpu/code.h"

namespace linnet {

namespace {

// Value channels whose part of the state stays in a CPU's first cache while a token goes over it.
int64_t decode_block(const Problem& problem) {
  constexpr int64_t kFloats = 32768;
  int64_t block = problem.value_dim;
  while (block % 32 == 0 && block * problem.key_dim > kFloats) block /= 2;
  return block;
}

}  // namespace

Schedule default_schedule(DeviceKind kind, const Problem& problem, Direction direction, bool here) {
  bool cpu = kind == DeviceKind::cpu;
  if (direction == Direction::decode)
    return {.chunk = 1, .value_block = cpu ? decode_block(problem) : 0};
  // Products are nearly free on the matrix unit, passes over the state are not: longer chunks.
  bool narrow = cpu && here && problem.dtype == DType::bf16 && allow_matrix_unit();
  return {.chunk = narrow ? 32 : 16};
}

std::optional<Schedule> wished_schedule(DeviceKind kind, const Problem& problem,
                                        const BuildOptions& options) {
  auto expect = [](bool holds, const char* name, const char* what, int64_t came) {
    if (!holds) throw UserError(fmt::format("{}: expected {}, got {}", name, what, came));
  };
  if (!options.chunk && !options.schedule) return std::nullopt;
  Schedule schedule = options.schedule ? *options.schedule
                                       : default_schedule(kind, problem, options.direction,
                                                          options.target_cpu.empty());
  if (options.chunk) schedule.chunk = options.chunk;
  if (options.direction == Direction::decode)
    expect(schedule.chunk == 1, "chunk", "1 for decode", schedule.chunk);
  expect(schedule.fuse_stages, "fuse_stages", "1 (a call decides by its sequences)", 0);
  expect(!schedule.sink_products, "sink_products", "0 (a call decides by its sequences)", 1);
  auto within = [&](const char* name, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most)
      throw UserError(fmt::format("{}: expected {} to {}, got {}", name, least, most, value));
  };
  if (kind == DeviceKind::cpu) {
    within("register_rows", schedule.register_rows, 0, 32);
    within("register_vectors", schedule.register_vectors, 1, 8);
  }
  return schedule;
}

}  // namespace linnet
