#include "compiler/cpu/matrix_unit.h"

namespace linnet::cpu {

using mlir::Value;
namespace arith = mlir::arith;
namespace LLVM = mlir::LLVM;

namespace {

constexpr int64_t kLeft = 4;   // tiles 4 and 5 hold the left operand, ...
constexpr int64_t kRight = 6;  // ... 6 and 7 the right one, 0 to 3 sums

}  // namespace

void MatrixUnit::call(llvm::StringRef name, llvm::ArrayRef<Value> operands) {
  e_.builder().create<LLVM::CallIntrinsicOp>(e_.loc(), mlir::TypeRange(),
                                             e_.builder().getStringAttr(name), operands);
}

Value MatrixUnit::tile_number(int64_t tile) {
  auto& b = e_.builder();
  return b.create<arith::ConstantOp>(e_.loc(), b.getI8IntegerAttr(static_cast<int8_t>(tile)));
}

// A tile between its register and the 32-bit numbers of a buffer.
void MatrixUnit::move(llvm::StringRef name, int64_t tile, Buffer buffer, Value row, Value column) {
  Value start = e_.at(buffer.pointer, e_.add(buffer.row_start(e_, row), column));
  call(name, {tile_number(tile), start, buffer.row_start(e_, e_.i64(4))});
}

// The layout of the instruction's operand: a palette, bytes of a row and rows of each tile.
void MatrixUnit::configure(Value memory) {
  auto& b = e_.builder();
  std::array<int8_t, 64> bytes{};
  bytes[0] = 1;
  for (int tile = 0; tile < 8; ++tile) {
    bytes[16 + 2 * tile] = 64;
    bytes[48 + tile] = kTile;
  }
  auto type = mlir::VectorType::get(64, b.getI8Type());
  Value config = b.create<arith::ConstantOp>(
      e_.loc(), mlir::DenseElementsAttr::get(type, llvm::ArrayRef<int8_t>(bytes)));
  e_.store(config, memory);
  call("llvm.x86.ldtilecfg", {memory});
}

void MatrixUnit::release() { call("llvm.x86.tilerelease", {}); }

// 32 bf16: those of `low`, then those of `high`.
Value MatrixUnit::narrow(Value low, Value high) {
  auto& b = e_.builder();
  auto type = mlir::VectorType::get(2 * e_.lanes(), b.getBF16Type());
  return b
      .create<LLVM::CallIntrinsicOp>(e_.loc(), type,
                                     b.getStringAttr("llvm.x86.avx512bf16.cvtne2ps2bf16.512"),
                                     mlir::ValueRange{high, low})
      .getResult(0);
}

Value MatrixUnit::interleave(Value halves) {
  llvm::SmallVector<int64_t> order;
  for (int64_t i = 0; i < e_.lanes(); ++i) order.append({i, i + e_.lanes()});
  return e_.builder().create<mlir::vector::ShuffleOp>(e_.loc(), halves, halves, order);
}

Value MatrixUnit::inverse(Value x) {
  auto& b = e_.builder();
  Value all = b.create<arith::ConstantOp>(e_.loc(), b.getI16IntegerAttr(-1));
  return b
      .create<LLVM::CallIntrinsicOp>(e_.loc(), e_.vector_type(),
                                     b.getStringAttr("llvm.x86.avx512.rcp14.ps.512"),
                                     mlir::ValueRange{x, x, all})
      .getResult(0);
}

void MatrixUnit::pack_row(Values vectors, int64_t columns, Buffer to, Value row) {
  size_t whole = columns / e_.lanes();
  if (whole < vectors.size())
    vectors[whole] = e_.select(e_.columns_up_to(e_.i64(0), e_.i64(columns % e_.lanes()), true),
                               vectors[whole], e_.splat(0.f));
  vectors.resize(2 * to.columns / e_.lanes(), e_.splat(0.f));
  for (int64_t i = 0; i < to.columns; i += kTile)
    e_.store(narrow(vectors[2 * i / kTile], vectors[2 * i / kTile + 1]),
             e_.at(to.pointer, e_.add(e_.mul(row, to.stride), i)));
}

Values MatrixUnit::read_row(const Rows& tile, Value row) {
  Values vectors;
  for (int64_t column = 0; column < tile.columns; column += e_.lanes()) {
    Value x = tile.from(row, 1, e_.i64(column))[0];
    if (tile.negate) x = e_.builder().create<arith::NegFOp>(e_.loc(), x);
    vectors.push_back(x);
  }
  return vectors;
}

// All are read before any is written, so that what they read alike is read once.
void MatrixUnit::pack_along_rows(llvm::ArrayRef<Rows> tiles) {
  e_.loop(e_.i64(0), e_.i64(tiles.front().to.rows), 1, [&](Value row) {
    std::vector<Values> vectors;
    for (const Rows& tile : tiles) vectors.push_back(read_row(tile, row));
    for (const auto& [tile, read] : llvm::zip(tiles, vectors))
      pack_row(read, tile.columns, tile.to, row);
  });
}

void MatrixUnit::pack_across_rows(const Reader& from, Value first, int64_t rows, Buffer to,
                                  bool negate) {
  constexpr int64_t kTogether = 4;  // pairs of rows in one turn
  auto pairs = [&](Value row, int64_t count) {
    e_.loop(e_.i64(0), e_.i64(to.stride), e_.lanes(), [&](Value column) {
      Values x = from(row, count, column);
      if (count % 2) x.push_back(e_.splat(0.f));
      for (Value& value : x)
        if (negate) value = e_.builder().create<arith::NegFOp>(e_.loc(), value);
      Value start = e_.builder().create<arith::ShRUIOp>(e_.loc(), row, e_.i64(1));
      for (size_t i = 0; i < x.size(); i += 2)
        e_.store(
            interleave(narrow(x[i], x[i + 1])),
            e_.at(to.pointer,
                  e_.add(e_.mul(e_.add(start, static_cast<int64_t>(i / 2)), to.stride), column)));
    });
  };
  int64_t whole = rows / (2 * kTogether) * (2 * kTogether);
  e_.loop(e_.i64(0), e_.i64(whole), 2 * kTogether,
          [&](Value i) { pairs(e_.add(first, i), 2 * kTogether); });
  if (whole < rows) pairs(e_.add(first, whole), rows - whole);
}

void MatrixUnit::pack_sums(const Block& block, const Values& sums, Buffer to) {
  Value first = e_.builder().create<arith::ShRUIOp>(e_.loc(), block.first_row, e_.i64(1));
  for (int64_t i = 0; i < block.rows; i += 2)
    for (int64_t v = 0; v < block.vectors; ++v) {
      Value low = sums[i * block.vectors + v], high = sums[(i + 1) * block.vectors + v];
      Value at = e_.add(e_.mul(e_.add(first, i / 2), to.stride), block.first_column);
      e_.store(interleave(narrow(low, high)), e_.at(to.pointer, e_.add(at, v * e_.lanes())));
    }
}

void MatrixUnit::clear_beyond(int64_t rows, Buffer to) {
  e_.loop(e_.i64((rows + 1) / 2 * to.stride), e_.i64(to.rows * to.stride), e_.lanes(),
          [&](Value at) { e_.store(e_.splat(0.f), e_.at(to.pointer, at)); });
}

void MatrixUnit::tiles(const Product& p, Value row, Value column, int64_t high, int64_t wide,
                       std::pair<int64_t, int64_t> depth) {
  auto each = [&](auto body) {
    for (int64_t i = 0; i < high; ++i)
      for (int64_t j = 0; j < wide; ++j)
        body(i * wide + j, e_.add(row, i * kTile), e_.add(column, j * kTile));
  };
  each([&](int64_t sum, Value i, Value j) {
    if (p.accumulate)
      move("llvm.x86.tileloadd64", sum, p.to, i, j);
    else
      call("llvm.x86.tilezero", {tile_number(sum)});
  });
  for (int64_t k = depth.first; k < depth.second; ++k) {
    Value at = e_.i64(k * kTile);
    for (int64_t i = 0; i < high; ++i)
      move("llvm.x86.tileloadd64", kLeft + i, p.left, e_.add(row, i * kTile), at);
    for (int64_t j = 0; j < wide; ++j) {
      int64_t tile = kRight + j % 2;
      move("llvm.x86.tileloadd64", tile, p.right, at, e_.add(column, j * kTile));
      for (int64_t i = 0; i < high; ++i)
        call("llvm.x86.tdpbf16ps",
             {tile_number(i * wide + j), tile_number(kLeft + i), tile_number(tile)});
    }
  }
  each([&](int64_t sum, Value i, Value j) { move("llvm.x86.tilestored64", sum, p.to, i, j); });
}

// Two tiles of rows by two of columns, or one by four: the four sums hide each other's latency.
void MatrixUnit::multiply_by_tiles(const Product& p) {
  int64_t rows = p.to.rows / kTile, columns = (p.to.columns + kTile - 1) / kTile;
  auto across = [&](Value row, int64_t high, std::pair<int64_t, int64_t> depth) {
    if (p.before) p.before(row, high * kTile);
    int64_t wide = std::min(high == 2 ? int64_t(2) : int64_t(4), columns);
    int64_t whole = columns / wide * wide, turns = columns / wide;
    e_.loop(e_.i64(0), e_.i64(whole * kTile), wide * kTile, [&](Value column) {
      if (p.during) {
        Value before = e_.mul(e_.divide(row, high * kTile), turns);
        p.during(e_.add(before, e_.divide(column, wide * kTile)), rows / high * turns);
      }
      tiles(p, row, column, high, wide, depth);
    });
    if (whole < columns) tiles(p, row, e_.i64(whole * kTile), high, columns - whole, depth);
    if (p.after) p.after(row, high * kTile);
  };
  if (p.depth_of) {
    for (int64_t i = 0; i < rows; ++i) {
      auto [first, last] = p.depth_of(i * kTile, kTile);
      across(e_.i64(i * kTile), 1, {first / kDepth, (last + kDepth - 1) / kDepth});
    }
    return;
  }
  std::pair<int64_t, int64_t> all{0, p.left.columns / kTile};
  int64_t even = rows / 2 * 2;
  if (even > 0)
    e_.loop(e_.i64(0), e_.i64(even * kTile), 2 * kTile, [&](Value row) { across(row, 2, all); });
  if (even < rows) across(e_.i64(even * kTile), 1, all);
}

Value MatrixUnit::pairs(Value numbers) {
  auto type = mlir::VectorType::get(2 * e_.lanes(), e_.builder().getBF16Type());
  return e_.builder().create<mlir::vector::BitCastOp>(e_.loc(), type, numbers);
}

// One pair of the left times a vector of pairs of the right at a time.
void MatrixUnit::dots(const Product& p, const Block& block) {
  auto number = [&](const Buffer& buffer, Value row, Value column) {
    return e_.at(buffer.pointer, e_.add(buffer.row_start(e_, row), column));
  };
  auto row = [&](int64_t i) { return e_.add(block.first_row, i); };
  auto column = [&](int64_t v) { return e_.add(block.first_column, v * e_.lanes()); };
  auto [first, last] = block.known_row && p.depth_of ? p.depth_of(*block.known_row, block.rows)
                                                     : std::pair(int64_t(0), p.depth);
  int64_t from = first / 2, to = (last + 1) / 2;

  Values sums;
  if (p.base)
    sums = p.base(block);
  else
    for (int64_t i = 0; i < block.rows; ++i)
      for (int64_t v = 0; v < block.vectors; ++v)
        sums.push_back(p.accumulate ? e_.load_vector(number(p.to, row(i), column(v)))
                                    : e_.splat(0.f));
  auto step = [&](Value k, Values so_far) {
    if (block.at_step.call) block.at_step.call(k);
    Values right;
    for (int64_t v = 0; v < block.vectors; ++v)
      right.push_back(pairs(e_.load_vector(number(p.right, k, column(v)))));
    for (int64_t i = 0; i < block.rows; ++i) {
      Value left = pairs(e_.splat(e_.load(number(p.left, row(i), k))));
      for (int64_t v = 0; v < block.vectors; ++v) {
        Value& sum = so_far[i * block.vectors + v];
        sum = e_.builder()
                  .create<LLVM::CallIntrinsicOp>(
                      e_.loc(), e_.vector_type(),
                      e_.builder().getStringAttr("llvm.x86.avx512bf16.dpbf16ps.512"),
                      mlir::ValueRange{sum, left, right[v]})
                  .getResult(0);
      }
    }
    return so_far;
  };
  sums = e_.loop_by_two(from, to, sums, step);

  for (int64_t i = 0; i < block.rows; ++i)
    for (int64_t v = 0; v < block.vectors; ++v)
      e_.store(sums[i * block.vectors + v], number(p.to, row(i), column(v)));
  if (p.made) p.made(block, sums);
}

// Sixteen sums hide each other's latency, and take half of the registers.
void MatrixUnit::multiply_by_dots(const Product& p) {
  constexpr int64_t kRows = 8;
  int64_t vectors = (p.to.columns + e_.lanes() - 1) / e_.lanes();
  int64_t wide = std::min<int64_t>(2, vectors), whole = vectors / wide * wide;
  int64_t turns = vectors / wide, width = wide * e_.lanes();
  auto across = [&](Value row, std::optional<int64_t> known_row) {
    e_.loop(e_.i64(0), e_.i64(turns * width), width, [&](Value column) {
      Block here{row, column, kRows, wide, known_row};
      if (p.during) {
        Value before = e_.mul(e_.divide(row, kRows), turns);
        here.at_step =
            p.during(e_.add(before, e_.divide(column, width)), p.to.rows / kRows * turns);
      }
      dots(p, here);
    });
    if (whole < vectors)
      dots(p, {row, e_.i64(whole * e_.lanes()), kRows, vectors - whole, known_row});
  };
  if (p.depth_of)
    for (int64_t i = 0; i < p.to.rows; i += kRows) across(e_.i64(i), i);
  else
    e_.loop(e_.i64(0), e_.i64(p.to.rows), kRows, [&](Value row) { across(row, std::nullopt); });
}

}  // namespace linnet::cpu
