#include "op_check.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

TEST_CASE("barrier: reductions over a block of 100 threads") {
  PtxRunner runner;
  runner.load(kHeader + R"(
.visible .entry k(.param .u64 dst)
{ .reg .b64 %d<4>; .reg .b32 %r<10>; .reg .pred %p<4>;
ld.param.u64 %d0, [dst]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1;
and.b32 %r1, %r0, 1; setp.ne.u32 %p0, %r1, 0;
bar.red.popc.u32 %r2, 0, %p0; bar.red.and.pred %p1, 1, %p0; bar.red.or.pred %p2, 0, !%p0;
selp.u32 %r3, 1000, 0, %p1; selp.u32 %r4, 2000, 0, %p2; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;
st.global.u32 [%d0], %r2; ret; })");
  const uint64_t dst = runner.upload(std::vector<uint32_t>(100, 0));
  runner.run("k", {1, 1, 1}, {100, 1, 1}, {dst});
  for (const uint32_t x : runner.download<uint32_t>(dst, 100)) CHECK(x == 2050);
  CHECK(runner.findings.size() == 0);
}

TEST_CASE("barrier: producer and consumer warps with ids, counts and arrive") {
  PtxRunner runner;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    runner.settings.seed = seed;
    runner.load(kHeader + R"(
.visible .entry k(.param .u64 dst)
{ .reg .b64 %d<4>; .reg .b32 %r<10>; .reg .pred %p<4>;
.shared .align 4 .b8 tile[128];
ld.param.u64 %d0, [dst]; mov.u32 %r0, %tid.x; mov.u32 %r5, 0; mov.u32 %r6, 0; and.b32 %r7, %r0, 31;
mul.lo.u32 %r8, %r7, 4; mov.u32 %r9, tile; add.u32 %r8, %r8, %r9; setp.ge.u32 %p0, %r0, 32; @%p0 bra CONSUMER;
PRODUCER: add.u32 %r1, %r5, %r7; st.shared.u32 [%r8], %r1; bar.arrive 1, 64; bar.sync 2, 64;
add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 10; @%p1 bra PRODUCER; ret;
CONSUMER: bar.sync 1, 64; ld.shared.u32 %r1, [%r8]; add.u32 %r6, %r6, %r1; bar.arrive 2, 64;
add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 10; @%p1 bra CONSUMER;
mul.wide.u32 %d1, %r7, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r6; ret; })");
    const uint64_t dst = runner.upload(std::vector<uint32_t>(32, 0));
    runner.run("k", {1, 1, 1}, {64, 1, 1}, {dst});
    const auto out = runner.download<uint32_t>(dst, 32);
    for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == 45 + 10 * i);
    CHECK(runner.findings.json() == "[]");
  }
}

TEST_CASE("barrier: mbarrier phases order a producer and a consumer") {
  PtxRunner runner;
  for (const uint64_t seed : {0, 1, 2}) {
    runner.settings.seed = seed;
    runner.load(kHeader + R"(
.visible .entry k(.param .u64 dst)
{ .reg .b64 %d<4>; .reg .b32 %r<10>; .reg .pred %p<4>;
.shared .align 8 .b8 bar[8]; .shared .align 4 .b8 tile[128];
ld.param.u64 %d0, [dst]; mov.u32 %r0, %tid.x; and.b32 %r7, %r0, 31; mul.lo.u32 %r8, %r7, 4;
mov.u32 %r9, tile; add.u32 %r8, %r8, %r9; setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared.b64 [bar], 32; bar.sync 0; setp.ge.u32 %p0, %r0, 32; @%p0 bra WAIT;
st.shared.u32 [%r8], %r0; mbarrier.arrive.shared.b64 %d2, [bar]; ret;
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;
ld.shared.u32 %r1, [%r8]; mul.wide.u32 %d1, %r7, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r1; ret; })");
    const uint64_t dst = runner.upload(std::vector<uint32_t>(32, 99));
    runner.run("k", {1, 1, 1}, {64, 1, 1}, {dst});
    const auto out = runner.download<uint32_t>(dst, 32);
    for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == i);
    CHECK(runner.findings.json() == "[]");
  }
}

TEST_CASE("barrier: waiting for an mbarrier that nobody completes is a deadlock, not a hang") {
  PtxRunner runner;
  runner.load(kHeader + R"(
.visible .entry k()
{ .reg .pred %p<4>; .shared .align 8 .b8 bar[8];
mbarrier.init.shared.b64 [bar], 64;
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT; ret; })");
  CHECK_THROWS_AS(runner.run("k", {1, 1, 1}, {32, 1, 1}, {}), KernelFault);
  CHECK(runner.findings.json().find("deadlock") != std::string::npos);
}
