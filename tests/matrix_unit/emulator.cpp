// A matrix unit (AMX) for processors without one, to be preloaded into a test: the process is told
// that it may use it, and each of its instructions, which the processor refuses, is carried out
// here. Thousands of times slower than the unit, and the same numbers to rounding.
#include <dlfcn.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kTiles = 8, kRows = 16, kNumbers = 16;  // 32-bit numbers of a row

struct Unit {
  uint8_t rows[kTiles];
  uint16_t bytes[kTiles];  // of a row
  float numbers[kTiles][kRows][kNumbers];
};
__attribute__((tls_model("initial-exec"))) thread_local Unit unit;

// The registers of a signal's context by their numbers in instructions.
constexpr int kRegisters[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};

// One instruction: three bytes of prefix, opcode, operands.
struct Instruction {
  int opcode, prefix, mode, first, second, third;
  const char* next;
  char* address = nullptr;
  int64_t step = 0;  // between rows in memory

  // Prefixes in the order of their codes: none, 66, F3, F2.
  bool is(int code, int with, bool in_memory) const {
    return opcode == code && prefix == with && (mode != 3) == in_memory;
  }
};

bool decode(const greg_t* registers, Instruction& x) {
  const auto* code = reinterpret_cast<const uint8_t*>(registers[REG_RIP]);
  if (code[0] != 0xC4 || (code[1] & 0x1F) != 2) return false;
  int index_high = code[1] & 0x40 ? 0 : 8, base_high = code[1] & 0x20 ? 0 : 8;
  x.prefix = code[2] & 3;
  x.third = ~code[2] >> 3 & 15;
  x.opcode = code[3];
  x.mode = code[4] >> 6;
  x.first = code[4] >> 3 & 7;
  x.second = code[4] & 7;
  code += 5;
  if (x.mode != 3) {
    int base = x.second, index = 4, scale = 0;
    if (base == 4) {
      scale = *code >> 6;
      index = (*code >> 3 & 7) + index_high;
      base = *code++ & 7;
    }
    bool bare = x.mode == 0 && base == 5;  // no base, or (without an index byte) the next address
    int32_t offset = 0;
    if (x.mode == 1) {
      offset = static_cast<int8_t>(*code++);
    } else if (x.mode == 2 || bare) {
      std::memcpy(&offset, code, 4);
      code += 4;
    }
    int64_t start = bare ? x.second == 4 ? 0 : reinterpret_cast<int64_t>(code)
                         : registers[kRegisters[base + base_high]];
    x.address = reinterpret_cast<char*>(start + offset);
    if (index != 4) x.step = registers[kRegisters[index]] << scale;
  }
  x.next = reinterpret_cast<const char*>(code);
  return true;
}

// Palette, then from byte 16 on the bytes of a row of each tile, and from 48 on its rows.
void configure(const char* from) {
  std::memcpy(unit.bytes, from + 16, sizeof unit.bytes);
  std::memcpy(unit.rows, from + 48, sizeof unit.rows);
  std::memset(unit.numbers, 0, sizeof unit.numbers);
}

float low(float pair) {
  uint32_t bits;
  std::memcpy(&bits, &pair, 4);
  bits <<= 16;
  std::memcpy(&pair, &bits, 4);
  return pair;
}
float high(float pair) {
  uint32_t bits;
  std::memcpy(&bits, &pair, 4);
  bits &= 0xFFFF0000u;
  std::memcpy(&pair, &bits, 4);
  return pair;
}

// sum += left right, both of pairs of bf16.
void multiply(int sum, int left, int right) {
  for (int i = 0; i < unit.rows[sum]; ++i)
    for (int k = 0; k < unit.bytes[left] / 4; ++k) {
      float a = low(unit.numbers[left][i][k]), b = high(unit.numbers[left][i][k]);
      for (int j = 0; j < unit.bytes[sum] / 4; ++j) {
        float pair = unit.numbers[right][k][j];
        unit.numbers[sum][i][j] += a * low(pair) + b * high(pair);
      }
    }
}

bool carry_out(const Instruction& x) {
  auto& tile = unit.numbers[x.first];
  auto row = [&](int i) { return x.address + i * x.step; };
  if (x.is(0x49, 0, true)) {
    configure(x.address);
  } else if (x.is(0x49, 0, false)) {
    std::memset(&unit, 0, sizeof unit);
  } else if (x.is(0x49, 3, false)) {
    std::memset(tile, 0, sizeof tile);
  } else if (x.is(0x4B, 3, true) || x.is(0x4B, 1, true)) {
    std::memset(tile, 0, sizeof tile);
    for (int i = 0; i < unit.rows[x.first]; ++i) std::memcpy(tile[i], row(i), unit.bytes[x.first]);
  } else if (x.is(0x4B, 2, true)) {
    for (int i = 0; i < unit.rows[x.first]; ++i) std::memcpy(row(i), tile[i], unit.bytes[x.first]);
  } else if (x.is(0x5C, 2, false)) {
    multiply(x.first, x.second, x.third);
  } else {
    return false;
  }
  return true;
}

void refused(int, siginfo_t*, void* context) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  Instruction x;
  if (decode(registers, x) && carry_out(x))
    registers[REG_RIP] = reinterpret_cast<greg_t>(x.next);
  else
    abort();  // not for the unit
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
using Sigaction = int (*)(int, const struct sigaction*, struct sigaction*);

__attribute__((constructor)) void start() {
  struct sigaction action{};
  action.sa_sigaction = refused;
  action.sa_flags = SA_SIGINFO;
  next<Sigaction>("sigaction")(SIGILL, &action, nullptr);
}

}  // namespace

// In the place of the C library's: no one else takes these signals,
extern "C" int sigaction(int number, const struct sigaction* action,
                         struct sigaction* old) noexcept {
  static const auto others = next<Sigaction>("sigaction");
  return others(number, number == SIGILL ? nullptr : action, old);
}

// and a process that asks for the unit may use it.
extern "C" long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& x : a) x = va_arg(list, long);
  va_end(list);
  constexpr long kRequestPermission = 0x1023;
  if (number == SYS_arch_prctl && a[0] == kRequestPermission) return 0;
  static const auto others = next<long (*)(long, ...)>("syscall");
  return others(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
