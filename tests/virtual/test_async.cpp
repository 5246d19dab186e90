#include "op_check.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {
const std::string kTile =
    std::string(kRegisters) + ".shared .align 16 .b8 tile[1024]; .shared .align 8 .b8 bar[8];\n";
const std::string kWhere = "mul.lo.u32 %r0, %t0, 8; mov.u32 %r1, tile; add.u32 %r0, %r0, %r1;\n";
}  // namespace

TEST_CASE("async: cp.async lands at the wait, in groups, with short sources zero-filled") {
  const auto input = patterns(3);
  CHECK(run_lanes(kWhere + "cp.async.ca.shared.global [%r0], [%a0], 8; cp.async.wait_all; "
                           "ld.shared.u64 %out, [%r0];",
                  {input}, kTile) == input);
  CHECK(run_lanes(kWhere + "cp.async.ca.shared.global [%r0], [%a0], 8; cp.async.commit_group; "
                           "cp.async.wait_group 0;\n"
                           "ld.shared.u64 %out, [%r0];",
                  {input}, kTile) == input);
  const auto half =
      run_lanes(kWhere +
                    "cp.async.ca.shared.global [%r0], [%a0], 8, 4; cp.async.wait_all;\n"
                    "ld.shared.u64 %out, [%r0];",
                {input}, kTile);
  for (size_t i = 0; i < 32; ++i) CHECK(half[i] == (input[i] & 0xffffffffu));
  const auto ignored =
      run_lanes(kWhere +
                    "setp.lt.u32 %p0, %t0, 9; cp.async.ca.shared.global [%r0], [%a0], 8, %p0;\n"
                    "cp.async.wait_all; ld.shared.u64 %out, [%r0];",
                {input}, kTile);
  for (size_t i = 0; i < 32; ++i) CHECK(ignored[i] == (i < 9 ? 0 : input[i]));
}

TEST_CASE("async: an older group lands while a newer one stays in flight") {
  Settings unchecked;
  unchecked.checks = false;  // reading the newer destination is the point here
  const auto first = patterns(3), second = patterns(4);
  const std::string body = kWhere +
                           "st.shared.u64 [%r0+256], %in0;\n"
                           "cp.async.ca.shared.global [%r0], [%a0], 8; cp.async.commit_group;\n"
                           "cp.async.ca.shared.global [%r0+256], [%a0+256], 8; "
                           "cp.async.commit_group; cp.async.wait_group 1;\n";
  CHECK(run_lanes(body + "ld.shared.u64 %out, [%r0];", {first, second}, kTile, unchecked) == first);
  CHECK(run_lanes(body + "ld.shared.u64 %out, [%r0+256];", {first, second}, kTile, unchecked) ==
        first);
  CHECK(run_lanes(body + "cp.async.wait_group 0; ld.shared.u64 %out, [%r0+256];", {first, second},
                  kTile, unchecked) == second);
}

TEST_CASE("async: bulk copies complete on their mbarrier") {
  const auto input = patterns(5);
  const std::string body = R"(
mov.u32 %r1, tile; setp.eq.u32 %p0, %t0, 0; @%p0 mbarrier.init.shared.b64 [bar], 1; bar.warp.sync -1;
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
@%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%a0], 256, [bar];
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;
mad.lo.u32 %r0, %t0, 8, %r1; ld.shared.u64 %out, [%r0];)";
  CHECK(run_lanes(body, {input}, kTile) == input);
}

TEST_CASE("async: cp.async.mbarrier.arrive waits for the copies of the thread") {
  const auto input = patterns(6);
  CHECK(run_lanes(kWhere + R"(
setp.eq.u32 %p0, %t0, 0; @%p0 mbarrier.init.shared.b64 [bar], 32; bar.warp.sync -1;
cp.async.ca.shared.global [%r0], [%a0], 8; cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
WAIT: mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT; ld.shared.u64 %out, [%r0];)",
                  {input}, kTile) == input);
}
