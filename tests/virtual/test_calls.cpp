#include "op_check.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

TEST_CASE("calls: parameters in registers, and a call that only some lanes make") {
  PtxRunner runner;
  runner.load(kHeader + R"(
.func (.reg .b32 %result) twice (.reg .b32 %x) { add.u32 %result, %x, %x; ret; }
.visible .entry k(.param .u64 dst)
{ .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p<2>;
ld.param.u64 %d0, [dst]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1;
mov.u32 %r1, 5; setp.lt.u32 %p0, %r0, 10; @%p0 call (%r1), twice, (%r0); activemask.b32 %r2; popc.b32 %r2, %r2;
mad.lo.u32 %r1, %r2, 1000, %r1; st.global.u32 [%d0], %r1; ret; })");
  const uint64_t dst = runner.upload(std::vector<uint32_t>(32, 0));
  runner.run("k", {1, 1, 1}, {32, 1, 1}, {dst});
  const auto out = runner.download<uint32_t>(dst, 32);
  for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == 32000 + (i < 10 ? 2 * i : 5));
}

TEST_CASE("calls: lanes return from different places of a function") {
  PtxRunner runner;
  runner.load(kHeader + R"(
.func (.param .b32 out) pick (.param .b32 x)
{ .reg .b32 %r<4>; .reg .pred %p<2>;
ld.param.b32 %r0, [x]; setp.lt.u32 %p0, %r0, 8; @%p0 bra LOW; mul.lo.u32 %r1, %r0, 3; st.param.b32 [out], %r1; ret;
LOW: add.u32 %r1, %r0, 100; st.param.b32 [out], %r1; ret; }
.visible .entry k(.param .u64 dst)
{ .reg .b64 %d<4>; .reg .b32 %r<8>;
ld.param.u64 %d0, [dst]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1;
{ .param .b32 a; st.param.b32 [a], %r0; .param .b32 b; call.uni (b), pick, (a); ld.param.b32 %r1, [b]; }
activemask.b32 %r2; popc.b32 %r2, %r2; mad.lo.u32 %r1, %r2, 1000, %r1; st.global.u32 [%d0], %r1; ret; })");
  const uint64_t dst = runner.upload(std::vector<uint32_t>(32, 0));
  runner.run("k", {1, 1, 1}, {32, 1, 1}, {dst});
  const auto out = runner.download<uint32_t>(dst, 32);
  for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == 32000 + (i < 8 ? i + 100 : 3 * i));
}
