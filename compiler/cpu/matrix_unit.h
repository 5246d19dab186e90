// Products of tiles in bf16 with sums in f32 on what the processor has for them: a matrix unit
// (AMX), or dot products of pairs (AVX512_BF16), whose sums stay in registers.
#pragma once

#include "compiler/cpu/blocks.h"
#include "compiler/cpu/target.h"

namespace linnet::cpu {

// Operands lie packed: two bf16 along the depth make one 32-bit number, the depth is filled up with
// zeros to whole tiles. The left is [rows][depth / 2], the right [depth / 2][columns]. Either is
// the other's transpose, 32-bit number by 32-bit number, which is how transposed operands are made.
class MatrixUnit {
 public:
  static constexpr int64_t kTile = 16;   // rows of a tile, and 32-bit numbers of its rows
  static constexpr int64_t kDepth = 32;  // what one instruction sums over

  MatrixUnit(Emitter& emitter, NarrowUnit unit) : e_(emitter), unit_(unit) {}
  bool is_there() const { return unit_ != NarrowUnit::none; }
  bool has_tiles() const { return unit_ == NarrowUnit::tiles; }

  // 32-bit numbers that `depth` takes in packed form.
  static int64_t packed_depth(int64_t depth) { return (depth + kDepth - 1) / kDepth * kTile; }

  // All tiles of full size; `memory` takes 16 numbers. To be called once, before products by tiles.
  void configure(mlir::Value memory);
  void release();

  // What is to be packed: one vector of each of some rows, from a column on.
  using Reader = std::function<Values(mlir::Value row, int64_t rows, mlir::Value column)>;
  // Neighbours of a row together: [n][depth] to [n][depth / 2].
  struct Rows {
    Reader from;
    int64_t columns;
    Buffer to;
    bool negate;
  };
  void pack_along_rows(llvm::ArrayRef<Rows> tiles);  // of as many rows
  // One row of that, all its vectors; columns from `columns` on count as zero.
  Values read_row(const Rows& tile, mlir::Value row);
  void pack_row(Values vectors, int64_t columns, Buffer to, mlir::Value row);
  // Neighbours of a column together: [depth][n] to [depth / 2][n]; `rows` of the depth from `first`
  // on, the last of which may be odd only at the end.
  void pack_across_rows(const Reader& from, mlir::Value first, int64_t rows, Buffer to,
                        bool negate);
  // What is beyond the depth in such a packed tile.
  void clear_beyond(int64_t rows, Buffer to);

  // 1 / x to 14 bits.
  mlir::Value inverse(mlir::Value x);

  // A block of sums in registers, as pack_across_rows has it. Its first row is even.
  void pack_sums(const Block& block, const Values& sums, Buffer to);

  // to = left right, or to += left right. The rows of `to` are a multiple of kTile.
  struct Product {
    Buffer left, right, to;
    int64_t depth;
    bool accumulate;
    // What of the depth some rows need, first and last + 1; all where not said.
    std::function<std::pair<int64_t, int64_t>(int64_t first_row, int64_t rows)> depth_of = {};
    // Tiles: called before and after those of some rows are made.
    std::function<void(mlir::Value first_row, int64_t rows)> before = {}, after = {};
    // Dots: what a block's sums start from instead of what is in `to`; and what else they are for.
    std::function<Values(const Block&)> base = {};
    std::function<void(const Block&, const Values&)> made = {};
    TurnHook during = {};  // in every turn
  };
  void multiply(const Product& product) {
    has_tiles() ? multiply_by_tiles(product) : multiply_by_dots(product);
  }

 private:
  void multiply_by_tiles(const Product& product);
  void multiply_by_dots(const Product& product);
  void dots(const Product& product, const Block& block);
  void call(llvm::StringRef name, llvm::ArrayRef<mlir::Value> operands);
  void move(llvm::StringRef name, int64_t tile, Buffer buffer, mlir::Value row, mlir::Value column);
  mlir::Value tile_number(int64_t tile);
  mlir::Value narrow(mlir::Value low, mlir::Value high);
  mlir::Value interleave(mlir::Value halves);
  mlir::Value pairs(mlir::Value numbers);  // 32-bit numbers as bf16
  void tiles(const Product& p, mlir::Value row, mlir::Value column, int64_t high, int64_t wide,
             std::pair<int64_t, int64_t> depth);

  Emitter& e_;
  NarrowUnit unit_;
};

}  // namespace linnet::cpu
