// mov with packing and unpacking, special registers, and conversions between address spaces.
#include <fmt/format.h>

#include <chrono>

#include "exec/cluster.h"
#include "exec/families.h"
#include "exec/pick.h"
#include "exec/report.h"

namespace linnet::vgpu {
namespace {

template <class T>
void move(Warp& warp, const Op& op, uint32_t mask) {
  const T* a = warp.src<T>(op.a);
  each_lane(warp.dst<T>(op.dst), mask, [=](int i) { return a[i]; });
}

void move_wide(Warp& warp, const Op& op, uint32_t mask) {
  const auto* a = warp.src<unsigned __int128>(op.a);
  auto* dst = warp.dst<unsigned __int128>(op.dst);
  active_lanes(mask, [=](int lane) { dst[lane] = a[lane]; });
}

void move_pred(Warp& warp, const Op& op, uint32_t mask) {
  warp.set_pred(op.dst, mask, warp.pred(op.a) ^ (op.negate_c ? kAllLanes : 0));
}

// {a, b, ...} -> d and back; parts are op.width bytes.
void pack(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* parts = warp.list(op);
  const size_t whole = size_t{op.width} * op.list_size;
  alignas(64) uint8_t packed[kLanes * 16];
  for (size_t part = 0; part < op.list_size; ++part) {
    const uint8_t* from = warp.src<uint8_t>(parts[part]);
    for (size_t lane = 0; lane < kLanes; ++lane)
      std::memcpy(packed + lane * whole + part * op.width, from + lane * op.width, op.width);
  }
  uint8_t* dst = warp.dst<uint8_t>(op.dst);
  active_lanes(mask, [&](int lane) {
    const size_t at = static_cast<size_t>(lane) * whole;
    std::memcpy(dst + at, packed + at, whole);
  });
}

void unpack(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* parts = warp.list(op);
  const size_t whole = size_t{op.width} * op.list_size;
  const uint8_t* from = warp.src<uint8_t>(op.a);
  for (size_t part = 0; part < op.list_size; ++part) {
    uint8_t* dst = warp.dst<uint8_t>(parts[part]);
    active_lanes(mask, [&](int lane) {
      const auto at = static_cast<size_t>(lane);
      std::memcpy(dst + at * op.width, from + at * whole + part * op.width, op.width);
    });
  }
}

// 32-bit registers packed into 64 bits and back: the pair every 64-bit address goes through.
void pack_words(Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t* low = warp.src<uint32_t>(warp.list(op)[0]);
  const uint32_t* high = warp.src<uint32_t>(warp.list(op)[1]);
  each_lane(warp.dst<uint64_t>(op.dst), mask,
            [=](int i) { return uint64_t{high[i]} << 32 | low[i]; });
}

void decode_pack(OpBuilder& b, const Operand& parts) {
  const int whole = type_bytes(b.type());
  const auto count = static_cast<int>(parts.elements.size());
  if (count < 2 || whole % count) b.fail("vector does not divide the register");
  b.op.width = static_cast<uint8_t>(whole / count);
  const Type part = whole / count == 8   ? Type::B64
                    : whole / count == 4 ? Type::B32
                    : whole / count == 2 ? Type::B16
                                         : Type::B8;
  if (b.operand(0).kind == OperandKind::Vector) {
    b.op.a = b.src(1, b.type());
    b.list_dst(parts, whole / count, parts.elements.size());
    b.op.run = unpack;
  } else {
    b.op.dst = b.dst(0, b.type());
    b.list_src(parts, part, parts.elements.size());
    b.op.run = whole == 8 && count == 2 ? pack_words : pack;
  }
}

bool decode_symbol_move(OpBuilder& b);
void special_op(OpBuilder& b, Op& op, std::string_view name, int bytes);

void decode_mov(OpBuilder& b) {
  b.op.kind = OpClass::Move;
  const Operand& to = b.operand(0);
  const Operand& from = b.operand(1);
  if (b.type() == Type::Pred) {
    b.op.dst = b.pred_dst(to);
    b.op.a = b.pred_src(from, b.op.negate_c);
    b.op.run = move_pred;
    return;
  }
  if (to.kind == OperandKind::Vector) return decode_pack(b, to);
  if (from.kind == OperandKind::Vector) return decode_pack(b, from);
  const int bytes = type_bytes(b.type());
  b.op.dst = b.dst(to, bytes);
  if (from.kind == OperandKind::Special) return special_op(b, b.op, from.text, bytes);
  if (from.kind == OperandKind::Symbol && decode_symbol_move(b)) return;
  b.op.a = b.src(from, b.type());
  b.op.run = bytes == 16 ? Handler(move_wide)
                         : pick_bits(bytes, []<class T>() -> Handler { return move<T>; });
}

// ---- Addresses known only at launch ----

template <class T>
void fill(Warp& warp, const Op& op, uint32_t mask, uint64_t value) {
  each_lane(warp.dst<T>(op.dst), mask, [=](int) { return static_cast<T>(value); });
}

void fill_width(Warp& warp, const Op& op, uint32_t mask, uint64_t value) {
  if (op.width == 8)
    fill<uint64_t>(warp, op, mask, value);
  else
    fill<uint32_t>(warp, op, mask, value);
}

void dynamic_shared(Warp& warp, const Op& op, uint32_t mask) {
  fill_width(warp, op, mask, warp.launch.dynamic_shared_offset + static_cast<uint64_t>(op.imm));
}

void local_address(Warp& warp, const Op& op, uint32_t mask) {
  fill_width(warp, op, mask, warp.frame->local_base + static_cast<uint64_t>(op.imm));
}

void address_sum(Warp& warp, const Op& op, uint32_t mask) {
  uint64_t* dst = warp.dst<uint64_t>(op.dst);
  const int64_t offset = op.imm;
  if (op.aux == 8) {
    const uint64_t* a = warp.src<uint64_t>(op.a);
    each_lane(dst, mask, [=](int i) { return a[i] + static_cast<uint64_t>(offset); });
  } else {
    const uint32_t* a = warp.src<uint32_t>(op.a);
    each_lane(dst, mask, [=](int i) -> uint64_t { return a[i] + static_cast<uint32_t>(offset); });
  }
}

bool decode_symbol_move(OpBuilder& b) {
  const Operand& from = b.operand(1);
  const SymbolValue* symbol = b.function().find_symbol(from.text);
  if (!symbol || type_bytes(b.type()) < 4) return false;
  b.op.width = static_cast<uint8_t>(type_bytes(b.type()));
  b.op.imm = static_cast<int64_t>(symbol->value) + from.offset;
  if (symbol->kind == SymbolValue::Kind::DynamicShared)
    b.op.run = dynamic_shared;
  else if (symbol->kind == SymbolValue::Kind::Local)
    b.op.run = local_address;
  else
    return false;
  return true;
}

// ---- Special registers ----

using SpecialValue = uint64_t (*)(const Warp& warp, int lane, int dimension);

uint32_t thread_of(const Warp& warp, int lane) {
  return warp.index * kLanes + static_cast<uint32_t>(lane);
}

uint64_t now_nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

struct SpecialRow {
  std::string_view name;
  SpecialValue value;
};

uint64_t thread_index(const Warp& w, int lane, int d) {
  const Dim3& block = w.launch.block;
  const uint32_t thread = thread_of(w, lane);
  if (d == 0) return thread % block[0];
  return d == 1 ? thread / block[0] % block[1] : thread / block[0] / block[1];
}

constexpr SpecialRow kSpecials[] = {
    {"%tid", thread_index},
    {"%ntid",
     [](const Warp& w, int, int d) -> uint64_t { return w.launch.block[static_cast<size_t>(d)]; }},
    {"%ctaid",
     [](const Warp& w, int, int d) -> uint64_t { return w.cta.block[static_cast<size_t>(d)]; }},
    {"%nctaid",
     [](const Warp& w, int, int d) -> uint64_t { return w.launch.grid[static_cast<size_t>(d)]; }},
    {"%laneid", [](const Warp&, int lane, int) { return static_cast<uint64_t>(lane); }},
    {"%warpid", [](const Warp& w, int, int) -> uint64_t { return w.index; }},
    {"%nwarpid",
     [](const Warp& w, int, int) -> uint64_t {
       return static_cast<uint64_t>(w.launch.profile->threads_per_sm) / 32;
     }},
    {"%smid",
     [](const Warp& w, int, int) -> uint64_t {
       return w.cta.linear % static_cast<uint32_t>(w.launch.profile->sm_count);
     }},
    {"%nsmid",
     [](const Warp& w, int, int) -> uint64_t {
       return static_cast<uint64_t>(w.launch.profile->sm_count);
     }},
    {"%gridid", [](const Warp& w, int, int) -> uint64_t { return w.launch.serial; }},
    {"%lanemask_eq", [](const Warp&, int lane, int) -> uint64_t { return 1u << lane; }},
    {"%lanemask_lt", [](const Warp&, int lane, int) -> uint64_t { return (1u << lane) - 1; }},
    {"%lanemask_le",
     [](const Warp&, int lane, int) -> uint64_t { return (uint64_t{2} << lane) - 1; }},
    {"%lanemask_gt",
     [](const Warp&, int lane, int) -> uint64_t {
       return kAllLanes & ~((uint64_t{2} << lane) - 1);
     }},
    {"%lanemask_ge",
     [](const Warp&, int lane, int) -> uint64_t { return kAllLanes & ~((1u << lane) - 1); }},
    {"%clock", [](const Warp& w, int, int) -> uint64_t { return w.executed & kAllLanes; }},
    {"%clock_hi", [](const Warp& w, int, int) -> uint64_t { return w.executed >> 32; }},
    {"%clock64", [](const Warp& w, int, int) -> uint64_t { return w.executed; }},
    {"%globaltimer", [](const Warp&, int, int) { return now_nanoseconds(); }},
    {"%globaltimer_lo", [](const Warp&, int, int) { return now_nanoseconds() & kAllLanes; }},
    {"%globaltimer_hi", [](const Warp&, int, int) { return now_nanoseconds() >> 32; }},
    {"%dynamic_smem_size",
     [](const Warp& w, int, int) -> uint64_t { return w.launch.dynamic_shared; }},
    {"%total_smem_size",
     [](const Warp& w, int, int) -> uint64_t { return w.launch.shared_bytes(); }},
    {"%aggr_smem_size",
     [](const Warp& w, int, int) -> uint64_t { return w.launch.shared_bytes(); }},
    {"%clusterid",
     [](const Warp& w, int, int d) -> uint64_t {
       return w.cta.cluster.id[static_cast<size_t>(d)];
     }},
    {"%nclusterid",
     [](const Warp& w, int, int d) -> uint64_t {
       return w.launch.grid[static_cast<size_t>(d)] / w.launch.cluster[static_cast<size_t>(d)];
     }},
    {"%cluster_ctaid",
     [](const Warp& w, int, int d) -> uint64_t {
       return w.cta.block[static_cast<size_t>(d)] % w.launch.cluster[static_cast<size_t>(d)];
     }},
    {"%cluster_nctaid",
     [](const Warp& w, int, int d) -> uint64_t {
       return w.launch.cluster[static_cast<size_t>(d)];
     }},
    {"%cluster_ctarank", [](const Warp& w, int, int) -> uint64_t { return w.cta.rank; }},
    {"%cluster_nctarank", [](const Warp& w, int, int) -> uint64_t { return w.cta.cluster.size(); }},
    {"%envreg1", [](const Warp& w, int, int) { return w.launch.program->grid_workspace >> 32; }},
    {"%envreg2",
     [](const Warp& w, int, int) { return w.launch.program->grid_workspace & kAllLanes; }},
    {"%is_explicit_cluster",
     [](const Warp& w, int, int) -> uint64_t { return w.cta.cluster.size() > 1; }},
};

void read_special(Warp& warp, const Op& op, uint32_t mask) {
  const SpecialRow& row = kSpecials[op.aux];
  uint8_t* dst = warp.dst<uint8_t>(op.dst);
  active_lanes(mask, [&](int lane) {
    const uint64_t value = row.value(warp, lane, op.flags);
    std::memcpy(dst + static_cast<size_t>(lane) * op.width, &value, op.width);
  });
}

void special_op(OpBuilder& b, Op& op, std::string_view name, int bytes) {
  const size_t dot = name.find('.');
  const std::string_view base = name.substr(0, dot);
  uint8_t dimension = 0;
  if (dot != std::string_view::npos) {
    const std::string_view letter = name.substr(dot + 1);
    if (letter.size() != 1 || letter[0] < 'x' || letter[0] > 'z')
      b.fail("unknown special register '" + std::string(name) + "'");
    dimension = static_cast<uint8_t>(letter[0] - 'x');
  }
  for (uint16_t i = 0; i < std::size(kSpecials); ++i) {
    if (kSpecials[i].name != base) continue;
    op.aux = i;
    op.flags = dimension;
    op.width = static_cast<uint8_t>(bytes);
    op.kind = OpClass::Move;
    op.run = read_special;
    return;
  }
  b.fail("unknown register '" + std::string(name) + "'");
}

// ---- Address spaces ----

uint64_t window_of(std::string_view space) {
  if (space.starts_with("shared")) return kSharedWindow;
  if (space == "local") return kLocalWindow;
  if (space.starts_with("param")) return kParamWindow;
  return 0;
}

void to_generic(Warp& warp, const Op& op, uint32_t mask) {
  const uint64_t* a = warp.src<uint64_t>(op.a);
  const auto window = static_cast<uint64_t>(op.imm);
  each_lane(warp.dst<uint64_t>(op.dst), mask, [=](int i) { return a[i] + window; });
}

void from_generic(Warp& warp, const Op& op, uint32_t mask) {
  const uint64_t* a = warp.src<uint64_t>(op.a);
  const uint64_t keep = op.imm ? ~kWindowMask : ~uint64_t{0};
  each_lane(warp.dst<uint64_t>(op.dst), mask, [=](int i) { return a[i] & keep; });
}

void decode_cvta(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  if (b.type() != Type::U64) b.fail("only 64-bit addresses are supported");
  b.op.dst = b.dst(0, Type::U64);
  b.op.a = b.src(1, Type::U64);
  b.op.imm = static_cast<int64_t>(window_of(b.get("space")));
  b.op.run = b.has("to") ? from_generic : to_generic;
}

void in_space(Warp& warp, const Op& op, uint32_t mask) {
  const uint64_t* a = warp.src<uint64_t>(op.a);
  const auto window = static_cast<uint64_t>(op.imm);
  warp.set_pred(op.dst, mask, ballot_lanes([=](int i) { return (a[i] & kWindowMask) == window; }));
}

void decode_isspacep(OpBuilder& b) {
  b.op.kind = OpClass::Compare;
  b.op.dst = b.pred_dst(b.operand(0));
  b.op.a = b.src(1, Type::U64);
  b.op.imm = static_cast<int64_t>(window_of(b.get("space")));
  b.op.run = in_space;
}

// op.a: an address in some block's shared memory, op.b: the block it is wanted in.
template <class T>
void map_to_block(Warp& warp, const Op& op, uint32_t mask) {
  const T* address = warp.src<T>(op.a);
  const uint32_t* rank = warp.src<uint32_t>(op.b);
  T* dst = warp.dst<T>(op.dst);
  active_lanes(mask, [&](int lane) {
    if (rank[lane] >= warp.cta.cluster.size())
      fault(warp, FindingKind::IllegalInstruction, lane, rank[lane],
            fmt::format("block {} of a cluster of {}", rank[lane], warp.cta.cluster.size()));
    const T window = address[lane] & static_cast<T>(kWindowMask);
    const T number = rank[lane] == warp.cta.rank ? 0 : rank[lane] + 1;
    dst[lane] = window | number << kRankShift | offset_bits(address[lane]);
  });
}

template <class T>
void rank_of_address(Warp& warp, const Op& op, uint32_t mask) {
  const T* address = warp.src<T>(op.a);
  each_lane(warp.dst<uint32_t>(op.dst), mask, [&](int lane) {
    const uint32_t number = rank_bits(address[lane]);
    return number ? number - 1 : warp.cta.rank;
  });
}

void decode_mapa(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, b.type());
  b.op.a = b.src(1, b.type());
  b.op.b = b.src(2, Type::U32);
  b.op.run = b.type() == Type::U64 ? map_to_block<uint64_t> : map_to_block<uint32_t>;
}

void decode_getctarank(OpBuilder& b) {
  b.op.kind = OpClass::Integer;
  b.op.dst = b.dst(0, Type::U32);
  b.op.a = b.src(1, b.type());
  b.op.run = b.type() == Type::U64 ? rank_of_address<uint64_t> : rank_of_address<uint32_t>;
}

constexpr DecodeRow kRows[] = {
    {"mov", decode_mov},
    {"cvta", decode_cvta},
    {"isspacep", decode_isspacep},
    {"mapa", decode_mapa},
    {"getctarank", decode_getctarank},
};

}  // namespace

std::span<const DecodeRow> move_family() { return kRows; }

Handler dynamic_shared_handler() { return dynamic_shared; }
Handler local_address_handler() { return local_address; }
Handler address_sum_handler() { return address_sum; }

Slot emit_special(OpBuilder& b, std::string_view name, int bytes) {
  Op hidden;
  special_op(b, hidden, name, bytes);
  return b.emit_hidden(hidden, bytes);
}

}  // namespace linnet::vgpu
