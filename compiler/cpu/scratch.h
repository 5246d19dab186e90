// A kernel's scratch memory: tiles of one turn, and other forms of them that products want.
#pragma once

#include <map>

#include "compiler/cpu/blocks.h"

namespace linnet::cpu {

// What a tile is in memory as. Forms of the matrix unit are packed, with flags.
enum Form : int {
  kItself,
  kTransposed,
  kSteps,  // exp of a gate
  kRows,   // of scores under decay: rows decayed from the start of their block
  kLost,   // columns the products leave out, ...
  kLast,   // ... and the running products of a block's gates that tell
  kPacked = 8,
  kAcross = 16,  // pairs of rows, not of columns
  kMinus = 32,
  kFlipped = 64,   // the packed numbers transposed
  kColumns = 128,  // times 1, 2, ...: columns decayed to the start of that block, and back to it
};

class Scratch {
 public:
  explicit Scratch(Emitter& emitter) : e_(emitter) {}
  void start(mlir::Value base) { base_ = base; }
  int64_t used() const { return used_; }
  mlir::Value at(int64_t offset) { return e_.at(base_, e_.i64(offset)); }

  int64_t padded(int64_t columns) const {
    return (columns + e_.lanes() - 1) / e_.lanes() * e_.lanes();
  }
  Buffer shaped(mlir::Value pointer, chunk::Tile type) const {
    if (type.getRank() == 2)
      return {pointer, type.getDimSize(0), type.getDimSize(1), padded(type.getDimSize(1))};
    int64_t columns = type.getRank() == 0 ? 1 : type.getDimSize(0);
    return {pointer, 1, columns, padded(columns)};
  }
  int64_t floats_of(chunk::Tile type) const {
    Buffer shape = shaped({}, type);
    return shape.rows * shape.stride;
  }

  // New memory.
  mlir::Value take(int64_t floats) { return at(std::exchange(used_, used_ + apart(floats))); }
  Buffer take(chunk::Tile type) { return shaped(take(floats_of(type)), type); }
  // Memory of a form of a tile, the same in every turn and loop.
  mlir::Value place(mlir::Value tile, int form, int64_t floats) {
    auto [it, fresh] = offsets_.try_emplace({tile.getAsOpaquePointer(), form}, used_);
    if (fresh) used_ += apart(floats);
    return at(it->second);
  }
  Buffer place(mlir::Value tile) {
    chunk::Tile type = chunk::tile_of(tile);
    return shaped(place(tile, kItself, floats_of(type)), type);
  }

  // A form of a tile, made by `make` where it is first asked for; `shape` lacks the pointer.
  template <class Make>
  Buffer form_of(mlir::Value tile, int form, Buffer shape, Make make) {
    auto [it, fresh] = forms_.try_emplace({tile.getAsOpaquePointer(), form}, shape);
    if (fresh) {
      it->second.pointer = place(tile, form, shape.rows * shape.stride);
      make(it->second);
    }
    return it->second;
  }
  Buffer form_of(mlir::Value tile, int form) const {
    return forms_.at({tile.getAsOpaquePointer(), form});
  }
  // Forms are made anew in the next loop.
  void forget_forms() { forms_.clear(); }

 private:
  // Tiles are pages long: a line between them keeps loads from one from waiting for stores to the
  // same place of another's page, which the processor takes for the same place.
  static int64_t apart(int64_t floats) {
    constexpr int64_t kLine = 16;
    return floats + kLine;
  }

  using Key = std::pair<const void*, int>;
  Emitter& e_;
  mlir::Value base_;
  int64_t used_ = 0;
  std::map<Key, int64_t> offsets_;
  std::map<Key, Buffer> forms_;
};

}  // namespace linnet::cpu
