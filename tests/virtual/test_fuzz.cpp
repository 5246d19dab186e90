// Mutated modules must be refused or loaded, never crash or hang. LINNET_FUZZ_CASES raises the
// count.
#include <doctest/doctest.h>

#include <cstdlib>
#include <random>

#include "nvrtc.h"
#include "ptx_runner.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

const std::string kSeed = kHeader + R"(
.const .align 4 .b32 table[4] = {10, 20, 30, -1};
.global .align 8 .u64 pointer[2] = {generic(table), table+4};
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 out) pick (.param .b32 x)
{ .reg .b32 %r<4>; .reg .pred %p<2>; .local .align 8 .b8 spot[16];
ld.param.b32 %r0, [x]; setp.lt.u32 %p0, %r0, 8; @%p0 bra LOW; mul.lo.u32 %r1, %r0, 3; st.param.b32 [out], %r1; ret;
LOW: st.local.u32 [spot+4], %r0; add.u32 %r1, %r0, 100; st.param.b32 [out], %r1; ret; }
.visible .entry k(.param .u64 dst, .param .align 8 .b8 s[16])
.maxntid 64, 1, 1
{ .reg .b64 %d<4>; .reg .b32 %r<24>; .reg .f32 %f<8>; .reg .pred %p<4>; .reg .b16 %h<4>; .shared .align 16 .b8 tile[512];
.loc 1 3 4
ld.param.u64 %d0, [dst]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1;
{ .param .b32 a; st.param.b32 [a+0], %r0; .param .b32 b; call.uni (b), pick, (a); ld.param.b32 %r1, [b+0]; }
mad.lo.s32 %r2, %r1, 7, %r0; cvt.rn.f32.s32 %f0, %r2; fma.rn.ftz.f32 %f1, %f0, 0f3F800000, %f0; cvt.rn.bf16.f32 %h0, %f1;
lop3.b32 %r3, %r0, %r1, %r2, 0x96; shfl.sync.bfly.b32 %r4|%p0, %r3, 1, 31, -1; vote.sync.ballot.b32 %r5, %p0, -1;
cp.async.cg.shared.global [tile], [%d0], 16; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r6,%r7,%r8,%r9}, [%r3+32];
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2,%f3,%f4,%f5}, {%r6,%r7,%r8,%r9}, {%r10,%r11}, {%f2,%f3,%f4,%f5};
TARGETS: .branchtargets A, B; and.b32 %r12, %r0, 1; brx.idx %r12, TARGETS;
A: setp.gt.and.f32 %p1|%p2, %f0, %f1, !%p0; selp.b32 %r13, %r1, 5, %p1; bra C;
B: atom.global.add.u32 %r14, [%d0+-8], %r0; mbarrier.try_wait.parity.shared.b64 %p3, [tile], %r0;
C: st.global.v2.u32 [%d0], {%r13, %r14};
wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f2,%f3,%f4,%f5}, %d0, %d1, %p0, 1, -1, 0, 1;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
mapa.shared::cluster.u32 %r15, %r3, %r0; ld.shared::cluster.u32 %r16, [%r15]; mov.u32 %r17, %cluster_ctarank;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%d0, {%r0, %r1}], [%r4];
cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%d0, {%r0}], [%r3]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret; }
.file 1 "x.cu"
.section .debug_str { L: .b8 1,2,3 }
)";

std::string mutate(const std::string& seed, std::mt19937& random) {
  std::string text = seed;
  const int changes = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < changes && !text.empty(); ++i) {
    const size_t at = random() % text.size();
    const size_t length = 1 + random() % 12;
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(random() % 96 + 32);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), length));
        break;
      case 3:
        std::swap(text[at], text[random() % text.size()]);
        break;
      case 4:
        text.resize(at);
        break;
      default: {
        const char* words[] = {"99999999999", "-1", "{", "}",  ";",  ".b64",
                               "%r99999",     "[",  ",", "0x", "\"", "<4294967295>"};
        text.insert(at, words[random() % std::size(words)]);
      }
    }
  }
  return text;
}

}  // namespace

TEST_CASE("fuzz: mutated PTX is loaded or refused, never worse") {
  const char* wanted = std::getenv("LINNET_FUZZ_CASES");
  const int cases = wanted ? std::atoi(wanted) : 4000;
  DeviceMemory memory(uint64_t{64} << 20);
  REQUIRE_NOTHROW(load_program(kSeed, memory));
  std::mt19937 random(12345);
  int loaded = 0, refused = 0;
  for (int i = 0; i < cases; ++i) {
    try {
      load_program(mutate(kSeed, random), memory);
      ++loaded;
    } catch (const PtxError&) {
      ++refused;
    } catch (const std::bad_alloc&) {
      ++refused;
    }
  }
  MESSAGE(cases, " cases: ", loaded, " loaded, ", refused, " refused");
  CHECK(loaded + refused == cases);
  CHECK(refused > cases / 3);
  CHECK(loaded > cases / 1000);
}
