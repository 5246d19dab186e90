#include "op_check.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

TEST_CASE("divergence: nested branches come together again") {
  // After the diamond all lanes are active at once: activemask sees 32.
  const auto result = run_lanes(R"(
and.b32 %r0, %t0, 1; and.b32 %r1, %t0, 2; setp.ne.u32 %p0, %r0, 0; setp.ne.u32 %p1, %r1, 0; mov.u32 %r2, 0;
@%p0 bra A; @%p1 bra B; add.u32 %r2, %r2, 1; bra C;
B: add.u32 %r2, %r2, 2; bra C;
A: @!%p1 bra D; add.u32 %r2, %r2, 3; bra E;
D: add.u32 %r2, %r2, 4;
E: activemask.b32 %r3; popc.b32 %r3, %r3; mad.lo.u32 %r2, %r3, 1000, %r2;
C: activemask.b32 %r4; popc.b32 %r4, %r4; mad.lo.u32 %r2, %r4, 10, %r2; cvt.u64.u32 %out, %r2;)",
                                {}, kRegisters);
  const uint64_t expected[] = {321, 16324, 322, 16323};
  for (size_t i = 0; i < 32; ++i) CHECK(result[i] == expected[i % 4]);
}

TEST_CASE("divergence: loops with a different count for every lane, and early exit") {
  const auto result = run_lanes(R"(
mov.u32 %r0, 0; mov.u32 %r1, 0;
LOOP: add.u32 %r1, %r1, %r0; add.u32 %r0, %r0, 1; setp.gt.u32 %p0, %r1, 200; @%p0 bra OUT;
setp.le.u32 %p1, %r0, %t0; @%p1 bra LOOP;
OUT: activemask.b32 %r2; popc.b32 %r2, %r2; mad.lo.u32 %r1, %r2, 1000, %r1; cvt.u64.u32 %out, %r1;)",
                                {}, kRegisters);
  for (uint64_t lane = 0; lane < 32; ++lane) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i <= lane && sum <= 200; ++i) sum += i;
    CHECK(result[lane] == 32000 + sum);
  }
}

TEST_CASE("divergence: a branch table and lanes that exit early") {
  const auto result = run_lanes(R"(
and.b32 %r0, %t0, 3; TARGETS: .branchtargets T0, T1, T2, T3; brx.idx %r0, TARGETS;
T0: mov.u64 %out, 10; bra END; T1: mov.u64 %out, 11; bra END; T2: mov.u64 %out, 12; st.global.u64 [%a1], 77; exit;
T3: mov.u64 %out, 13;
END: activemask.b32 %r1; popc.b32 %r1, %r1; cvt.u64.u32 %d0, %r1; mad.lo.u64 %out, %d0, 100, %out;)",
                                {}, kRegisters);
  for (size_t i = 0; i < 32; ++i) CHECK(result[i] == (i % 4 == 2 ? 77 : 2400 + 10 + i % 4));
}

TEST_CASE("divergence: a spin lock between lanes of one warp makes progress") {
  PtxRunner runner;
  runner.load(kHeader + R"(
.visible .entry k(.param .u64 p)
{ .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %q<4>;
ld.param.u64 %d0, [p];
TRY: atom.global.cas.b32 %r0, [%d0], 0, 1; setp.ne.u32 %q0, %r0, 0; @%q0 bra TRY;
ld.volatile.global.u32 %r1, [%d0+4]; add.u32 %r1, %r1, 1; st.volatile.global.u32 [%d0+4], %r1;
membar.gl; atom.global.exch.b32 %r2, [%d0], 0; ret; })");
  const uint64_t p = runner.upload(std::vector<uint32_t>{0, 0});
  runner.run("k", {3, 1, 1}, {64, 1, 1}, {p});
  CHECK(runner.download<uint32_t>(p, 2) == std::vector<uint32_t>{0, 192});
}
