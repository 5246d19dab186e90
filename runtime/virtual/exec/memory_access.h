// Turns the addresses of a warp's access into host pointers, checking and counting them on the way.
#pragma once

#include <cstdint>

#include "checks/hazard.h"
#include "exec/cta.h"

namespace linnet::vgpu {

// One access by the lanes of `mask`: `bytes` from each address, aligned to its own size.
struct LaneAccess {
  uint32_t mask = 0;
  uint32_t bytes = 0;
  Access kind = Access::Read;
  bool strong = false;  // volatile, relaxed, acquire, release: no race by itself
  alignas(64) uint64_t address[kLanes];
  alignas(64) uint8_t* host[kLanes];  // result

  // Gives inactive lanes the address of an active one, so that loops may run over all lanes.
  void fill_inactive();
};

// base + offset of an address operand (OpBuilder::address) for every lane.
void gather_addresses(const Warp& warp, const Op& op, uint64_t* addresses);

// Fill access.host for one state space, or for generic addresses by their windows.
void resolve_global(Warp& warp, LaneAccess& access);
void resolve_shared(Warp& warp, LaneAccess& access);
void resolve_local(Warp& warp, LaneAccess& access);
void resolve_param(Warp& warp, const Op& op, LaneAccess& access);
void resolve(Warp& warp, const Op& op, Space space, LaneAccess& access);

// For shared memory outside the usual path: a hazard found there becomes a finding.
void report_shared_hazard(Warp& warp, const Hazard& hazard, int lane, uint32_t address,
                          Access kind);

}  // namespace linnet::vgpu
