// The cost model: clocks of a block, bounds of kernels, and counts scaled from small runs.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "counts/report.h"
#include "model/scaling.h"
#include "ptx_runner.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

std::string kernel(const std::string& body) {
  return kHeader +
         ".visible .entry k(.param .u64 p, .param .u64 n)\n{ .reg .b64 %d<8>; .reg .b32 %r<8>; "
         ".reg .f32 %f<16>; .reg .pred %q<2>; .shared .align 16 .b8 tile[4096];\n"
         "ld.param.u64 %d0, [p]; ld.param.u32 %r3, [n]; mov.u32 %r0, %tid.x; mov.u32 %r1, "
         "%ctaid.x; mad.lo.u32 %r2, %r1, 32, %r0; mul.wide.u32 %d1, %r2, 4; add.u64 %d0, %d0, "
         "%d1;\nmov.f32 %f0, 0f3F800000; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f3F800000;\n" +
         body + "\nret; }";
}

std::string repeated(int times, const std::string& line) {
  std::string text;
  for (int i = 0; i < times; ++i) text += line + "\n";
  return text;
}

KernelCounts count(const std::string& body, uint32_t blocks, uint64_t n = 1,
                   const std::string& arch = "sm_90", uint32_t threads = 32) {
  PtxRunner runner(arch);
  runner.load(kernel(body));
  const uint64_t p = runner.upload(std::vector<float>(32 * 4096, 1.0f));
  LaunchReport report;
  report.kernel = "k";
  report.grid[0] = blocks;
  report.block[0] = threads;
  report.program = runner.program.get();
  report.counters = runner.run("k", {blocks, 1, 1}, {threads, 1, 1}, {p, n});
  return KernelCounts(launch_record(report));
}

double clocks(const std::string& body, uint32_t threads = 32) {
  return count(body, 1, 1, "sm_90", threads)[LINNET_COUNT_BLOCK_CLOCKS];
}

std::string loop(const std::string& body) {
  return "mov.u32 %r4, 0;\nAGAIN:\n" + body +
         "add.u32 %r4, %r4, 1; setp.lt.u32 %q0, %r4, %r3; @%q0 bra AGAIN;\n";
}

}  // namespace

TEST_CASE("model: a chain of operations takes its latencies, independent ones the pipe's time") {
  const double start = clocks("");
  const double chain = clocks(repeated(100, "fma.rn.f32 %f0, %f0, %f1, %f2;")) - start;
  CHECK(chain >= 400 - 40);  // 4 clocks each, partly hidden behind what is in front
  CHECK(chain <= 420);
  const double apart = clocks(repeated(100, "fma.rn.f32 %f3, %f0, %f1, %f2;")) - start;
  CHECK(apart <= 110);
  // 16 lanes of MUFU serve a warp in 8 clocks a scheduler.
  const double mufu = clocks(repeated(100, "ex2.approx.f32 %f3, %f0;")) - start;
  CHECK(mufu >= 760);
  CHECK(mufu <= 830);
}

TEST_CASE("model: a dependent load waits for memory, and a barrier for the slowest warp") {
  const double global = find_profile("sm_90")->latency_global;
  const double start = clocks("");
  CHECK(clocks("ld.global.f32 %f3, [%d0]; add.f32 %f3, %f3, %f3;") >= global);
  // Two independent loads overlap; one whose address comes from another does not.
  CHECK(clocks("ld.global.f32 %f3, [%d0]; ld.global.f32 %f4, [%d0+4096]; add.f32 %f3, %f3, %f4;") <
        global + start + 60);
  CHECK(clocks("ld.global.u32 %r5, [%d0]; and.b32 %r5, %r5, 4; cvt.u64.u32 %d2, %r5; add.u64 %d3, "
               "%d0, %d2; ld.global.f32 %f4, [%d3]; add.f32 %f3, %f4, %f4;") >= 2 * global);
  // Only warp 1 loads before the barrier, warp 0 behind it: both latencies in a row.
  const std::string uneven =
      "setp.ge.u32 %q0, %r0, 32; @!%q0 bra MEET; ld.global.f32 %f3, [%d0]; st.shared.f32 [tile], "
      "%f3;\nMEET: bar.sync 0; @%q0 bra DONE; ld.global.f32 %f4, [%d0]; st.shared.f32 [tile+64], "
      "%f4;\nDONE:";
  CHECK(clocks(uneven, 64) >= 2 * global);
}

TEST_CASE("model: copies in flight cost their latency at the wait, not at the issue") {
  const double global = find_profile("sm_90")->latency_global;
  const std::string copy =
      "mul.lo.u32 %r5, %r0, 16; mov.u32 %r6, tile; add.u32 %r5, %r5, %r6; shl.b32 %r7, %r0, 4; "
      "cvt.u64.u32 %d4, %r7; ld.param.u64 %d5, [p]; add.u64 %d5, %d5, %d4;\n"
      "cp.async.cg.shared.global [%r5], [%d5], 16; cp.async.commit_group;\n";
  const std::string work = repeated(100, "fma.rn.f32 %f0, %f0, %f1, %f2;");  // 400 clocks
  const double hidden = clocks(copy + work + "cp.async.wait_group 0; ld.shared.f32 %f5, [%r5];");
  const double exposed = clocks(copy + "cp.async.wait_group 0; ld.shared.f32 %f5, [%r5];\n" +
                                repeated(100, "fma.rn.f32 %f5, %f5, %f1, %f2;"));
  CHECK(exposed - hidden > 300);
  CHECK(hidden > global);
}

TEST_CASE("model: what bounds a kernel is found") {
  const DeviceProfile& h100 = *find_profile("sm_90");
  // A copy of large arrays moves bytes and does little else: DRAM.
  KernelCounts copy =
      count("ld.global.f32 %f3, [%d0]; add.f32 %f3, %f3, %f0; st.global.f32 [%d0], %f3;", 64);
  for (double& c : copy.counts) c *= 1e5;
  copy.counts[LINNET_COUNT_BLOCK_CLOCKS] /= 1e5;
  copy.threads = 32;
  Cost cost = model_cost(h100, copy, {32, 0});
  CHECK(copy.bytes_compulsory() == copy.bytes_moved());
  CHECK(cost.parts[0] == doctest::Approx(copy.bytes_compulsory() / (3350e9 * 0.92)));
  // One block that runs a chain: latency.
  cost = model_cost(h100, count(repeated(20000, "fma.rn.f32 %f0, %f0, %f1, %f2;"), 1), {32, 0});
  CHECK(cost.bound == Bound::latency);
  CHECK(cost.seconds == doctest::Approx(80000 / 1.98e9 + 2.2e-6).epsilon(0.02));
  // Next to nothing: the launch itself.
  CHECK(model_cost(h100, count("", 1), {32, 0}).bound == Bound::launch);
  // Many warps of products: tensor cores, at what mma.sync reaches of them.
  KernelCounts products =
      count(repeated(100,
                     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4,%f5,%f6,%f7}, "
                     "{%r0,%r1,%r2,%r3}, {%r0,%r1}, {%f0,%f1,%f2,%f0};"),
            132);
  CHECK(products[LINNET_COUNT_FLOP] == 132 * 100 * 4096.0);
  for (double& c : products.counts) c *= 1000;
  products.counts[LINNET_COUNT_BLOCK_CLOCKS] /= 1000;
  cost = model_cost(h100, products, {64, 0});
  CHECK(cost.bound == Bound::tensor);
  CHECK(cost.parts[2] == doctest::Approx(products[LINNET_COUNT_FLOP] / (989e12 * 0.63)));
}

TEST_CASE("model: registers, shared memory and threads limit the blocks of an SM") {
  const DeviceProfile& a100 = *find_profile("sm_80");
  KernelCounts counts = count("", 1, 1, "sm_80");
  counts.threads = 128;
  const auto blocks = [&](int registers, int shared) {
    counts.shared_bytes = shared;
    return model_cost(a100, counts, {registers, 0}).blocks_per_sm;
  };
  CHECK(blocks(32, 0) == 16);        // 2048 threads
  CHECK(blocks(168, 0) == 3);        // 65536 / (168 * 128)
  CHECK(blocks(32, 60 << 10) == 2);  // 164 KB
  counts.threads = 32;
  CHECK(blocks(16, 0) == 32);
}

TEST_CASE("model: ptxas's log is read") {
  const std::string log =
      "ptxas info    : Compiling entry function 'first' for 'sm_80'\nptxas info    : Function "
      "properties for first\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 400 bytes cmem[0]\n"
      "ptxas info    : Compiling entry function 'second' for 'sm_80'\n"
      "    8 bytes stack frame, 12 bytes spill stores, 4 bytes spill loads\n"
      "ptxas info    : Used 255 registers\n";
  CHECK(resources_of(log, "first").registers == 168);
  CHECK(resources_of(log, "first").spilled_bytes == 0);
  CHECK(resources_of(log, "second").registers == 255);
  CHECK(resources_of(log, "second").spilled_bytes == 12);
  CHECK(resources_of(log, "third").registers == 0);
}

TEST_CASE("model: counts of small runs scale to a large one exactly where the law holds") {
  const auto call = [](const std::string& body, int64_t tokens, int64_t heads) {
    return CountedCall{{1, tokens, heads},
                       {count(loop(body), static_cast<uint32_t>(heads), tokens / 16)}};
  };
  const std::string even = "ld.global.f32 %f3, [%d0]; fma.rn.f32 %f0, %f3, %f1, %f0;\n";
  const CallShape large{1, 1600, 12};
  const ScaledCall scaled =
      scale({call(even, 48, 2), call(even, 64, 2), call(even, 96, 2)}, large, 16);
  CHECK(scaled.exact);
  const CountedCall truth = call(even, 1600, 12);
  for (size_t i = 0; i < LINNET_COUNTS; ++i) {
    CAPTURE(i);
    if (i == LINNET_COUNT_BLOCK_CLOCKS)
      CHECK(scaled.kernels[0].counts[i] ==
            doctest::Approx(truth.kernels[0].counts[i]).epsilon(0.01));
    else
      CHECK(scaled.kernels[0].counts[i] == truth.kernels[0].counts[i]);
  }
  // A part of a chunk does not follow the law, and neither does work that grows as the square.
  CHECK_FALSE(
      scale({call(even, 48, 2), call(even, 64, 2), call(even, 96, 2)}, {1, 1601, 12}, 16).exact);
  const std::string uneven =
      "mov.u32 %r5, 0;\nINNER: add.u32 %r5, %r5, 1; setp.lt.u32 %q1, %r5, %r4; @%q1 bra INNER;\n";
  const ScaledCall estimate =
      scale({call(uneven, 48, 2), call(uneven, 64, 2), call(uneven, 96, 2)}, large, 16);
  CHECK_FALSE(estimate.exact);
  CHECK(estimate.errors[0] > 0.01);
}

TEST_CASE("model: counts of a few short segments scale to many long ones") {
  // A block for every segment and head, a turn for every chunk of it.
  const auto call = [](const CallShape& shape) {
    const std::string body = "ld.global.f32 %f3, [%d0]; fma.rn.f32 %f0, %f3, %f1, %f0;\n";
    const auto blocks = static_cast<uint32_t>(shape.value_heads * shape.tokens / shape.segment);
    return CountedCall{shape, {count(loop(body), blocks, shape.segment / 16)}};
  };
  const CallShape large{1, 20 * 25 * 16, 12, 25 * 16};
  std::vector<CountedCall> calls;
  for (const CallShape& small : small_calls(large, 16, 2)) calls.push_back(call(small));
  CHECK(calls.size() == 5);
  const ScaledCall scaled = scale(calls, large, 16);
  CHECK(scaled.exact);
  const CountedCall truth = call(large);
  for (size_t i = 0; i < LINNET_COUNTS; ++i) {
    CAPTURE(i);
    if (i != LINNET_COUNT_BLOCK_CLOCKS)
      CHECK(scaled.kernels[0].counts[i] == truth.kernels[0].counts[i]);
  }
  CHECK(scaled.kernels[0][LINNET_COUNT_BLOCK_CLOCKS] ==
        doctest::Approx(truth.kernels[0][LINNET_COUNT_BLOCK_CLOCKS]).epsilon(0.01));
  // A sequence that is not longer than a segment is not cut, and a last segment may be short.
  CHECK(small_calls({1, 400, 12, 400}, 16, 2).size() == 3);
  CHECK_FALSE(scale(calls, {1, 20 * 25 * 16 + 16, 12, 25 * 16}, 16).exact);
}
