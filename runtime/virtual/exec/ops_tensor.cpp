// cp.async.bulk.tensor: boxes of a tensor between global and shared memory, in tile mode.
#include <fmt/format.h>

#include <algorithm>

#include "exec/bulk.h"
#include "exec/memory_access.h"
#include "exec/report.h"
#include "exec/swizzle.h"
#include "exec/tensor_map.h"

namespace linnet::vgpu {
namespace {

// op.a/op.imm: shared memory; op.b: address of the tensor map; op.c: blocks of a multicast, or
// none; op.d: mbarrier; the list has the coordinates, innermost first.
const TensorMap& find_map(Warp& warp, const Op& op, int lane) {
  LaneAccess access;
  const TensorMap* map = nullptr;
  for (uint32_t at = 0; at < sizeof(TensorMap); at += 8) {
    access.mask = 1u << lane;
    access.bytes = 8;
    std::fill_n(access.address, kLanes, warp.src<uint64_t>(op.b)[lane] + at);
    resolve(warp, op, Space::Generic, access);
    if (at == 0) map = reinterpret_cast<const TensorMap*>(access.host[lane]);
  }
  if (map->magic != TensorMap::kMagic || map->rank != op.list_size)
    fault(warp, FindingKind::IllegalInstruction, lane, warp.src<uint64_t>(op.b)[lane],
          fmt::format("no tensor map of {} dimensions is here", op.list_size));
  return *map;
}

struct Place {
  uint32_t offset = 0;   // in the box
  uint64_t address = 0;  // 0: outside of the tensor
};

std::vector<Place> places_of(const TensorMap& map, const int64_t* origin) {
  std::vector<Place> places(map.box_elements());
  for (uint32_t i = 0; i < places.size(); ++i) {
    uint64_t address = map.address;
    bool inside = true;
    uint32_t rest = i;
    for (int d = 0; d < map.rank; ++d) {
      const int64_t at = origin[d] + rest % map.box[d];
      rest /= map.box[d];
      const int64_t size = map.dims[d] ? int64_t{map.dims[d]} : int64_t{1} << 32;
      inside &= at >= 0 && at < size;
      address += static_cast<uint64_t>(at) * (d == 0 ? map.element_bytes : map.strides[d - 1]);
    }
    places[i] = {i * map.element_bytes, inside ? address : 0};
  }
  return places;
}

// The elements of a box, checked and counted 32 at a time.
std::vector<Place> check_box(Warp& warp, const TensorMap& map, const int64_t* origin, Access kind) {
  std::vector<Place> places = places_of(map, origin);
  LaneAccess access;
  access.bytes = map.element_bytes;
  access.kind = kind;
  int count = 0;
  const auto flush = [&] {
    if (count == 0) return;
    access.mask = count == kLanes ? kAllLanes : (1u << count) - 1;
    count = 0;
    resolve_global(warp, access);
  };
  for (const Place& place : places) {
    if (!place.address) continue;
    access.address[count++] = place.address;
    if (count == kLanes) flush();
  }
  flush();
  return places;
}

void origin_of(const Warp& warp, const Op& op, int lane, int64_t* origin) {
  for (uint32_t d = 0; d < op.list_size; ++d) origin[d] = warp.src<int32_t>(warp.list(op)[d])[lane];
}

void fill_outside(const TensorMap& map, uint8_t* element) {
  const uint64_t nan = map.nan_type == 2   ? 0x7fff
                       : map.nan_type == 3 ? 0x7fff
                       : map.nan_type == 4 ? 0x7fffffff
                                           : 0x7fffffffffffffffull;
  std::fill_n(element, map.element_bytes, uint8_t{0});
  if (map.fill_nan) std::memcpy(element, &nan, map.element_bytes);
}

void load_box(Warp& warp, const Op& op, uint32_t mask) {
  uint64_t shared[kLanes];
  gather_addresses(warp, op, shared);
  active_lanes(mask, [&](int lane) {
    const TensorMap& map = find_map(warp, op, lane);
    int64_t origin[5];
    origin_of(warp, op, lane, origin);
    std::vector<uint8_t> data(map.box_elements() * map.element_bytes);
    const auto places = check_box(warp, map, origin, Access::Read);
    for (const auto& [offset, address] : places)
      if (address)
        std::copy_n(reinterpret_cast<const uint8_t*>(address), map.element_bytes,
                    data.data() + offset);
      else
        fill_outside(map, data.data() + offset);
    const uint64_t to = shared_offset(shared[lane]);
    const uint64_t barrier = shared_offset(warp.src<uint64_t>(op.d)[lane]);
    if (op.c == kNoSlot) return begin_bulk(warp, lane, to, barrier, std::move(data), map.span);
    // The same place in every block named, and the same place of its barrier.
    const uint32_t blocks = warp.src<uint16_t>(op.c)[lane];
    for (uint32_t rank = 0; rank < warp.cta.cluster.size(); ++rank) {
      if (!(blocks >> rank & 1)) continue;
      const uint64_t number = rank == warp.cta.rank ? 0 : uint64_t{rank} + 1;
      begin_bulk(warp, lane, number << kRankShift | offset_bits(to),
                 number << kRankShift | offset_bits(barrier), data, map.span);
    }
  });
  ++warp.cta.progress;
}

void store_box(Warp& warp, const Op& op, uint32_t mask) {
  uint64_t shared[kLanes];
  gather_addresses(warp, op, shared);
  active_lanes(mask, [&](int lane) {
    const TensorMap& map = find_map(warp, op, lane);
    int64_t origin[5];
    origin_of(warp, op, lane, origin);
    const uint32_t bytes = map.box_elements() * map.element_bytes;
    const uint32_t from = check_bulk_range(warp, lane, shared_offset(shared[lane]), bytes);
    if (warp.launch.settings.checks)
      if (auto hazard = warp.cta.shadow.access(Access::Read, from, bytes, warp.index, warp.clock))
        report_shared_hazard(warp, *hazard, lane, from, Access::Read);
    for (const auto& [offset, address] : check_box(warp, map, origin, Access::Write)) {
      if (!address) continue;
      const uint32_t piece = swizzled(from + offset / 16 * 16, map.span) + offset % 16;
      std::copy_n(warp.cta.shared.data.get() + piece, map.element_bytes,
                  reinterpret_cast<uint8_t*>(address));
    }
  });
}

void nothing(Warp&, const Op&, uint32_t) {}

}  // namespace

void decode_tensor_copy(OpBuilder& b) {
  b.op.kind = OpClass::AsyncCopy;
  if (b.has("prefetch")) {
    b.op.run = nothing;
    return;
  }
  const bool loads = b.get("dst").starts_with("shared");
  const Operand& tensor = b.operand(loads ? 1 : 0);
  const auto rank = static_cast<size_t>(b.get("dim")[0] - '0');
  if (tensor.kind != OperandKind::Memory || tensor.elements.size() != 1)
    b.fail("a tensor needs an address and coordinates");
  b.list_src(tensor.elements[0], Type::S32, rank);
  b.op.b = b.address_value(tensor);
  b.address(b.operand(loads ? 0 : 1), Space::Shared);
  if (loads) b.op.d = b.address_value(b.operand(2));
  if (b.has("multicast")) b.op.c = b.src(3, Type::U16);
  b.op.run = loads ? load_box : store_box;
}

}  // namespace linnet::vgpu
