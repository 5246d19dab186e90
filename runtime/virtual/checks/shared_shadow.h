// Remembers who read and wrote each byte of a CTA's shared memory since the last barrier.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checks/hazard.h"

namespace linnet::vgpu {

// Two accesses of different warps, one of them a write, are a race unless a barrier orders them.
// Order is tracked with vector clocks: `clocks` of a warp says up to which of every other warp's
// steps its own step comes later. Full-CTA barriers start a new generation, which makes the usual
// kernels cheap: clocks are consulted only when a cell is shared within one generation.
class SharedShadow {
 public:
  // Memory is watched in cells of 16 bytes, with a bit for each byte.
  static constexpr uint32_t kCellBytes = 16;

  void reset(uint32_t bytes, uint32_t warps);
  void next_generation() { ++generation_; }

  // The accesses must lie within the memory.
  std::optional<Hazard> access(Access kind, uint32_t address, uint32_t bytes, uint32_t warp,
                               const std::vector<uint32_t>& clocks);
  // The lower half of `access`: bytes of one cell, as a mask.
  std::optional<Hazard> access_cell(Access kind, uint32_t cell, uint32_t bytes, uint32_t warp,
                                    const std::vector<uint32_t>& clocks) {
    if (access_alone(kind, cell, bytes, warp, clocks[warp])) return std::nullopt;
    return access_shared(kind, cell, bytes, warp, clocks);
  }
  // Records a read of data or a write when no other warp has touched the cell in a way that could
  // conflict since the last full barrier: nearly every access of a correct kernel.
  bool access_alone(Access kind, uint32_t index, uint32_t bytes, uint32_t warp, uint32_t step) {
    Cell& cell = cells_[index];
    const uint32_t me = 1u << warp;
    if (cell.generation != generation_) {
      cell.generation = generation_;
      cell.readers = cell.writers = cell.atomics = 0;
    }
    const uint32_t writers = cell.writers | cell.atomics;
    const size_t note = warp * cells_.size() + index;
    if ((cell.in_flight & bytes) || (writers & ~me)) return false;
    if (kind == Access::Read) {
      if ((cell.written & bytes) != bytes) return false;
      write_note(reads_[note], bytes, step, cell.readers & me);
      cell.readers |= me;
      return true;
    }
    if (kind == Access::Atomic || (cell.readers & ~me)) return false;
    write_note(writes_[note], bytes, step, writers & me);
    cell.writers |= me;
    cell.written = static_cast<uint16_t>(cell.written | bytes);
    return true;
  }
  // By another block of the cluster: false when it reads bytes nobody wrote.
  bool access_remote(Access kind, uint32_t address, uint32_t bytes);
  // cp.async destinations: in flight from issue until the wait.
  std::optional<Hazard> begin_copy(uint32_t address, uint32_t bytes, uint32_t warp,
                                   const std::vector<uint32_t>& clocks);
  std::optional<Hazard> end_copy(uint32_t address, uint32_t bytes, uint32_t warp,
                                 const std::vector<uint32_t>& clocks);

 private:
  struct Cell {
    uint32_t generation = 0;
    uint32_t readers = 0;  // warps, in this generation
    uint32_t writers = 0;
    uint32_t atomics = 0;
    uint16_t written = 0;    // bytes that hold data
    uint16_t in_flight = 0;  // bytes that a copy will overwrite
  };
  // The last access of one warp to one cell.
  struct Note {
    uint32_t step = 0;
    uint32_t bytes = 0;
  };

  std::optional<Hazard> access_shared(Access kind, uint32_t index, uint32_t bytes, uint32_t warp,
                                      const std::vector<uint32_t>& clocks);
  bool unordered(const std::vector<Note>& notes, uint32_t cell, uint32_t others, uint32_t bytes,
                 const std::vector<uint32_t>& clocks, uint32_t& who, uint32_t& which) const;
  static void write_note(Note& note, uint32_t bytes, uint32_t step, bool known) {
    if (known && note.step == step)
      note.bytes |= bytes;
    else
      note = {step, bytes};
  }

  uint32_t generation_ = 1;
  std::vector<Cell> cells_;
  std::vector<Note> reads_;   // [warp][cell]
  std::vector<Note> writes_;  // the same for writes and atomics
};

}  // namespace linnet::vgpu
