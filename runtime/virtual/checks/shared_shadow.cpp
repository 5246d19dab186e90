#include "checks/shared_shadow.h"

#include <algorithm>
#include <bit>

namespace linnet::vgpu {
namespace {

// Calls f(cell, byte mask) for each cell an access touches; the first hazard is the result.
template <class F>
std::optional<Hazard> for_cells(uint32_t address, uint32_t bytes, F f) {
  constexpr uint32_t kCell = SharedShadow::kCellBytes;
  std::optional<Hazard> first;
  for (uint32_t at = address, end = address + bytes; at < end;) {
    const uint32_t cell_end = std::min(end, at / kCell * kCell + kCell);
    const uint32_t mask = ((1u << (cell_end - at)) - 1) << (at % kCell);
    const auto hazard = f(at / kCell, mask);
    if (hazard && !first) first = hazard;
    at = cell_end;
  }
  return first;
}

}  // namespace

void SharedShadow::reset(uint32_t bytes, uint32_t warps) {
  generation_ = 1;
  const size_t cells = (bytes + kCellBytes - 1) / kCellBytes;
  cells_.assign(cells, Cell{});
  // Notes are read only after the cell's own bits say they were written: no need to clear them.
  reads_.resize(cells * warps);
  writes_.resize(cells * warps);
}

bool SharedShadow::unordered(const std::vector<Note>& notes, uint32_t cell, uint32_t others,
                             uint32_t bytes, const std::vector<uint32_t>& clocks, uint32_t& who,
                             uint32_t& which) const {
  for (; others; others &= others - 1) {
    const auto warp = static_cast<uint32_t>(std::countr_zero(others));
    const Note& note = notes[warp * cells_.size() + cell];
    if ((note.bytes & bytes) && note.step > clocks[warp]) {
      who = warp;
      which = note.bytes & bytes;
      return true;
    }
  }
  return false;
}

std::optional<Hazard> SharedShadow::access_shared(Access kind, uint32_t index, uint32_t bytes,
                                                  uint32_t warp,
                                                  const std::vector<uint32_t>& clocks) {
  Cell& cell = cells_[index];
  const uint32_t me = 1u << warp;
  std::optional<Hazard> hazard;
  if (cell.in_flight & bytes)
    hazard = Hazard{FindingKind::AsyncHazard, Access::Write, warp, cell.in_flight & bytes};
  if (kind != Access::Write && (cell.written & bytes) != bytes && !hazard)
    hazard = Hazard{FindingKind::Uninitialised, Access::Read, warp, bytes & ~cell.written};
  uint32_t rivals = cell.writers & ~me;
  if (kind != Access::Atomic) rivals |= cell.atomics & ~me;
  uint32_t who = 0;
  uint32_t which = 0;
  if (rivals && unordered(writes_, index, rivals, bytes, clocks, who, which))
    hazard = Hazard{FindingKind::SharedRace, Access::Write, who, which};
  if (kind != Access::Read && (cell.readers & ~me) &&
      unordered(reads_, index, cell.readers & ~me, bytes, clocks, who, which))
    hazard = Hazard{FindingKind::SharedRace, Access::Read, who, which};
  const uint32_t step = clocks[warp];
  const size_t note = warp * cells_.size() + index;
  if (kind == Access::Read) {
    write_note(reads_[note], bytes, step, cell.readers & me);
    cell.readers |= me;
  } else {
    write_note(writes_[note], bytes, step, (cell.writers | cell.atomics) & me);
    (kind == Access::Write ? cell.writers : cell.atomics) |= me;
    cell.written = static_cast<uint16_t>(cell.written | bytes);
  }
  return hazard;
}

std::optional<Hazard> SharedShadow::access(Access kind, uint32_t address, uint32_t bytes,
                                           uint32_t warp, const std::vector<uint32_t>& clocks) {
  return for_cells(address, bytes, [&](uint32_t cell, uint32_t mask) {
    return access_cell(kind, cell, mask, warp, clocks);
  });
}

bool SharedShadow::access_remote(Access kind, uint32_t address, uint32_t bytes) {
  return !for_cells(address, bytes, [&](uint32_t cell, uint32_t mask) -> std::optional<Hazard> {
    const bool known = (cells_[cell].written & mask) == mask;
    if (kind != Access::Read)
      cells_[cell].written = static_cast<uint16_t>(cells_[cell].written | mask);
    if (known || kind == Access::Write) return std::nullopt;
    return Hazard{FindingKind::Uninitialised, Access::Read, 0, mask};
  });
}

std::optional<Hazard> SharedShadow::begin_copy(uint32_t address, uint32_t bytes, uint32_t warp,
                                               const std::vector<uint32_t>& clocks) {
  return for_cells(address, bytes, [&](uint32_t cell, uint32_t mask) {
    const auto hazard = access_cell(Access::Write, cell, mask, warp, clocks);
    cells_[cell].in_flight = static_cast<uint16_t>(cells_[cell].in_flight | mask);
    return hazard;
  });
}

std::optional<Hazard> SharedShadow::end_copy(uint32_t address, uint32_t bytes, uint32_t warp,
                                             const std::vector<uint32_t>& clocks) {
  return for_cells(address, bytes, [&](uint32_t cell, uint32_t mask) {
    cells_[cell].in_flight = static_cast<uint16_t>(cells_[cell].in_flight & ~mask);
    return access_cell(Access::Write, cell, mask, warp, clocks);
  });
}

}  // namespace linnet::vgpu
