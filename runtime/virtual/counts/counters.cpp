#include "counts/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "checks/findings.h"
#include "exec/lanes.h"
#include "memory/device_memory.h"

namespace linnet::vgpu {
namespace {

constexpr std::array<const char*, kOpClasses> kClassNames{
    "integer", "float",     "half",        "double",       "convert",     "move",
    "compare", "mufu",      "global_load", "global_store", "shared_load", "shared_store",
    "local",   "constant",  "generic",     "atomic",       "async_copy",  "matrix",
    "mma",     "warp_sync", "barrier",     "fence",        "control",     "other"};

struct LineCount {
  uint64_t issued = 0;
  MemoryCount memory;
};

void accumulate(MemoryCount& into, const MemoryCount& from) {
  into.lanes += from.lanes;
  into.bytes += from.bytes;
  into.units += from.units;
  into.minimum += from.minimum;
}

std::string memory_json(const MemoryCount& count, const char* unit) {
  return fmt::format("{{\"lanes\":{},\"bytes\":{},\"{}\":{},\"minimum\":{}}}", count.lanes,
                     count.bytes, unit, count.units, count.minimum);
}

bool is_shared(OpClass kind) {
  return kind == OpClass::SharedLoad || kind == OpClass::SharedStore || kind == OpClass::Matrix;
}

}  // namespace

void Counters::reset(uint32_t ops) {
  issued.assign(ops, 0);
  memory.assign(ops, MemoryCount{});
  touches = {};
}

void Counters::add(const Counters& other) {
  touches.read += other.touches.read;
  touches.written += other.touches.written;
  for (size_t i = 0; i < issued.size(); ++i) {
    issued[i] += other.issued[i];
    accumulate(memory[i], other.memory[i]);
  }
}

uint32_t count_sectors(const uint64_t* addresses, uint32_t bytes, uint32_t mask) {
  uint64_t sectors[kLanes * 2];
  int count = 0;
  bool sorted = true;
  active_lanes(mask, [&](int lane) {
    // An aligned access of up to 32 bytes stays within one sector.
    const uint64_t sector = addresses[lane] / 32;
    if (count && sectors[count - 1] == sector) return;
    sorted &= !count || sectors[count - 1] < sector;
    sectors[count++] = sector;
    const uint64_t last = (addresses[lane] + bytes - 1) / 32;
    if (last != sector) sectors[count++] = last;
  });
  if (sorted) return static_cast<uint32_t>(count);
  std::sort(sectors, sectors + count);
  return static_cast<uint32_t>(std::unique(sectors, sectors + count) - sectors);
}

namespace {

// The most distinct units any bank has to serve for the lanes of one group.
uint32_t worst_bank(const uint64_t* addresses, uint32_t unit, uint32_t banks, uint32_t lanes) {
  uint32_t seen = 0;
  bool clash = false;
  uint64_t previous = ~uint64_t{0};
  active_lanes(lanes, [&](int lane) {
    const uint64_t word = addresses[lane] / unit;
    const uint32_t bank = 1u << (word & (banks - 1));
    clash |= (seen & bank) && word != previous;
    seen |= bank;
    previous = word;
  });
  if (!clash) return 1;
  uint32_t known[kLanes][kLanes];  // distinct units, by bank
  uint8_t depth[kLanes] = {};
  uint8_t worst = 1;
  active_lanes(lanes, [&](int lane) {
    const auto word = static_cast<uint32_t>(addresses[lane] / unit);
    const size_t bank = word & (banks - 1);
    uint8_t at = 0;
    while (at < depth[bank] && known[bank][at] != word) ++at;
    if (at < depth[bank]) return;
    known[bank][depth[bank]++] = word;
    worst = std::max(worst, depth[bank]);
  });
  return worst;
}

}  // namespace

Wavefronts count_wavefronts(const uint64_t* addresses, uint32_t bytes, uint32_t mask) {
  // Wide accesses are served by half (8 bytes) or quarter (16 bytes) warps, whose lanes then occupy
  // two or four neighbouring banks each.
  const uint32_t unit = std::clamp(bytes, 4u, 16u);
  const uint32_t group = 128 / unit;
  const uint32_t passes = bytes > 16 ? bytes / 16 : 1;
  Wavefronts total;
  for (uint32_t first = 0; first < kLanes; first += group) {
    const uint32_t lanes = mask & (group == 32 ? kAllLanes : ((1u << group) - 1) << first);
    if (!lanes) continue;
    total.count += worst_bank(addresses, unit, group, lanes) * passes;
    total.minimum += passes;
  }
  return total;
}

namespace {

struct Totals {
  uint64_t instructions = 0;
  std::array<uint64_t, kOpClasses> issued{};
  std::array<MemoryCount, kOpClasses> memory{};
  std::map<std::pair<std::string, int>, LineCount> lines;
};

Totals sum_up(const LaunchReport& report) {
  Totals totals;
  for (const auto& code : report.program->codes) {
    for (size_t pc = 0; pc < code->ops.size(); ++pc) {
      const uint64_t issued = report.counters.issued[code->first_counter + pc];
      if (!issued) continue;
      const OpClass kind = code->ops[pc].kind;
      const MemoryCount& memory = report.counters.memory[code->first_counter + pc];
      totals.instructions += issued;
      totals.issued[static_cast<size_t>(kind)] += issued;
      accumulate(totals.memory[static_cast<size_t>(kind)], memory);
      const SourceLocation& location = code->sources[pc].location;
      LineCount& line = totals.lines[{report.program->file_name(location.file), location.line}];
      line.issued += issued;
      if (is_shared(kind)) accumulate(line.memory, memory);
    }
  }
  return totals;
}

MemoryCount memory_of(const Totals& totals, std::initializer_list<OpClass> kinds) {
  MemoryCount sum;
  for (const OpClass kind : kinds) accumulate(sum, totals.memory[static_cast<size_t>(kind)]);
  return sum;
}

std::string memory_report(const Totals& totals) {
  const auto part = [&](const char* name, std::initializer_list<OpClass> kinds, const char* unit) {
    return fmt::format(",\"{}\":{}", name, memory_json(memory_of(totals, kinds), unit));
  };
  return part("global_load", {OpClass::GlobalLoad, OpClass::AsyncCopy}, "sectors") +
         part("global_store", {OpClass::GlobalStore}, "sectors") +
         part("generic", {OpClass::Generic}, "sectors") +
         part("local", {OpClass::Local}, "sectors") + part("atomic", {OpClass::Atomic}, "sectors") +
         part("shared", {OpClass::SharedLoad, OpClass::SharedStore, OpClass::Matrix}, "wavefronts");
}

std::string class_report(const Totals& totals) {
  std::string text;
  for (size_t i = 0; i < totals.issued.size(); ++i)
    if (totals.issued[i])
      text += fmt::format("{}\"{}\":{}", text.empty() ? "" : ",", kClassNames[i], totals.issued[i]);
  return text;
}

std::string line_report(const Totals& totals) {
  std::string text;
  for (const auto& [where, count] : totals.lines)
    text += fmt::format(
        "{}{{\"file\":{},\"line\":{},\"issued\":{},\"wavefronts\":{},"
        "\"wavefronts_minimum\":{}}}",
        text.empty() ? "" : ",", json_string(where.first), where.second, count.issued,
        count.memory.units, count.memory.minimum);
  return text;
}

}  // namespace

std::string report_json(const LaunchReport& report) {
  const Totals totals = sum_up(report);
  const FirstTouches& touches = report.counters.touches;
  return fmt::format(
      "{{\"kernel\":{},\"grid\":[{},{},{}],\"block\":[{},{},{}],\"dynamic_shared\":{},"
      "\"warp_instructions\":{},\"classes\":{{{}}}{},\"unique_bytes_read\":{},"
      "\"unique_bytes_written\":{},\"lines\":[{}]}}",
      json_string(report.kernel), report.grid[0], report.grid[1], report.grid[2], report.block[0],
      report.block[1], report.block[2], report.dynamic_shared, totals.instructions,
      class_report(totals), memory_report(totals), touches.read * DeviceMemory::kCellBytes,
      touches.written * DeviceMemory::kCellBytes, line_report(totals));
}

}  // namespace linnet::vgpu
