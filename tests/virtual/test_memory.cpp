#include "op_check.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

TEST_CASE("memory: loads of narrow types widen by their sign, stores cut") {
  check_op("ld.global.s8 %r9, [%a0+1];", 32, [](auto a, auto, auto) {
    return static_cast<uint64_t>(int64_t{static_cast<int8_t>(a >> 8)});
  });
  check_op("ld.global.u16 %r9, [%a0+2];", 32, [](auto a, auto, auto) { return a >> 16 & 0xffff; });
  check_op("ld.global.nc.L1::no_allocate.v2.u32 {%r9, %r8}, [%a0];", 32,
           [](auto a, auto, auto) { return a; });
  check_op("st.global.u8 [%a1+3], %r0; ld.global.u32 %r9, [%a1];", 32,
           [](auto a, auto, auto) { return (a & 0xff) << 24; });
  check_op("mov.b64 {%r4, %r5}, %in0; mov.b64 %out, {%r5, %r4};", 64,
           [](auto a, auto, auto) { return a >> 32 | a << 32; });
  check_op("mov.b64 {%h1, %h2, %h3, %h4}, %in0; mov.b64 %out, {%h4, %h3, %h2, %h1};", 64,
           [](auto a, auto, auto) {
             return a >> 48 | (a >> 32 & 0xffff) << 16 | (a >> 16 & 0xffff) << 32 | a << 48;
           });
}

TEST_CASE("memory: shared and local variables, vectors and generic addresses") {
  const std::string declarations =
      std::string(kRegisters) + ".shared .align 16 .b8 tile[1024]; .local .align 8 .b8 spot[32];\n";
  const auto input = patterns(5);
  const auto through = [&](const std::string& body) {
    return run_lanes(body, {input, patterns(6)}, declarations);
  };
  CHECK(through("mul.lo.u32 %r0, %t0, 16; mov.u32 %r1, tile; add.u32 %r0, %r0, %r1;\n"
                "mov.b64 {%r4, %r5}, %in0; st.shared.v4.u32 [%r0], {%r4, %r5, %r5, %r4};\n"
                "ld.shared.v2.u32 {%r6, %r7}, [%r0+8]; mov.b64 %out, {%r7, %r6};") == input);
  CHECK(through("st.local.u64 [spot+8], %in0; ld.local.u64 %out, [spot+8];") == input);
  CHECK(through("cvta.local.u64 %d0, %a2; mov.u64 %d1, spot; cvta.local.u64 %d1, %d1; st.u64 "
                "[%d1+16], %in0;\n"
                "ld.u64 %out, [%d1+16];") == input);
  CHECK(through("mov.u64 %d0, tile; cvta.shared.u64 %d0, %d0; mad.wide.u32 %d0, %t0, 8, %d0;\n"
                "st.u64 [%d0], %in0; bar.sync 0; cvta.to.shared.u64 %d1, %d0; ld.shared.u64 %out, "
                "[%d1];") == input);
  const auto spaces = through(
      "mov.u64 %d0, tile; cvta.shared.u64 %d0, %d0; isspacep.shared %p0, %d0;\n"
      "isspacep.global %p1, %d0; isspacep.global %p2, %a0; selp.u64 %out, 1, 0, %p0;\n"
      "selp.u64 %d1, 2, 0, %p1; or.b64 %out, %out, %d1; selp.u64 %d1, 4, 0, %p2; or.b64 %out, "
      "%out, %d1;");
  for (const uint64_t bits : spaces) CHECK(bits == 5);
}

TEST_CASE("memory: constants, initialised variables and addresses in initialisers") {
  PtxRunner runner;
  runner.load(kHeader + R"(
.const .align 4 .b32 table[4] = {10, 20, 30, -1};
.global .align 8 .u64 pointer[2] = {generic(cell), cell+4};
.global .align 4 .u32 cell[2] = {7, 8};
.global .f32 numbers[2] = {1.5, 0f40000000};
.visible .entry k(.param .u64 dst)
{ .reg .b64 %d<8>; .reg .b32 %r<8>;
ld.param.u64 %d0, [dst];
ld.const.u32 %r0, [table+12]; st.global.u32 [%d0], %r0;
ld.global.u64 %d1, [pointer+8]; ld.global.u32 %r1, [%d1]; st.global.u32 [%d0+4], %r1;
ld.global.u32 %r2, [numbers+4]; st.global.u32 [%d0+8], %r2;
mov.u64 %d2, table; ld.const.u32 %r3, [%d2+4]; st.global.u32 [%d0+12], %r3;
ret; })");
  const uint64_t dst = runner.upload(std::vector<uint32_t>(4, 0));
  runner.run("k", {1, 1, 1}, {1, 1, 1}, {dst});
  CHECK(runner.download<uint32_t>(dst, 4) ==
        std::vector<uint32_t>{0xffffffffu, 8, 0x40000000u, 20});
}

TEST_CASE("memory: atomics return the old value and combine in every type") {
  struct Row {
    const char* text;
    uint64_t start, operand, expected;
  };
  const Row rows[] = {
      {"atom.global.add.u32 %r9, [%d0], %r0;", 5, 3, 5 + 32 * 3},
      {"atom.global.min.s32 %r9, [%d0], %r0;", 5, 0xfffffff0u, 0xfffffff0u},
      {"atom.global.max.u32 %r9, [%d0], %r0;", 5, 9, 9},
      {"atom.global.and.b32 %r9, [%d0], %r0;", 0xff, 0x0f, 0x0f},
      {"atom.global.xor.b32 %r9, [%d0], %r0;", 1, 6, 1},
      {"atom.global.exch.b32 %r9, [%d0], %r0;", 1, 6, 6},
      {"atom.global.inc.u32 %r9, [%d0], %r0;", 0, 9, 2},
      {"atom.global.dec.u32 %r9, [%d0], %r0;", 0, 9, 8},
      {"atom.global.cas.b32 %r9, [%d0], 5, %r0;", 5, 77, 77},
      {"red.global.add.f32 [%d0], %r0;", 0x3f800000u, 0x3f000000u, 0x41880000u},
      {"red.global.add.noftz.f16x2 [%d0], %r0;", 0x3c003c00u, 0x3c003800u, 0x50204c40u},
      {"red.global.add.noftz.bf16x2 [%d0], %r0;", 0x3f803f80u, 0x3f803f00u, 0x42044188u},
  };
  for (const Row& row : rows) {
    PtxRunner runner;
    runner.load(
        kHeader +
        ".visible .entry k(.param .u64 dst, .param .u64 x)\n{ .reg .b64 %d<4>; .reg .b32 %r<10>;\n"
        "ld.param.u64 %d0, [dst]; ld.param.u32 %r0, [x];\n" +
        row.text + "\nret; }");
    const uint64_t dst = runner.upload(std::vector<uint32_t>{static_cast<uint32_t>(row.start)});
    runner.run("k", {1, 1, 1}, {32, 1, 1}, {dst, row.operand});
    CHECK_MESSAGE(runner.download<uint32_t>(dst, 1)[0] == row.expected, row.text);
  }
}

TEST_CASE("memory: special registers know the thread and the grid") {
  PtxRunner runner;
  runner.load(kHeader + R"(
.visible .entry k(.param .u64 dst)
{ .reg .b64 %d<4>; .reg .b32 %r<10>;
ld.param.u64 %d0, [dst]; mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %ntid.x; mov.u32 %r3, %ctaid.x;
mov.u32 %r4, %ntid.y; mad.lo.u32 %r5, %r1, %r2, %r0; mul.lo.u32 %r6, %r2, %r4; mad.lo.u32 %r5, %r3, %r6, %r5;
mul.wide.u32 %d1, %r5, 4; add.u64 %d0, %d0, %d1; mov.u32 %r7, %laneid; mov.u32 %r8, %nctaid.x;
mad.lo.u32 %r7, %r8, 1000, %r7; mad.lo.u32 %r7, %r1, 100000, %r7; st.global.u32 [%d0], %r7; ret; })");
  const uint64_t dst = runner.upload(std::vector<uint32_t>(120, 0));
  runner.run("k", {2, 1, 1}, {20, 3, 1}, {dst});
  const auto out = runner.download<uint32_t>(dst, 120);
  for (uint32_t i = 0; i < 120; ++i) CHECK(out[i] == i % 60 % 32 + 2000 + i % 60 / 20 * 100000);
}
