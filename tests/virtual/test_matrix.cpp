#include <cmath>

#include "exec/numbers.h"
#include "op_check.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

TEST_CASE("matrix: ldmatrix, stmatrix and movmatrix place every element") {
  // Element (m, r, c) of four 8x8 matrices is m*64 + r*8 + c.
  const std::string declarations = std::string(kRegisters) + ".shared .align 16 .b8 tile[512];\n";
  const std::string fill =
      "mul.lo.u32 %r0, %t0, 16; mov.u32 %r1, tile; add.u32 %r0, %r0, %r1; mul.lo.u32 %r2, %t0, 8;\n"
      "add.u32 %r3, %r2, 0x10000; add.u32 %r3, %r3, %r2; mad.lo.u32 %r3, %r2, 0xffff, %r3;\n"
      "add.u32 %r4, %r3, 0x20002; add.u32 %r5, %r3, 0x40004; add.u32 %r6, %r3, 0x60006;\n"
      "st.shared.v4.u32 [%r0], {%r3, %r4, %r5, %r6}; bar.sync 0;\n";
  const auto element = [](uint64_t m, uint64_t r, uint64_t c) { return m * 64 + r * 8 + c; };
  const auto plain =
      run_lanes(fill +
                    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10,%r11,%r12,%r13}, [%r0];\n"
                    "mov.b64 %out, {%r12, %r13};",
                {}, declarations);
  const auto turned =
      run_lanes(fill +
                    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r10,%r11,%r12,%r13}, [%r0];\n"
                    "mov.b64 %out, {%r10, %r11};",
                {}, declarations);
  const auto moved =
      run_lanes(fill +
                    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r0];\n"
                    "movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r10; cvt.u64.u32 %out, %r11;",
                {}, declarations);
  const auto stored = run_lanes(
      fill +
          "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10,%r11}, [%r0]; bar.sync 0;\n"
          "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r0], {%r11,%r10}; bar.sync 0;\n"
          "mul.lo.u32 %r7, %t0, 8; add.u32 %r7, %r7, %r1; ld.shared.u64 %out, [%r7];",
      {}, declarations);
  for (uint64_t lane = 0; lane < 32; ++lane) {
    const uint64_t g = lane / 4, t = lane % 4 * 2;
    CHECK(plain[lane] == (element(2, g, t) | element(2, g, t + 1) << 16 | element(3, g, t) << 32 |
                          element(3, g, t + 1) << 48));
    CHECK(turned[lane] == (element(0, t, g) | element(0, t + 1, g) << 16 | element(1, t, g) << 32 |
                           element(1, t + 1, g) << 48));
    CHECK(moved[lane] == (element(0, t, g) | element(0, t + 1, g) << 16));
    // 8 bytes a lane: row lane/2, columns 4*(lane%2)...; the matrices changed places and were
    // transposed
    uint64_t expected = 0;
    for (uint64_t i = 0; i < 4; ++i)
      expected |= element(1 - lane / 16, lane % 2 * 4 + i, lane / 2 % 8) << (16 * i);
    CHECK(stored[lane] == expected);
  }
}

namespace {

// Runs one mma with all fragments from memory: 64-bit words, register r of operand x at word r.
struct MmaCase {
  std::string text;
  int a_registers, b_registers, c_registers, d_registers;
  int bytes;  // of a register
};

std::vector<uint64_t> run_mma(const MmaCase& mma, const std::vector<uint64_t>& words, MmaMode mode,
                              const std::string& arch) {
  PtxRunner runner(arch);
  runner.settings.mma = mode;
  const char* prefix = mma.bytes == 8 ? "%x" : "%r";
  std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 src, .param "
      ".u64 dst)\n"
      "{ .reg .b64 %d<4>; .reg .b64 %x<32>; .reg .b32 %r<32>; .reg .b32 %t;\n"
      "ld.param.u64 %d0, [src]; ld.param.u64 %d1, [dst]; mov.u32 %t, %tid.x; mul.wide.u32 %d2, %t, "
      "8;\n"
      "add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2;\n";
  const int inputs = mma.a_registers + mma.b_registers + mma.c_registers;
  for (int i = 0; i < inputs; ++i)
    text += fmt::format("ld.global.b{} {}{}, [%d0+{}];\n", mma.bytes * 8, prefix, i, i * 256);
  const auto list = [&](int first, int count) {
    std::string names;
    for (int i = 0; i < count; ++i) names += fmt::format("{}{}{}", i ? "," : "", prefix, first + i);
    return "{" + names + "}";
  };
  text += fmt::format("{} {}, {}, {}, {};\n", mma.text, list(24, mma.d_registers),
                      list(0, mma.a_registers), list(mma.a_registers, mma.b_registers),
                      list(mma.a_registers + mma.b_registers, mma.c_registers));
  for (int i = 0; i < mma.d_registers; ++i)
    text += fmt::format("st.global.b{} [%d1+{}], {}{};\n", mma.bytes * 8, i * 256, prefix, 24 + i);
  runner.load(text + "ret; }");
  const uint64_t src = runner.upload(words);
  const uint64_t dst =
      runner.upload(std::vector<uint64_t>(static_cast<size_t>(mma.d_registers) * 32, 0));
  runner.run("k", {1, 1, 1}, {32, 1, 1}, {src, dst});
  return runner.download<uint64_t>(dst, static_cast<size_t>(mma.d_registers) * 32);
}

// Plain gathering by the documented positions, then a plain product.
template <class Decode>
double product(const MmaCase& mma, const std::vector<uint64_t>& words, int pack, int rows,
               int depth, int row, int column, Decode decode) {
  double sum = 0;
  for (int k = 0; k < depth; ++k) {
    const int a_register = (row / 8) + (rows / 8) * (k / (4 * pack));
    const int a_lane = row % 8 * 4 + k % (4 * pack) / pack;
    const int b_register = mma.a_registers + k / (4 * pack);
    const int b_lane = column * 4 + k % (4 * pack) / pack;
    sum += decode(words[static_cast<size_t>(a_register * 32 + a_lane)], k % pack) *
           decode(words[static_cast<size_t>(b_register * 32 + b_lane)], k % pack);
  }
  return sum;
}

}  // namespace

TEST_CASE("mma: every floating shape multiplies as documented, on both rounding rules") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto bf16 = [](uint64_t word, int i) -> double {
    return bfloat_to_float(static_cast<uint16_t>(word >> (16 * i)));
  };
  const auto f16 = [](uint64_t word, int i) -> double {
    return half_to_float(static_cast<uint16_t>(word >> (16 * i)));
  };
  const auto tf32 = [](uint64_t word, int) -> double {
    return std::bit_cast<float>(static_cast<uint32_t>(word) & 0xffffe000u);
  };
  struct Row {
    const char* shape;
    const char* type;
    int depth, pack;
    std::function<double(uint64_t, int)> decode;
  };
  const Row rows[] = {{"m16n8k16", "bf16", 16, 2, bf16}, {"m16n8k8", "bf16", 8, 2, bf16},
                      {"m16n8k16", "f16", 16, 2, f16},   {"m16n8k8", "f16", 8, 2, f16},
                      {"m16n8k8", "tf32", 8, 1, tf32},   {"m16n8k4", "tf32", 4, 1, tf32}};
  for (const Row& row : rows)
    for (const char* arch : {"sm_80", "sm_90"})
      for (const MmaMode mode : {MmaMode::Hardware, MmaMode::Exact}) {
        const int a = 2 * row.depth / (4 * row.pack), b = row.depth / (4 * row.pack);
        const MmaCase mma{
            fmt::format("mma.sync.aligned.{}.row.col.f32.{}.{}.f32", row.shape, row.type, row.type),
            a,
            b,
            4,
            4,
            4};
        std::vector<uint64_t> words(static_cast<size_t>(a + b + 4) * 32);
        for (size_t i = 0; i < words.size(); ++i) {
          const float x = normal(random), y = normal(random);
          if (i >= static_cast<size_t>(a + b) * 32 || row.pack == 1)
            words[i] = std::bit_cast<uint32_t>(x);
          else if (std::string(row.type) == "bf16")
            words[i] = uint64_t{bfloat_from_float(x)} << 16 | bfloat_from_float(y);
          else
            words[i] = uint64_t{half_from_float(x)} << 16 | half_from_float(y);
        }
        const auto d = run_mma(mma, words, mode, arch);
        for (int r = 0; r < 4; ++r)
          for (int lane = 0; lane < 32; ++lane) {
            const int at = r * 32 + lane, i = lane / 4 + 8 * (r / 2), j = lane % 4 * 2 + r % 2;
            const double expected = f32(words[static_cast<size_t>((a + b) * 32 + at)]) +
                                    product(mma, words, row.pack, 16, row.depth, i, j, row.decode);
            CHECK(std::fabs(f32(d[static_cast<size_t>(at)]) - expected) < 4e-6);
          }
      }
}

TEST_CASE("mma: int8 shapes are exact") {
  std::mt19937 random(8);
  const auto s8 = [](uint64_t word, int i) -> double {
    return static_cast<int8_t>(word >> (8 * i));
  };
  for (const int depth : {16, 32}) {
    const MmaCase mma{fmt::format("mma.sync.aligned.m16n8k{}.row.col.s32.s8.s8.s32", depth),
                      depth / 8,
                      depth / 16,
                      4,
                      4,
                      4};
    std::vector<uint64_t> words(static_cast<size_t>(depth / 8 + depth / 16 + 4) * 32);
    for (uint64_t& word : words) word = random();
    const auto d = run_mma(mma, words, MmaMode::Hardware, "sm_80");
    for (int r = 0; r < 4; ++r)
      for (int lane = 0; lane < 32; ++lane) {
        const int at = r * 32 + lane, i = lane / 4 + 8 * (r / 2), j = lane % 4 * 2 + r % 2;
        const int64_t sum =
            static_cast<int32_t>(words[static_cast<size_t>((depth / 8 + depth / 16) * 32 + at)]) +
            static_cast<int64_t>(product(mma, words, 4, 16, depth, i, j, s8));
        CHECK(static_cast<uint32_t>(d[static_cast<size_t>(at)]) == static_cast<uint32_t>(sum));
      }
  }
}

TEST_CASE("mma: f64 and f16 accumulators") {
  std::mt19937 random(9);
  std::normal_distribution<double> normal;
  const MmaCase wide{"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", 1, 1, 2, 2, 8};
  std::vector<uint64_t> words(4 * 32);
  for (uint64_t& word : words) word = bits_of(normal(random));
  const auto d = run_mma(wide, words, MmaMode::Hardware, "sm_80");
  for (int r = 0; r < 2; ++r)
    for (int lane = 0; lane < 32; ++lane) {
      const double expected = f64(words[static_cast<size_t>((2 + r) * 32 + lane)]) +
                              product(wide, words, 1, 8, 4, lane / 4, lane % 4 * 2 + r,
                                      [](uint64_t word, int) { return f64(word); });
      CHECK(std::fabs(f64(d[static_cast<size_t>(r * 32 + lane)]) - expected) < 1e-13);
    }
  const MmaCase narrow{"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 4, 2, 2, 2, 4};
  std::vector<uint64_t> halves(8 * 32);
  for (uint64_t& word : halves)
    word = uint64_t{half_from_float(static_cast<float>(normal(random)))} << 16 |
           half_from_float(static_cast<float>(normal(random)));
  const auto h = run_mma(narrow, halves, MmaMode::Hardware, "sm_90");
  const auto f16 = [](uint64_t word, int i) -> double {
    return half_to_float(static_cast<uint16_t>(word >> (16 * i)));
  };
  for (int r = 0; r < 2; ++r)
    for (int lane = 0; lane < 32; ++lane)
      for (int e = 0; e < 2; ++e) {
        const double expected =
            f16(halves[static_cast<size_t>((6 + r) * 32 + lane)], e) +
            product(narrow, halves, 2, 16, 16, lane / 4 + 8 * r, lane % 4 * 2 + e, f16);
        CHECK(f16(h[static_cast<size_t>(r * 32 + lane)], e) ==
              doctest::Approx(expected).epsilon(2e-3));
      }
}
