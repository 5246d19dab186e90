#include "counts/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "checks/findings.h"

namespace linnet::vgpu {
namespace {

constexpr std::array<const char*, kOpClasses> kClassNames{
    "integer", "float",     "half",        "double",       "convert",     "move",
    "compare", "mufu",      "global_load", "global_store", "shared_load", "shared_store",
    "local",   "constant",  "generic",     "atomic",       "async_copy",  "matrix",
    "mma",     "warp_sync", "barrier",     "fence",        "control",     "other"};

// Traffic of global memory, of shared memory, and instructions: of the kernel or of a line.
struct Totals {
  uint64_t instructions = 0;
  uint64_t flop = 0, flop_as_bf16 = 0;
  std::array<uint64_t, kOpClasses> issued{};
  std::array<MemoryCount, kOpClasses> memory{};

  void add(const Code& code, size_t pc, const Counters& counters) {
    const uint64_t count = counters.issued[code.first_counter + pc];
    const auto kind = static_cast<size_t>(code.ops[pc].kind);
    instructions += count;
    issued[kind] += count;
    flop += count * code.uses[pc].flop;
    flop_as_bf16 += count * code.uses[pc].flop_as_bf16;
    memory[kind].add(counters.memory[code.first_counter + pc]);
  }
  uint64_t of(std::initializer_list<OpClass> kinds) const {
    uint64_t sum = 0;
    for (const OpClass kind : kinds) sum += issued[static_cast<size_t>(kind)];
    return sum;
  }
  MemoryCount memory_of(std::initializer_list<OpClass> kinds) const {
    MemoryCount sum;
    for (const OpClass kind : kinds) sum.add(memory[static_cast<size_t>(kind)]);
    return sum;
  }
  MemoryCount loads() const {
    return memory_of({OpClass::GlobalLoad, OpClass::AsyncCopy, OpClass::Generic, OpClass::Atomic});
  }
  MemoryCount stores() const { return memory_of({OpClass::GlobalStore}); }
  MemoryCount local() const { return memory_of({OpClass::Local}); }
  MemoryCount shared() const {
    return memory_of({OpClass::SharedLoad, OpClass::SharedStore, OpClass::Matrix});
  }
};

template <class F>
void for_executed(const LaunchReport& report, F f) {
  for (const auto& code : report.program->codes)
    for (size_t pc = 0; pc < code->ops.size(); ++pc)
      if (report.counters.issued[code->first_counter + pc]) f(*code, pc);
}

std::string memory_json(const char* name, const MemoryCount& count, const char* unit) {
  return fmt::format(",\"{}\":{{\"lanes\":{},\"bytes\":{},\"{}\":{},\"minimum\":{}}}", name,
                     count.lanes, count.bytes, unit, count.units, count.minimum);
}

std::string class_json(const Totals& totals) {
  std::string text;
  for (size_t i = 0; i < totals.issued.size(); ++i)
    if (totals.issued[i])
      text += fmt::format("{}\"{}\":{}", text.empty() ? "" : ",", kClassNames[i], totals.issued[i]);
  return text;
}

std::string line_json(const LaunchReport& report) {
  std::map<std::pair<std::string, int>, Totals> lines;
  for_executed(report, [&](const Code& code, size_t pc) {
    const SourceLocation& at = code.sources[pc].location;
    lines[{report.program->file_name(at.file), at.line}].add(code, pc, report.counters);
  });
  std::string text;
  for (const auto& [where, line] : lines) {
    const MemoryCount shared = line.shared(), loads = line.loads(), stores = line.stores();
    text += fmt::format(
        "{}{{\"file\":{},\"line\":{},\"issued\":{},\"mma\":{},\"mufu\":{},\"wavefronts\":{},"
        "\"wavefronts_minimum\":{},\"sectors\":{},\"sectors_minimum\":{}}}",
        text.empty() ? "" : ",", json_string(where.first), where.second, line.instructions,
        line.of({OpClass::Mma}), line.of({OpClass::Mufu}), shared.units, shared.minimum,
        loads.units + stores.units, loads.minimum + stores.minimum);
  }
  return text;
}

}  // namespace

linnet_virtual_launch launch_record(const LaunchReport& report) {
  Totals totals;
  for_executed(report, [&](const Code& code, size_t pc) { totals.add(code, pc, report.counters); });
  linnet_virtual_launch record{};
  report.kernel.copy(record.kernel, sizeof record.kernel - 1);
  std::copy_n(report.grid, 3, record.grid);
  std::copy_n(report.block, 3, record.block);
  record.shared_bytes = report.shared_bytes;
  const auto set = [&](linnet_virtual_count which, uint64_t value) {
    record.counts[which] = value;
  };
  set(LINNET_COUNT_BLOCKS, uint64_t{report.grid[0]} * report.grid[1] * report.grid[2]);
  set(LINNET_COUNT_INSTRUCTIONS, totals.instructions);
  set(LINNET_COUNT_MOVES, totals.of({OpClass::Move}));
  set(LINNET_COUNT_FLOAT, totals.of({OpClass::Float, OpClass::Half}));
  set(LINNET_COUNT_INTEGER, totals.of({OpClass::Integer, OpClass::Compare, OpClass::Convert}));
  set(LINNET_COUNT_MUFU, totals.of({OpClass::Mufu}));
  set(LINNET_COUNT_MMA, totals.of({OpClass::Mma}));
  set(LINNET_COUNT_BARRIERS, totals.of({OpClass::Barrier}));
  set(LINNET_COUNT_FLOP, totals.flop);
  set(LINNET_COUNT_FLOP_AS_BF16, totals.flop_as_bf16);
  set(LINNET_COUNT_LOAD_SECTORS, totals.loads().units);
  set(LINNET_COUNT_STORE_SECTORS, totals.stores().units);
  set(LINNET_COUNT_LOCAL_SECTORS, totals.local().units);
  set(LINNET_COUNT_LOAD_MINIMUM, totals.loads().minimum);
  set(LINNET_COUNT_STORE_MINIMUM, totals.stores().minimum);
  set(LINNET_COUNT_WAVEFRONTS, totals.shared().units);
  set(LINNET_COUNT_WAVEFRONT_MINIMUM, totals.shared().minimum);
  set(LINNET_COUNT_BYTES_READ, report.counters.touches.read);
  set(LINNET_COUNT_BYTES_WRITTEN, report.counters.touches.written);
  set(LINNET_COUNT_BLOCK_CLOCKS, report.counters.block_clocks);
  return record;
}

std::string report_json(const LaunchReport& report) {
  Totals totals;
  for_executed(report, [&](const Code& code, size_t pc) { totals.add(code, pc, report.counters); });
  const FirstTouches& touches = report.counters.touches;
  return fmt::format(
      "{{\"kernel\":{},\"grid\":[{},{},{}],\"block\":[{},{},{}],\"shared_bytes\":{},"
      "\"warp_instructions\":{},\"classes\":{{{}}}{}{}{}{}{}{},\"flop\":{},"
      "\"unique_bytes_read\":{},\"unique_bytes_written\":{},\"modelled_block_clocks\":{},"
      "\"lines\":[{}]}}",
      json_string(report.kernel), report.grid[0], report.grid[1], report.grid[2], report.block[0],
      report.block[1], report.block[2], report.shared_bytes, totals.instructions,
      class_json(totals),
      memory_json("global_load", totals.memory_of({OpClass::GlobalLoad, OpClass::AsyncCopy}),
                  "sectors"),
      memory_json("global_store", totals.stores(), "sectors"),
      memory_json("generic", totals.memory_of({OpClass::Generic}), "sectors"),
      memory_json("local", totals.local(), "sectors"),
      memory_json("atomic", totals.memory_of({OpClass::Atomic}), "sectors"),
      memory_json("shared", totals.shared(), "wavefronts"), totals.flop, touches.read,
      touches.written, report.counters.block_clocks, line_json(report));
}

}  // namespace linnet::vgpu
