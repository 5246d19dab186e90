// Speed of the executor on one host core: warp instructions and mma.sync per second.
#include <fmt/format.h>

#include <cstdio>
#include <ctime>

#include "exec/mma_arithmetic.h"
#include "ptx_runner.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

std::string loop_kernel(const std::string& declarations, const std::string& setup,
                        const std::string& body) {
  return kHeader + ".visible .entry k(.param .u64 dst, .param .u64 count)\n{\n" + declarations +
         ".reg .b64 %dst; .reg .b32 %n; .reg .b32 %i; .reg .pred %again; .reg .b32 %t;\n"
         ".shared .align 16 .b8 tile[8192];\n"
         "ld.param.u64 %dst, [dst]; ld.param.u32 %n, [count]; mov.u32 %i, 0; mov.u32 %t, "
         "%tid.x;\n" +
         setup + "LOOP:\n" + body +
         "add.s32 %i, %i, 1; setp.lt.s32 %again, %i, %n; @%again bra LOOP;\nret;\n}\n";
}

// Time on the core, so that other work on the machine does not disturb the figures.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Speed {
  double instructions = 0;
  double of_class = 0;
};

Speed measure(const std::string& ptx, OpClass counted, uint64_t count, bool checks) {
  PtxRunner runner;
  runner.settings.threads = 1;
  runner.settings.checks = checks;
  runner.load(ptx);
  const uint64_t dst = runner.upload(std::vector<uint32_t>(1 << 16, 0));
  const double start = cpu_seconds();
  const Counters counters = runner.run("k", {8, 1, 1}, {128, 1, 1}, {dst, count});
  const double elapsed = cpu_seconds() - start;
  double total = 0, chosen = 0;
  const Code& code = *runner.program->codes[0];
  for (size_t pc = 0; pc < code.ops.size(); ++pc) {
    total += static_cast<double>(counters.issued[pc]);
    if (code.ops[pc].kind == counted) chosen += static_cast<double>(counters.issued[pc]);
  }
  return {total / elapsed, chosen / elapsed};
}

void print(const char* name, const Speed& speed, bool of_class) {
  std::printf("%-44s %8.1f M/s\n", name, (of_class ? speed.of_class : speed.instructions) * 1e-6);
}

}  // namespace

int main() {
  const std::string arithmetic = loop_kernel(
      ".reg .b32 %r<8>; .reg .f32 %f<8>;\n",
      "mov.u32 %r0, %t; mov.u32 %r1, 7; mov.f32 %f0, 0f3F800001; mov.f32 %f1, 0f3F7FFFFF;\n",
      "mad.lo.s32 %r2, %r0, %r1, %i; xor.b32 %r0, %r2, %r1; shl.b32 %r3, %r0, 3;\n"
      "add.s32 %r1, %r3, %t; fma.rn.f32 %f2, %f0, %f1, %f1; mul.f32 %f0, %f2, %f1;\n"
      "sub.f32 %f1, %f0, %f2; and.b32 %r4, %r1, 255; max.f32 %f3, %f1, %f0;\n");
  const std::string shared = loop_kernel(
      ".reg .b32 %r<8>; .reg .f32 %f<8>;\n",
      "shl.b32 %r0, %t, 4; mov.f32 %f0, 0f3F800001; st.shared.v4.f32 [%r0], {%f0,%f0,%f0,%f0};\n",
      "ld.shared.f32 %f1, [%r0]; add.f32 %f0, %f0, %f1; st.shared.f32 [%r0+4], %f0;\n"
      "ld.shared.v4.f32 {%f2,%f3,%f4,%f5}, [%r0];\n");
  const std::string global =
      loop_kernel(".reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %d<4>; .reg .b32 %c;\n",
                  "mov.u32 %c, %ctaid.x; mad.lo.s32 %r0, %c, 128, %t; mul.wide.u32 %d0, %r0, 4;\n"
                  "add.u64 %d1, %dst, %d0;\n",
                  "ld.global.f32 %f1, [%d1]; add.f32 %f0, %f1, %f1; st.global.f32 [%d1], %f0;\n");
  // Several a turn: the loop around them is ordinary code.
  std::string products;
  for (int i = 0; i < 4; ++i)
    products +=
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%d0,%d1,%d2,%d3}, "
        "{%a0,%a1,%a2,%a3}, {%a4,%a5}, {%d0,%d1,%d2,%d3};\n";
  const std::string mma =
      loop_kernel(".reg .b32 %a<8>; .reg .f32 %d<4>;\n",
                  "mov.u32 %a0, 0x3f803f81; mov.u32 %a1, 0x3f003f82; mov.u32 %a2, 0xbf803f85;\n"
                  "mov.u32 %a3, 0x3f8abf81; mov.u32 %a4, 0x3f80bf91; mov.u32 %a5, 0xbfa03f81;\n"
                  "mov.f32 %d0, 0f00000000; mov.f32 %d1, 0f00000000; mov.f32 %d2, 0f00000000;\n"
                  "mov.f32 %d3, 0f00000000;\n",
                  products);
  const std::string ex2 = loop_kernel(
      ".reg .f32 %f<4>;\n", "mov.f32 %f0, 0f3e800000; cvt.rn.f32.s32 %f0, %t; \n",
      "ex2.approx.ftz.f32 %f1, %f0; rcp.approx.ftz.f32 %f2, %f1; add.f32 %f0, %f2, 0f3e000000;\n");
  print("arithmetic, warp instructions", measure(arithmetic, OpClass::Other, 200000, true), false);
  print("ex2 and rcp, warp instructions", measure(ex2, OpClass::Other, 20000, true), false);
  print("shared memory, checks on", measure(shared, OpClass::Other, 10000, true), false);
  print("shared memory, checks off", measure(shared, OpClass::Other, 10000, false), false);
  print("global memory, checks on", measure(global, OpClass::Other, 10000, true), false);
  print("global memory, checks off", measure(global, OpClass::Other, 10000, false), false);
  int ways = 0;
  const MmaWay* way = mma_ways(ways);
  for (int i = 0; i < ways; ++i) {
    choose_mma_way(way[i]);
    print(
        fmt::format("mma.sync.m16n8k16 bf16 as the hardware, {} bits", way[i].vector_bits).c_str(),
        measure(mma, OpClass::Mma, 8000, true), true);
  }
  return 0;
}
