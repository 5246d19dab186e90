// wgmma against plain C++: every layout of tiles in shared memory, and A from registers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "driver_client.h"
#include "exec/numbers.h"
#include "nvrtc.h"
#include "ptx_runner.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

// Bytes of a tile in shared memory: where element k of row `outer` lies, and its descriptor.
// Written as people draw these layouts: pieces of 16 bytes, numbered in their line, exchanged by an
// xor of the number with that of the line.
struct Layout {
  int span;         // of the swizzle; 0: none
  bool transposed;  // `outer` is contiguous instead of k
  uint32_t leading, stride;

  uint32_t place(uint32_t outer, uint32_t k, uint32_t element) const {
    const uint32_t width = static_cast<uint32_t>(span), pieces = width / 16;
    const uint32_t rows_a_line = width ? 128 / width : 1;
    if (!transposed && !span) {
      const uint32_t byte = k * element;
      return outer / 8 * stride + byte / 16 * leading + outer % 8 * 16 + byte % 16;
    }
    if (!transposed) {
      const uint32_t byte = k * element, piece = byte / 16 ^ outer % 8 / rows_a_line % pieces;
      return outer / 8 * stride + outer % 8 * width + piece * 16 + byte % 16;
    }
    if (!span) return outer / 8 * stride + k / 8 * leading + k % 8 * 16 + outer % 8 * element;
    const uint32_t block = outer / (8 * pieces), within = outer % (8 * pieces);
    const uint32_t piece = within / 8 ^ k % 8 / rows_a_line % pieces;
    return block * leading + k / 8 * stride + k % 8 * width + piece * 16 + within % 8 * element;
  }
  uint64_t descriptor(uint32_t start) const {
    const uint64_t mode = span == 128 ? 1 : span == 64 ? 2 : span == 32 ? 3 : 0;
    return start >> 4 | uint64_t{leading >> 4} << 16 | uint64_t{stride >> 4} << 32 | mode << 62;
  }
};

constexpr uint32_t kTileB = 16384, kShared = 65536;

// All 128 threads copy an image of shared memory, multiply once or twice and store the accumulator
// as [warp][register][lane].
std::string product_kernel(const std::string& shape, const std::string& types, int registers,
                           bool a_in_registers, const std::string& tail, bool waits = true) {
  std::string d = "{";
  for (int i = 0; i < registers; ++i) d += fmt::format("{}%f{}", i ? "," : "", i);
  d += "}";
  std::string text =
      ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 image, .param "
      ".u64 out, .param .u64 da, .param .u64 db, .param .u64 fragments)\n{ .reg .b64 %d<16>; .reg "
      ".b32 %r<16>; .reg .b32 %a<4>; .reg .f32 %f<128>; .reg .pred %p<4>; .shared .align 1024 .b8 "
      "tile[65536];\n"
      "ld.param.u64 %d0, [image]; ld.param.u64 %d1, [out]; ld.param.u64 %d2, [da]; ld.param.u64 "
      "%d3, [db]; ld.param.u64 %d9, [fragments];\nmov.u32 %r0, %tid.x; mov.u32 %r1, %r0;\n"
      "COPY: shl.b32 %r2, %r1, 2; cvt.u64.u32 %d4, %r2; add.u64 %d5, %d0, %d4; ld.global.u32 %r3, "
      "[%d5]; mov.u32 %r4, tile; add.u32 %r4, %r4, %r2; st.shared.u32 [%r4], %r3; add.u32 %r1, "
      "%r1, 128; setp.lt.u32 %p0, %r1, 16384; @%p0 bra COPY;\nfence.proxy.async; bar.sync 0;\n"
      "setp.ne.u32 %p1, %r0, %r0; setp.eq.u32 %p2, %r0, %r0;\n";
  for (int i = 0; i < 4; ++i)
    text += fmt::format(
        "add.u32 %r5, %r0, {}; mul.wide.u32 %d6, %r5, 4; add.u64 %d7, %d9, %d6; ld.global.u32 "
        "%a{}, [%d7];\n",
        128 * i, i);
  for (int i = 0; i < registers; ++i) text += fmt::format("mov.f32 %f{}, 0f40400000;\n", i);
  const std::string a = a_in_registers ? "{%a0,%a1,%a2,%a3}" : "%d2";
  text += "wgmma.fence.sync.aligned;\n";
  for (const char* adds : {"%p1", "%p2"})
    text += fmt::format("wgmma.mma_async.sync.aligned.{}.{} {}, {}, %d3, {}, 1, {};\n", shape,
                        types, d, a, adds, tail);
  text += "wgmma.commit_group.sync.aligned;\n";
  if (waits) text += "wgmma.wait_group.sync.aligned 0;\n";
  text += fmt::format(
      "shr.u32 %r6, %r0, 5; and.b32 %r7, %r0, 31; mul.lo.u32 %r6, %r6, {}; add.u32 %r6, %r6, %r7; "
      "mul.wide.u32 %d6, %r6, 4; add.u64 %d7, %d1, %d6;\n",
      32 * registers);
  for (int i = 0; i < registers; ++i)
    text += fmt::format("st.global.f32 [%d7+{}], %f{};\n", 128 * i, i);
  return text + "ret; }\n";
}

float small_number(uint32_t i) { return static_cast<float>(static_cast<int>(i * 37 % 19) - 9) / 8; }

template <class T>
void put(std::vector<uint8_t>& image, uint32_t at, T value) {
  std::memcpy(image.data() + at, &value, sizeof value);
}

enum class Number { bf16, f16, tf32 };

// A [64, depth] and B [columns, depth].
struct Factors {
  Number type;
  int columns;
  int element = type == Number::tf32 ? 4 : 2;
  int depth = 32 / element;
  float a(int row, int k) const { return small_number(static_cast<uint32_t>(7 * row + 3 * k)); }
  float b(int column, int k) const {
    return small_number(static_cast<uint32_t>(5 * column + 11 * k + 2));
  }
  uint16_t narrow(float value) const {
    return type == Number::f16 ? half_from_float(value) : bfloat_from_float(value);
  }
  void place(std::vector<uint8_t>& image, uint32_t at, float value) const {
    if (element == 2)
      put(image, at, narrow(value));
    else
      put(image, at, value);
  }
};

// The accumulator is f32, or with `half_result` f16, two columns in a register.
void check_product(const Factors& factors, const Layout& left, const Layout& right,
                   bool a_in_registers = false, bool half_result = false) {
  const auto element = static_cast<uint32_t>(factors.element);
  std::vector<uint8_t> image(kShared, 0);
  for (int row = 0; row < 64; ++row)
    for (int k = 0; k < factors.depth; ++k)
      factors.place(image, left.place(row, k, element), factors.a(row, k));
  for (int column = 0; column < factors.columns; ++column)
    for (int k = 0; k < factors.depth; ++k)
      factors.place(image, kTileB + right.place(column, k, element), factors.b(column, k));
  // Registers of A: lane 4 g + t of warp w has rows 16 w + g and + 8, columns from t on.
  std::vector<uint32_t> fragments(512);
  for (int thread = 0; thread < 128; ++thread)
    for (int r = 0; r < 4; ++r) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (r % 2), t = thread % 4;
      if (factors.element == 2) {
        const int k = 2 * t + 8 * (r / 2);
        fragments[static_cast<size_t>(128 * r + thread)] =
            static_cast<uint32_t>(factors.narrow(factors.a(row, k + 1))) << 16 |
            factors.narrow(factors.a(row, k));
      } else {
        fragments[static_cast<size_t>(128 * r + thread)] =
            std::bit_cast<uint32_t>(factors.a(row, t + 4 * (r / 2)));
      }
    }
  const int registers = factors.columns / (half_result ? 4 : 2);
  const std::string shape = fmt::format("m64n{}k{}", factors.columns, factors.depth);
  const bool narrow = factors.element == 2;
  std::string tail = "1";
  if (narrow && !a_in_registers) tail += fmt::format(", {}", int{left.transposed});
  if (narrow) tail += fmt::format(", {}", int{right.transposed});
  const char* names[] = {"bf16", "f16", "tf32"};
  const char* name = names[static_cast<int>(factors.type)];
  PtxRunner runner;
  runner.load(product_kernel(shape, fmt::format("{0}.{1}.{1}", half_result ? "f16" : "f32", name),
                             registers, a_in_registers, tail));
  const uint64_t from = runner.upload(image), parts = runner.upload(fragments);
  const uint64_t to = runner.upload(std::vector<float>(static_cast<size_t>(128 * registers), 0));
  runner.run("k", {1, 1, 1}, {128, 1, 1},
             {from, to, left.descriptor(0), right.descriptor(kTileB), parts});
  CHECK_MESSAGE(runner.findings.size() == 0, runner.findings.json());
  const auto got = runner.download<float>(to, static_cast<size_t>(128 * registers));
  int wrong = 0;
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < factors.columns; ++column) {
      float sum = 0;  // small multiples of 1/64: exact in any order
      for (int k = 0; k < factors.depth; ++k) sum += factors.a(row, k) * factors.b(column, k);
      const int lane = row % 8 * 4 + column % 8 / 2, first = row / 16 * 32 * registers + lane;
      if (half_result) {
        const int reg = column / 8 * 2 + row % 16 / 8;
        const auto both = std::bit_cast<uint32_t>(got[static_cast<size_t>(first + 32 * reg)]);
        wrong += half_to_float(static_cast<uint16_t>(both >> 16 * (column % 2))) != 2 * sum;
        continue;
      }
      const int reg = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
      wrong += got[static_cast<size_t>(first + 32 * reg)] != 2 * sum;
    }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("wgmma: k contiguous, without and with every swizzle, bf16, f16 and tf32") {
  for (const Number type : {Number::bf16, Number::f16, Number::tf32})
    for (const int span : {0, 32, 64, 128}) {
      CAPTURE(static_cast<int>(type));
      CAPTURE(span);
      const uint32_t group = span ? static_cast<uint32_t>(8 * span) : 256;
      const Layout layout{span, false, 128, group};
      check_product({type, 64}, layout, layout);
      check_product({type, 24}, layout, layout, true);
      if (type == Number::f16) {
        check_product({type, 64}, layout, layout, false, true);
        check_product({type, 24}, layout, layout, true, true);
      }
    }
}

TEST_CASE("wgmma: rows contiguous, both factors transposed") {
  for (const Number type : {Number::bf16, Number::f16})
    for (const int span : {0, 32, 64, 128}) {
      CAPTURE(static_cast<int>(type));
      CAPTURE(span);
      const auto width = static_cast<uint32_t>(span);
      // Swizzled: blocks of span / 2 rows, each 8 k a line; otherwise cores of 8 x 8.
      const Layout rows =
          span ? Layout{span, true, 16 * width, 8 * width} : Layout{0, true, 2048, 128};
      check_product({type, 64}, rows, rows);
      check_product({type, 128}, Layout{128, false, 16, 1024}, rows);
    }
}

TEST_CASE("wgmma: an accumulator that is not waited for has no result yet") {
  const Layout layout{128, false, 16, 1024};
  PtxRunner runner;
  runner.load(product_kernel("m64n8k16", "f32.bf16.bf16", 4, false, "1, 0, 0", false));
  const uint64_t from = runner.upload(std::vector<uint8_t>(kShared, 0));
  const uint64_t to = runner.upload(std::vector<float>(512, 0));
  runner.run("k", {1, 1, 1}, {128, 1, 1},
             {from, to, layout.descriptor(0), layout.descriptor(kTileB), from});
  for (const float value : runner.download<float>(to, 512)) CHECK(std::isnan(value));
}

TEST_CASE("wgmma: a descriptor that points behind shared memory is a fault") {
  const Layout layout{128, false, 16, 1024};
  PtxRunner runner;
  runner.load(product_kernel("m64n8k16", "f32.bf16.bf16", 4, false, "1, 0, 0"));
  const uint64_t from = runner.upload(std::vector<uint8_t>(kShared, 0));
  CHECK_THROWS_AS(
      runner.run("k", {1, 1, 1}, {128, 1, 1},
                 {from, from, layout.descriptor(kShared - 1024), layout.descriptor(kTileB), from}),
      KernelFault);
}

TEST_CASE("wgmma: a kernel compiled by NVRTC multiplies 64 x 16 x 16") {
  const std::string source = R"(
extern "C" __global__ void product(const unsigned short* a, const unsigned short* b, float* c) {
  __shared__ __align__(1024) unsigned char tiles[64 * 128 + 16 * 128];
  // Rows of 128 bytes, 16 elements of each used, pieces exchanged by the row's number.
  for (int i = threadIdx.x; i < 64 * 16; i += 128) {
    int row = i / 16, k = i % 16;
    *(unsigned short*)(tiles + row * 128 + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2) = a[i];
  }
  for (int i = threadIdx.x; i < 16 * 16; i += 128) {
    int row = i / 16, k = i % 16;
    *(unsigned short*)(tiles + 64 * 128 + row * 128 + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2) = b[i];
  }
  // The rest of the lines is not read, but a piece is checked as a whole.
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  unsigned base = (unsigned)__cvta_generic_to_shared(tiles);
  auto descriptor = [](unsigned at) {
    return (unsigned long long)(at >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
  };
  unsigned long long da = descriptor(base), db = descriptor(base + 64 * 128);
  float d[8];
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 0, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, 0, 0; }"
    : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7])
    : "l"(da), "l"(db));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, column = lane % 4 * 2;
  for (int j = 0; j < 2; ++j)
    for (int e = 0; e < 4; ++e) c[(row + e / 2 * 8) * 16 + j * 8 + column + e % 2] = d[4 * j + e];
}
)";
  Session session(compile_cuda(source, "sm_90a", "product.cu"));
  std::vector<uint16_t> a(64 * 16), b(16 * 16);
  for (uint32_t i = 0; i < a.size(); ++i) a[i] = bfloat_from_float(small_number(i));
  for (uint32_t i = 0; i < b.size(); ++i) b[i] = bfloat_from_float(small_number(3 * i + 1));
  DevicePointer pa = session.upload(a), pb = session.upload(b), pc = session.allocate(64 * 16 * 4);
  CHECK_MESSAGE(session.launch("product", 1, 128, {&pa, &pb, &pc}) == 0,
                DriverClient::get().linnet_virtual_last_error());
  const auto c = session.download<float>(pc, 64 * 16);
  int wrong = 0;
  for (size_t row = 0; row < 64; ++row)
    for (size_t column = 0; column < 16; ++column) {
      float sum = 0;
      for (size_t k = 0; k < 16; ++k)
        sum += bfloat_to_float(a[row * 16 + k]) * bfloat_to_float(b[column * 16 + k]);
      wrong += c[row * 16 + column] != sum;
    }
  CHECK(wrong == 0);
}
