#include <doctest/doctest.h>

#include "counts/report.h"
#include "exec/lanes.h"
#include "ptx_runner.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

template <class F>
std::vector<uint64_t> addresses(F f) {
  std::vector<uint64_t> values;
  for (uint64_t lane = 0; lane < 32; ++lane) values.push_back(f(lane));
  return values;
}

}  // namespace

TEST_CASE("counts: sectors of coalesced, strided and scattered accesses") {
  CHECK(count_sectors(addresses([](uint64_t i) { return 4096 + 4 * i; }).data(), 4, kAllLanes) ==
        4);
  CHECK(count_sectors(addresses([](uint64_t i) { return 4096 + 16 * i; }).data(), 16, kAllLanes) ==
        16);
  CHECK(count_sectors(addresses([](uint64_t i) { return 4096 + 128 * i; }).data(), 4, kAllLanes) ==
        32);
  CHECK(count_sectors(addresses([](uint64_t i) { return 4096 + 4 * (31 - i); }).data(), 4,
                      kAllLanes) == 4);
  CHECK(count_sectors(addresses([](uint64_t) { return 4096; }).data(), 4, kAllLanes) == 1);
  CHECK(count_sectors(addresses([](uint64_t i) { return 4096 + 4 * i; }).data(), 4, 0x1) == 1);
}

TEST_CASE("counts: bank conflicts of the usual patterns") {
  const auto waves = [](auto f, uint32_t bytes) {
    return count_wavefronts(addresses(f).data(), bytes, kAllLanes);
  };
  CHECK(waves([](uint64_t i) { return 4 * i; }, 4).count == 1);
  CHECK(waves([](uint64_t i) { return 8 * i; }, 4).count == 2);
  CHECK(waves([](uint64_t i) { return 128 * i; }, 4).count == 32);
  CHECK(waves([](uint64_t i) { return 132 * i; }, 4).count == 1);
  CHECK(waves([](uint64_t) { return uint64_t{64}; }, 4).count == 1);
  CHECK(waves([](uint64_t i) { return 16 * i; }, 16).count == 4);
  CHECK(waves([](uint64_t i) { return 16 * i; }, 16).minimum == 4);
  // ldmatrix rows of 64 bytes without swizzle: four rows share their banks
  CHECK(waves([](uint64_t i) { return 64 * i; }, 16).count == 16);
  CHECK(waves([](uint64_t i) { return 80 * i; }, 16).count == 4);
  CHECK(waves([](uint64_t i) { return 2 * i; }, 2).count == 1);
}

TEST_CASE("counts: a launch reports instructions by class and memory by kind") {
  PtxRunner runner;
  runner.load(kHeader + R"(
.visible .entry k(.param .u64 p)
{ .reg .b64 %d<4>; .reg .b32 %r<4>; .reg .f32 %f<4>; .shared .align 4 .b8 tile[4096];
ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; ld.global.f32 %f0, [%d0];
shl.b32 %r1, %r0, 7; and.b32 %r1, %r1, 4095; st.shared.f32 [%r1], %f0; ex2.approx.f32 %f1, %f0; st.global.f32 [%d0], %f1; ret; })");
  const uint64_t p = runner.upload(std::vector<float>(64, 1.0f));
  LaunchReport report;
  report.kernel = "k";
  report.program = runner.program.get();
  report.counters = runner.run("k", {1, 1, 1}, {32, 1, 1}, {p});
  const std::string json = report_json(report);
  CHECK(json.find("\"warp_instructions\":11") != std::string::npos);
  CHECK(json.find("\"mufu\":1") != std::string::npos);
  CHECK(json.find("\"unique_bytes_read\":128,\"unique_bytes_written\":128") != std::string::npos);
  CHECK(json.find("\"global_load\":{\"lanes\":32,\"bytes\":128,\"sectors\":4,\"minimum\":4}") !=
        std::string::npos);
  CHECK(json.find("\"shared\":{\"lanes\":32,\"bytes\":128,\"wavefronts\":32,\"minimum\":1}") !=
        std::string::npos);
}

TEST_CASE("counts: bytes that many blocks on several threads touch are counted once, every time") {
  PtxRunner runner;
  runner.settings.threads = 4;
  runner.load(kHeader + R"(
.visible .entry k(.param .u64 p, .param .u64 q)
{ .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .pred %p<2>;
ld.param.u64 %d0, [p]; ld.param.u64 %d1, [q]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4; add.u64 %d0, %d0, %d2; mov.u32 %r2, 0;
LOOP: ld.global.f32 %f0, [%d0]; add.f32 %f1, %f1, %f0; add.u64 %d0, %d0, 128; add.u32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, 64; @%p0 bra LOOP;
mov.u32 %r1, %ctaid.x; mad.lo.u32 %r3, %r1, 32, %r0; mul.wide.u32 %d3, %r3, 4; add.u64 %d1, %d1, %d3; st.global.f32 [%d1], %f1; ret; })");
  const uint64_t p = runner.upload(std::vector<float>(64 * 32, 1.0f));
  const uint64_t q = runner.upload(std::vector<float>(64 * 32, 1.0f));
  for (int run = 0; run < 20; ++run) {
    const Counters counters = runner.run("k", {64, 1, 1}, {32, 1, 1}, {p, q});
    REQUIRE(counters.touches.read == 64 * 128);
    REQUIRE(counters.touches.written == 64 * 128);
  }
}
