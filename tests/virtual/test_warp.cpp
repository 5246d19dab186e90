#include "op_check.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

std::vector<uint64_t> lanes(const std::string& body) {
  return run_lanes("cvt.u32.u64 %r0, %in0;\n" + body + "\ncvt.u64.u32 %out, %r9;", {patterns(1)},
                   kRegisters);
}

uint32_t value(size_t lane) { return static_cast<uint32_t>(patterns(1)[lane]); }

}  // namespace

TEST_CASE("warp: the four shuffles, whole and in segments") {
  const auto up = lanes("shfl.sync.up.b32 %r9|%p0, %r0, 3, 0, -1;");
  const auto down = lanes("shfl.sync.down.b32 %r9, %r0, 5, 31, -1;");
  const auto xored = lanes("shfl.sync.bfly.b32 %r9, %r0, 7, 31, -1;");
  const auto index = lanes("shfl.sync.idx.b32 %r9, %r0, 2, 0x181f, -1;");
  for (size_t i = 0; i < 32; ++i) {
    CHECK(up[i] == value(i >= 3 ? i - 3 : i));
    CHECK(down[i] == value(i + 5 < 32 ? i + 5 : i));
    CHECK(xored[i] == value(i ^ 7));
    CHECK(index[i] == value(i / 8 * 8 + 2));
  }
}

TEST_CASE("warp: votes, ballots, matches, reductions and elect") {
  uint32_t odd = 0, sum = 0, largest = 0;
  for (size_t i = 0; i < 32; ++i) {
    odd |= (value(i) & 1) << i;
    sum += value(i);
    largest = std::max(largest, value(i));
  }
  const std::string test = "and.b32 %r1, %r0, 1; setp.ne.u32 %p0, %r1, 0;\n";
  for (const uint64_t x : lanes(test + "vote.sync.ballot.b32 %r9, %p0, -1;")) CHECK(x == odd);
  for (const uint64_t x :
       lanes(test + "vote.sync.any.pred %p1, !%p0, -1; selp.u32 %r9, 1, 0, %p1;"))
    CHECK(x == 1);
  for (const uint64_t x : lanes(test + "vote.sync.all.pred %p1, %p0, -1; selp.u32 %r9, 1, 0, %p1;"))
    CHECK(x == 0);
  for (const uint64_t x : lanes("redux.sync.add.u32 %r9, %r0, -1;")) CHECK(x == sum);
  for (const uint64_t x : lanes("redux.sync.max.u32 %r9, %r0, -1;")) CHECK(x == largest);
  for (const uint64_t x :
       lanes("and.b32 %r1, %t0, 3; match.any.sync.b32 %r9, %r1, -1; and.b32 %r9, %r9, 15;"))
    CHECK(std::popcount(x) == 1);
  for (const uint64_t x : lanes("mov.u32 %r1, 9; match.all.sync.b32 %r9|%p0, %r1, -1;"))
    CHECK(x == 0xffffffff);
  const auto elected = lanes("elect.sync %r1|%p0, -1; selp.u32 %r9, 1, 0, %p0;");
  for (size_t i = 0; i < 32; ++i) CHECK(elected[i] == (i == 0));
  for (const uint64_t x : lanes("activemask.b32 %r9;")) CHECK(x == 0xffffffff);
}

TEST_CASE("warp: diverged lanes meet at bar.warp.sync and at one shuffle with a full mask") {
  // Both branches reach their own bar.warp.sync; a lane then reads what the other branch wrote.
  const auto result = run_lanes(R"(
mov.u32 %r1, tile; mad.lo.u32 %r2, %t0, 4, %r1; setp.lt.u32 %p0, %t0, 16; @%p0 bra LOW;
st.shared.u32 [%r2], 1; bar.warp.sync -1; ld.shared.u32 %r9, [%r2+-64]; bra JOIN;
LOW: st.shared.u32 [%r2], 2; bar.warp.sync -1; ld.shared.u32 %r9, [%r2+64];
JOIN: cvt.u64.u32 %out, %r9;)",
                                {}, std::string(kRegisters) + ".shared .align 4 .b8 tile[128];\n");
  for (size_t i = 0; i < 32; ++i) CHECK(result[i] == (i < 16 ? 1 : 2));
}
