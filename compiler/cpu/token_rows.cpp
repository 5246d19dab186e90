#include "compiler/cpu/token_rows.h"

namespace linnet::cpu {

using namespace chunk;
using mlir::Value;

Value TokenRows::start(const Bound& at) {
  return e_.at(at.pointer, e_.mul(first_, at.step), e_.type_of(at.storage));
}

Value TokenRows::is_part() {
  return e_.builder().create<mlir::arith::CmpIOp>(e_.loc(), mlir::arith::CmpIPredicate::slt, valid_,
                                                  e_.i64(chunk_));
}

// The caller's memory, or a tile in its format for a chunk that is not full.
Buffer TokenRows::place(Value tile, const Bound& at) {
  Buffer copy = scratch_.place(tile);
  Value part = is_part();
  return {e_.select(part, copy.pointer, start(at)),      copy.rows, copy.columns, copy.stride,
          e_.select(part, e_.i64(copy.stride), at.step), at.storage};
}

// One token's row of vectors, which needs no copy.
bool TokenRows::is_whole_row(Value value, Precision storage) const {
  Tile type = tile_of(value);
  return chunk_ == 1 && storage == Precision::f32 && type.getRank() == 2 &&
         type.getDimSize(1) % e_.lanes() == 0;
}

Buffer TokenRows::load(InputOp input, const Bound& from, bool in_place) {
  if (in_place) {
    e_.when(is_part(), [&] {
      tile_ops_.copy_rows(start(from), from.step, from.storage, scratch_.place(input), valid_);
    });
    return place(input, from);
  }
  if (is_whole_row(input, from.storage)) return scratch_.shaped(start(from), tile_of(input));
  Buffer buffer = scratch_.place(input);
  if (tile_of(input).getRank() == 1)
    tile_ops_.load_column(start(from), from.step, from.storage, buffer, valid_);
  else
    tile_ops_.load_rows(start(from), from.step, from.storage, buffer, valid_);
  return buffer;
}

void TokenRows::store(Buffer from, Value value, const Bound& to) {
  if (tile_of(value).getRank() == 1)
    tile_ops_.store_column(from, start(to), to.step, to.storage, valid_);
  else
    tile_ops_.store_rows(from, start(to), to.step, to.storage, valid_);
}

void TokenRows::finish(Value value, const Bound& to) {
  e_.when(is_part(), [&] {
    tile_ops_.copy_rows_back(scratch_.place(value), start(to), to.step, to.storage, valid_);
  });
}

}  // namespace linnet::cpu
