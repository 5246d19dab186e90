// Decoded code: what a warp executes, one compact record an instruction with its operands resolved.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ptx/module.h"

namespace linnet::vgpu {

class Warp;
struct Op;

// Executes one instruction for the lanes in `mask`; `warp.pc` already points behind it.
using Handler = void (*)(Warp& warp, const Op& op, uint32_t mask);

// What counts are kept by; the names are in counts/counters.cpp.
enum class OpClass : uint8_t {
  Integer,
  Float,
  Half,
  Double,
  Convert,
  Move,
  Compare,
  Mufu,
  GlobalLoad,
  GlobalStore,
  SharedLoad,
  SharedStore,
  Local,
  Constant,
  Generic,
  Atomic,
  AsyncCopy,
  Matrix,
  Mma,
  WarpSync,
  Barrier,
  Fence,
  Control,
  Other,
};
constexpr int kOpClasses = static_cast<int>(OpClass::Other) + 1;

// A slot is a byte offset into the frame's registers, or, with the top bit, into the constants.
using Slot = uint32_t;
constexpr Slot kConstantSlot = 0x8000'0000u;
constexpr Slot kNoSlot = 0x7fff'ffffu;
constexpr int kNoPc = -1;

struct Op {
  Handler run = nullptr;
  Slot dst = kNoSlot;
  Slot dst2 = kNoSlot;
  Slot a = kNoSlot;
  Slot b = kNoSlot;
  Slot c = kNoSlot;
  Slot d = kNoSlot;
  int64_t imm = 0;
  Slot guard = kNoSlot;
  bool guard_negated = false;
  bool negate_c = false;  // a predicate operand written with '!'
  OpClass kind = OpClass::Other;
  uint8_t width = 0;   // bytes of one memory element
  uint8_t vector = 1;  // elements of a vector access
  uint8_t flags = 0;   // meaning belongs to the handler's file
  uint16_t aux = 0;
  int32_t target = kNoPc;      // branch target
  int32_t reconverge = kNoPc;  // immediate post-dominator of a branch
  uint32_t list = 0;           // first of this op's entries in Code::lists
  uint32_t list_size = 0;
};

// What a copy that lands later does with its group.
enum class AsyncRole : uint8_t { None, Copy, Commit, Wait };

// What only counting and the timeline ask of an op; kept apart from what executes.
struct OpUse {
  uint32_t first = 0;  // of this op's registers in Code::used: read ones, then written ones
  uint16_t reads = 0;
  uint16_t writes = 0;
  uint32_t flop = 0;          // of a matrix product
  uint32_t flop_as_bf16 = 0;  // as much time of the tensor core, in bf16 operations
  AsyncRole async = AsyncRole::None;
};

struct OpSource {
  SourceLocation location;
  int ptx_line = 0;
  uint32_t text = 0;  // index into Code::texts
};

// Bytes to move between a caller's and a callee's parameter areas (or registers).
struct ParamCopy {
  bool caller_is_register = false;
  bool callee_is_register = false;
  uint32_t caller = 0;  // offset or slot
  uint32_t callee = 0;
  uint32_t bytes = 0;
};

enum class Builtin : uint8_t { None, Printf, AssertFail };

struct CallSite {
  int callee = -1;  // index into Program::codes; -1: the address is in a register
  Builtin builtin = Builtin::None;
  std::vector<ParamCopy> arguments;
  std::vector<ParamCopy> results;
  std::vector<uint32_t> builtin_arguments;  // offsets in the caller's parameter area
};

struct AlignedBytes {
  struct Free {
    void operator()(uint8_t* bytes) const;
  };
  std::unique_ptr<uint8_t[], Free> data;
  size_t size = 0;
  void resize_zeroed(size_t bytes);
};

// One function: its instructions and the layout of a frame.
struct Code {
  std::string name;
  bool is_entry = false;
  std::vector<Op> ops;
  std::vector<OpSource> sources;
  std::vector<OpUse> uses;     // by op
  std::vector<uint32_t> used;  // register slots, counted in units of 64 bytes
  std::vector<std::string> texts;
  std::vector<uint32_t> lists;
  std::vector<CallSite> calls;
  AlignedBytes constants;
  uint32_t frame_bytes = 0;
  uint32_t param_bytes = 0;  // per lane: own parameters, results and those of calls being made
  uint32_t local_bytes = 0;  // per lane
  uint32_t register_count = 0;
  std::vector<uint32_t> param_offsets, param_sizes;    // own parameters
  std::vector<uint32_t> result_offsets, result_sizes;  // own results
  LaunchBounds bounds;
  uint32_t static_shared = 0;
  uint32_t first_counter = 0;  // index of this code's first op in per-launch counters
};

struct GlobalSymbol {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

class DeviceMemory;

// A loaded module.
struct Program {
  Module module;
  std::vector<std::unique_ptr<Code>> codes;
  std::map<std::string, int, std::less<>> code_index;
  std::map<std::string, GlobalSymbol, std::less<>> globals;
  uint32_t op_total = 0;
  uint64_t grid_workspace = 0;  // zeroed memory behind %envreg1:%envreg2, for grid-wide barriers
  DeviceMemory* memory = nullptr;

  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  std::string file_name(int file) const;
};

// Function addresses taken by `mov` are indices in this window, never dereferenced.
constexpr uint64_t kFunctionWindow = uint64_t{3} << 56;
constexpr uint64_t kSharedWindow = uint64_t{1} << 56;
constexpr uint64_t kLocalWindow = uint64_t{2} << 56;
constexpr uint64_t kParamWindow = uint64_t{4} << 56;
constexpr uint64_t kWindowMask = uint64_t{0xff} << 56;

}  // namespace linnet::vgpu
