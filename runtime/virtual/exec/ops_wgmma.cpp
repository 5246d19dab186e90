// wgmma: products of four warps on tiles in shared memory. A warp computes its own 16 of the 64
// rows; results land where the program waits for them.
#include <fmt/format.h>

#include <algorithm>

#include "exec/cta.h"
#include "exec/families.h"
#include "exec/memory_access.h"
#include "exec/mma_arithmetic.h"
#include "exec/mma_formats.h"
#include "exec/mma_fragments.h"
#include "exec/report.h"
#include "exec/swizzle.h"

namespace linnet::vgpu {
namespace {

enum Flags : uint8_t {
  kRegistersA = 1,
  kNegateA = 2,
  kNegateB = 4,
  kTransposedA = 8,
  kTransposedB = 16,
  kHalfResult = 32
};

// A matrix descriptor: where rows of 16 bytes of a tile lie.
struct Tile {
  uint32_t start, leading, stride;  // bytes
  uint32_t span;                    // of the swizzle: 0, 32, 64 or 128

  explicit Tile(uint64_t bits)
      : start(static_cast<uint32_t>(bits & 0x3fff) << 4),
        leading(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4) {
    constexpr uint32_t spans[] = {0, 128, 64, 32};
    span = spans[bits >> 62];
  }

  // The address of element `k` of row (of A) or column (of B) `outer`.
  uint32_t address(uint32_t outer, uint32_t k, uint32_t element, bool transposed) const {
    uint32_t offset = 0;
    if (!transposed) {
      const uint32_t byte = k * element;
      offset = outer / 8 * stride;
      offset += span ? outer % 8 * span + byte : outer % 8 * 16 + byte / 16 * leading + byte % 16;
    } else if (span) {
      const uint32_t pieces = span / 16;
      offset = outer % 8 * element + outer / 8 % pieces * 16 + outer / (8 * pieces) * leading +
               k % 8 * span + k / 8 * stride;
    } else {
      offset = outer % 8 * element + outer / 8 * stride + k % 8 * 16 + k / 8 * leading;
    }
    return swizzled(start + offset, span);
  }
};

// Reads elements of a tile; every 16 bytes are checked once a row.
template <class Format>
class TileReader {
 public:
  TileReader(Warp& warp, const Tile& tile, bool transposed, bool negated)
      : warp_(warp), tile_(tile), transposed_(transposed), sign_(negated ? -1.0f : 1.0f) {}

  float operator()(uint32_t outer, uint32_t k) {
    constexpr uint32_t kBytes = sizeof(typename Format::Element);
    const uint32_t at = tile_.address(outer, k, kBytes, transposed_);
    check(at / 16 * 16);
    typename Format::Element bits;
    std::memcpy(&bits, warp_.cta.shared.data.get() + at, kBytes);
    return sign_ * Format::value(bits);
  }

 private:
  void check(uint32_t piece) {
    if (piece == checked_) return;
    checked_ = piece;
    const uint32_t size = warp_.launch.shared_bytes();
    if (piece > size || size - piece < 16)
      fault(warp_, FindingKind::SharedBounds, 0, piece,
            fmt::format("wgmma reads 16 bytes at offset {} of {} bytes of shared memory", piece,
                        size));
    if (!warp_.launch.settings.checks) return;
    if (auto hazard = warp_.cta.shadow.access(Access::Read, piece, 16, warp_.index, warp_.clock))
      report_shared_hazard(warp_, *hazard, 0, piece, Access::Read);
  }

  Warp& warp_;
  const Tile& tile_;
  bool transposed_;
  float sign_;
  uint32_t checked_ = ~0u;
};

uint64_t same_for_all(Warp& warp, Slot slot) {
  const uint64_t* values = warp.src<uint64_t>(slot);
  for (int lane = 1; lane < kLanes; ++lane)
    if (values[lane] != values[0])
      fault(warp, FindingKind::IllegalInstruction, lane, values[lane],
            "lanes of a warp give different matrix descriptors");
  return values[0];
}

// op.a, op.b: descriptors; op.c: whether to add to the accumulator; op.aux: columns / 8; the list
// has the accumulator and, when they are given, the registers of A.
template <class Format>
void multiply(Warp& warp, const Op& op, uint32_t mask) {
  if (mask != kAllLanes)
    fault(warp, FindingKind::BadSyncMask, std::countr_zero(mask), mask,
          fmt::format("executed by lanes {:#010x}: it needs the whole warp", mask));
  const bool half = op.flags & kHalfResult;
  const uint32_t per_block = half ? 2 : 4;
  const uint32_t* slots = warp.list(op);
  const bool adds = (warp.pred(op.c) & 1) != op.negate_c;
  MmaTile tile;
  tile.depth = 8 * Format::kPack;
  tile.smallest_exponent = Format::kSmallest;
  const auto depth = static_cast<uint32_t>(tile.depth);
  if (op.flags & kRegistersA) {
    const float sign = op.flags & kNegateA ? -1.0f : 1.0f;
    Fragments<typename Format::Element, Format::kPack>::read_a(
        warp, slots + per_block * op.aux, 16, 4,
        [&](int row, int k, typename Format::Element bits) {
          tile.a_at(row, k) = sign * Format::value(bits);
        });
  } else {
    const Tile rows(same_for_all(warp, op.a));
    TileReader<Format> read(warp, rows, op.flags & kTransposedA, op.flags & kNegateA);
    const uint32_t first = warp.index % 4 * 16;
    for (uint32_t row = 0; row < 16; ++row)
      for (uint32_t k = 0; k < depth; ++k)
        tile.a_at(static_cast<int>(row), static_cast<int>(k)) = read(first + row, k);
  }
  find_exponents_a(tile);
  const Tile columns(same_for_all(warp, op.b));
  TileReader<Format> read(warp, columns, op.flags & kTransposedB, op.flags & kNegateB);
  for (uint32_t block = 0; block < op.aux; ++block) {
    for (uint32_t column = 0; column < 8; ++column)
      for (uint32_t k = 0; k < depth; ++k)
        tile.b_at(static_cast<int>(k), static_cast<int>(column)) = read(8 * block + column, k);
    find_exponents_b(tile);
    uint32_t* places[4];
    const uint32_t* addends[4];
    for (uint32_t i = 0; i < per_block; ++i) {
      places[i] = warp.dst<uint32_t>(slots[per_block * block + i]);
      addends[i] = warp.wgmma.value_of(places[i]);
    }
    if (adds)
      read_addend(addends, half, tile);
    else
      std::memset(tile.c, 0, sizeof tile.c);
    if (warp.launch.settings.mma == MmaMode::Exact)
      mma_exact(tile);
    else
      mma_hardware(tile, rounding_of<Format>(*warp.launch.profile));
    uint32_t* results[4];
    for (uint32_t i = 0; i < per_block; ++i) results[i] = warp.wgmma.result_of(places[i]).data();
    write_result(results, half, tile);
    // Who reads before the wait must not find the right answer by luck.
    for (uint32_t i = 0; i < per_block; ++i) std::fill_n(places[i], kLanes, kNanF32);
  }
}

void fence(Warp&, const Op&, uint32_t) {}
void commit(Warp& warp, const Op&, uint32_t) { warp.wgmma.commit(); }
void wait(Warp& warp, const Op& op, uint32_t) {
  warp.wgmma.wait(static_cast<uint64_t>(op.imm));
  ++warp.cta.progress;
}

int scale_flag(const OpBuilder& b, size_t i, int flag) {
  const auto value = static_cast<int64_t>(b.immediate(i));
  if (value != 1 && value != -1) b.fail("a factor must be 1 or -1");
  return value < 0 ? flag : 0;
}

int transpose_flag(const OpBuilder& b, size_t i, int flag) {
  if (b.immediate(i) > 1) b.fail("a transposition must be 0 or 1");
  return b.immediate(i) ? flag : 0;
}

void decode_product(OpBuilder& b) {
  const std::string_view shape = b.get("shape");
  int columns = 0;
  for (const char c : shape.substr(4, shape.find('k') - 4)) columns = columns * 10 + (c - '0');
  const Type type = b.type("atype");
  const bool half = b.type("dtype") == Type::F16, may_transpose = type != Type::TF32;
  const bool registers = b.operand(1).kind == OperandKind::Vector;
  const size_t transposes = may_transpose ? (registers ? 1 : 2) : 0;
  if (b.operands() != 6 + transposes) b.fail("wrong number of operands");
  b.op.kind = OpClass::Mma;
  b.op.aux = static_cast<uint16_t>(columns / 8);
  b.list_dst(b.operand(0), 4, static_cast<size_t>(columns / 8 * (half ? 2 : 4)));
  if (registers)
    b.list_src(b.operand(1), Type::B32, 4);
  else
    b.op.a = b.src(1, Type::B64);
  b.op.b = b.src(2, Type::B64);
  b.op.c = b.pred_src(b.operand(3), b.op.negate_c);
  int flags = (half ? kHalfResult : 0) | (registers ? kRegistersA : 0);
  flags |= scale_flag(b, 4, kNegateA) | scale_flag(b, 5, kNegateB);
  if (transposes == 2) flags |= transpose_flag(b, 6, kTransposedA);
  if (transposes) flags |= transpose_flag(b, 5 + transposes, kTransposedB);
  b.op.flags = static_cast<uint8_t>(flags);
  b.op.run = type == Type::F16    ? multiply<FromHalf>
             : type == Type::BF16 ? multiply<FromBfloat>
                                  : multiply<FromTf32>;
  const auto depth = static_cast<uint32_t>(type == Type::TF32 ? 8 : 16);
  b.use.flop = 2 * 16 * static_cast<uint32_t>(columns) * depth;  // of one of the four warps
  b.use.flop_as_bf16 = b.use.flop * (type == Type::TF32 ? 2 : 1);
}

void decode_wgmma(OpBuilder& b) {
  const std::string_view what = b.get("op");
  if (what == "mma_async") return decode_product(b);
  b.op.kind = OpClass::Fence;
  if (what == "wait_group") b.op.imm = static_cast<int64_t>(b.immediate(0));
  b.op.run = what == "fence" ? fence : what == "commit_group" ? commit : wait;
}

constexpr DecodeRow kRows[] = {{"wgmma", decode_wgmma}};

}  // namespace

std::span<const DecodeRow> wgmma_family() { return kRows; }

}  // namespace linnet::vgpu
