// ld, st, prefetch, fences and cache hints.
#include "exec/families.h"
#include "exec/memory_access.h"
#include "exec/pick.h"

namespace linnet::vgpu {
namespace {

// op.width: bytes of an element; op.vector: elements; op.flags: 'f' for a function's parameters;
// op.target: the state space; op.reconverge: 1 for strong accesses, 2 when they also release.
Space space_of(const Op& op) { return static_cast<Space>(op.target); }
bool is_strong(const Op& op) { return op.reconverge > 0; }

void prepare(Warp& warp, const Op& op, uint32_t mask, Access kind, LaneAccess& access) {
  access.mask = mask;
  access.bytes = uint32_t{op.width} * op.vector;
  access.kind = kind;
  access.strong = is_strong(op);
  gather_addresses(warp, op, access.address);
  resolve(warp, op, space_of(op), access);
}

// T is the type in memory, R the register's: the value is widened by T's sign.
template <class T, class R>
void load(Warp& warp, const Op& op, uint32_t mask) {
  LaneAccess access;
  prepare(warp, op, mask, Access::Read, access);
  const uint32_t* slots = warp.list(op);
  for (uint32_t v = 0; v < op.vector; ++v) {
    R* dst = warp.dst<R>(slots[v]);
    active_lanes(mask, [&](int lane) {
      T value;
      std::memcpy(&value, access.host[lane] + v * sizeof(T), sizeof(T));
      dst[lane] = static_cast<R>(value);
    });
  }
}

template <class T, class R>
void store(Warp& warp, const Op& op, uint32_t mask) {
  LaneAccess access;
  if (op.reconverge == 2 && warp.launch.shadow) warp.launch.shadow->fence(warp.cta.linear);
  prepare(warp, op, mask, Access::Write, access);
  const uint32_t* slots = warp.list(op);
  for (uint32_t v = 0; v < op.vector; ++v) {
    const R* src = warp.src<R>(slots[v]);
    active_lanes(mask, [&](int lane) {
      const T value = static_cast<T>(src[lane]);
      std::memcpy(access.host[lane] + v * sizeof(T), &value, sizeof(T));
    });
  }
}

// A kernel parameter at a constant offset: the same value for all lanes.
template <class T, class R>
void load_kernel_param(Warp& warp, const Op& op, uint32_t mask) {
  T value;
  std::memcpy(&value, warp.launch.params.data() + op.imm, sizeof(T));
  const R wide = static_cast<R>(value);
  each_lane(warp.dst<R>(op.dst), mask, [=](int) { return wide; });
}

using Wide = unsigned __int128;

template <template <class, class> class Pick, class T>
Handler pick_register(int bytes) {
  switch (bytes) {
    case 1:
      return sizeof(T) <= 1 ? Pick<T, uint8_t>::handler() : nullptr;
    case 2:
      return sizeof(T) <= 2 ? Pick<T, uint16_t>::handler() : nullptr;
    case 4:
      return sizeof(T) <= 4 ? Pick<T, uint32_t>::handler() : nullptr;
    case 8:
      return sizeof(T) <= 8 ? Pick<T, uint64_t>::handler() : nullptr;
    default:
      return nullptr;
  }
}

template <template <class, class> class Pick>
Handler pick_transfer(Type type, int register_bytes) {
  switch (type) {
    case Type::S8:
      return pick_register<Pick, int8_t>(register_bytes);
    case Type::S16:
      return pick_register<Pick, int16_t>(register_bytes);
    case Type::S32:
      return pick_register<Pick, int32_t>(register_bytes);
    default:
      break;
  }
  switch (type_bytes(type)) {
    case 1:
      return pick_register<Pick, uint8_t>(register_bytes);
    case 2:
      return pick_register<Pick, uint16_t>(register_bytes);
    case 4:
      return pick_register<Pick, uint32_t>(register_bytes);
    case 8:
      return pick_register<Pick, uint64_t>(register_bytes);
    default:
      return register_bytes == 16 ? Pick<Wide, Wide>::handler() : nullptr;
  }
}

template <class T, class R>
struct PickLoad {
  static Handler handler() { return load<T, R>; }
};
template <class T, class R>
struct PickStore {
  static Handler handler() { return store<T, R>; }
};
template <class T, class R>
struct PickParam {
  static Handler handler() { return load_kernel_param<T, R>; }
};

Space read_space(std::string_view word) {
  if (word == "global") return Space::Global;
  if (word == "const") return Space::Const;
  if (word == "local") return Space::Local;
  if (word.starts_with("shared")) return Space::Shared;
  if (word.starts_with("param")) return Space::Param;
  return Space::Generic;
}

OpClass load_class(Space space) {
  switch (space) {
    case Space::Global:
      return OpClass::GlobalLoad;
    case Space::Shared:
      return OpClass::SharedLoad;
    case Space::Local:
      return OpClass::Local;
    case Space::Generic:
      return OpClass::Generic;
    default:
      return OpClass::Constant;
  }
}

OpClass store_class(Space space) {
  switch (space) {
    case Space::Global:
      return OpClass::GlobalStore;
    case Space::Shared:
      return OpClass::SharedStore;
    case Space::Generic:
      return OpClass::Generic;
    default:
      return OpClass::Local;
  }
}

void read_access(OpBuilder& b, const Operand& address) {
  const Space space = read_space(b.get("space"));
  b.address(address, space);
  b.op.target = static_cast<int32_t>(space);
  b.op.width = static_cast<uint8_t>(type_bytes(b.type()));
  b.op.vector = b.has("vec") ? static_cast<uint8_t>(b.get("vec")[1] - '0') : 1;
  if (b.op.width * b.op.vector > 32) b.fail("vector is too wide");
  const std::string_view sem = b.get("sem");
  const bool strong = !sem.empty() && sem != "weak";
  b.op.reconverge = sem == "release" ? 2 : strong ? 1 : 0;
  // A symbol tells a function's own parameters from a kernel's.
  const SymbolValue* symbol =
      address.text.empty() ? nullptr : b.function().find_symbol(address.text);
  if (symbol && symbol->kind == SymbolValue::Kind::Param) b.op.flags = 'f';
}

const Operand& element(const OpBuilder& b, const Operand& values, size_t i) {
  if (b.op.vector == 1) return values;
  if (values.kind != OperandKind::Vector || values.elements.size() != b.op.vector)
    b.fail("vector has a wrong number of elements");
  return values.elements[i];
}

bool decode_constant_param(OpBuilder& b, const Operand& address) {
  const SymbolValue* symbol =
      address.text.empty() ? nullptr : b.function().find_symbol(address.text);
  if (!symbol || symbol->kind != SymbolValue::Kind::KernelParam || b.op.vector != 1 ||
      b.op.width > 8)
    return false;
  const int64_t offset = address.offset;
  if (offset < 0 || offset + b.op.width > int64_t{symbol->bytes})
    b.fail("offset is outside the parameter");
  int bytes = 0;
  b.op.imm = static_cast<int64_t>(symbol->value) + offset;
  b.op.dst = b.wide_dst(b.operand(0), b.op.width, bytes);
  b.op.run = pick_transfer<PickParam>(b.type(), bytes);
  return b.op.run != nullptr;
}

void decode_ld(OpBuilder& b) {
  const Operand& address = b.operand(1);
  read_access(b, address);
  b.op.kind = load_class(space_of(b.op));
  if (decode_constant_param(b, address)) return;
  int bytes = 0;
  for (size_t i = 0; i < b.op.vector; ++i) {
    int actual = 0;
    b.list_add(b.wide_dst(element(b, b.operand(0), i), b.op.width, actual));
    if (b.op.vector > 1 && element(b, b.operand(0), i).kind == OperandKind::Sink) continue;
    if (bytes && actual != bytes) b.fail("vector registers differ in width");
    bytes = actual;
  }
  b.op.run = pick_transfer<PickLoad>(b.type(), bytes ? bytes : b.op.width);
  if (!b.op.run) b.fail("destination register has a wrong width");
}

void decode_st(OpBuilder& b) {
  read_access(b, b.operand(0));
  b.op.kind = store_class(space_of(b.op));
  // Parameters of a call being made are always the frame's.
  if (space_of(b.op) == Space::Param) b.op.flags = 'f';
  int bytes = 0;
  for (size_t i = 0; i < b.op.vector; ++i) {
    const Operand& value = element(b, b.operand(1), i);
    int actual = 0;
    Slot slot = b.wide_src(value, b.type(), actual);
    if (value.kind != OperandKind::Register && bytes && actual != bytes) {
      // A literal among wider registers takes their width.
      const Type wide = bytes == 8 ? Type::U64 : bytes == 4 ? Type::U32 : Type::U16;
      slot = b.wide_src(value, wide, actual);
    }
    b.list_add(slot);
    if (bytes && actual != bytes) b.fail("vector registers differ in width");
    bytes = actual;
  }
  b.op.run = pick_transfer<PickStore>(b.type(), bytes);
  if (!b.op.run) b.fail("source register has a wrong width");
}

void nothing(Warp&, const Op&, uint32_t) {}

// Prefetches are hints; their address must still be a valid operand.
void decode_prefetch(OpBuilder& b) {
  b.address(b.operand(0), Space::Generic);
  b.op.kind = OpClass::Other;
  b.op.run = nothing;
}

// Cache policies are opaque; any value will do for accesses that ignore them.
void make_policy(Warp& warp, const Op& op, uint32_t mask) {
  each_lane(warp.dst<uint64_t>(op.dst), mask, [](int) { return uint64_t{0}; });
}

void decode_createpolicy(OpBuilder& b) {
  b.op.kind = OpClass::Other;
  b.op.dst = b.dst(0, Type::B64);
  b.op.run = make_policy;
}

void fence(Warp& warp, const Op&, uint32_t) {
  if (warp.launch.shadow) warp.launch.shadow->fence(warp.cta.linear);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void decode_fence(OpBuilder& b) {
  b.op.kind = OpClass::Fence;
  const std::string_view scope = b.in.form.opcode() == "membar" ? b.get("level") : b.get("scope");
  b.op.run = scope == "gl" || scope == "gpu" || scope == "sys" ? fence : nothing;
}

constexpr DecodeRow kRows[] = {
    {"ld", decode_ld},
    {"ldu", decode_ld},
    {"st", decode_st},
    {"prefetch", decode_prefetch},
    {"prefetchu", decode_prefetch},
    {"createpolicy", decode_createpolicy},
    {"membar", decode_fence},
    {"fence", decode_fence},
};

}  // namespace

std::span<const DecodeRow> memory_family() { return kRows; }

}  // namespace linnet::vgpu
