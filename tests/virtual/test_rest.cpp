// Instructions that belong to no other file, and the check that every opcode is executed by some
// test.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "op_check.h"
#include "ptx/instruction_table.h"
#include "ptx_runner.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

// Instructions on 32-bit registers %r0 (in), %r1 (in) and %r2 (out).
std::vector<uint64_t> run32(const std::string& body, const std::vector<std::vector<uint64_t>>& in) {
  return run_lanes(
      "cvt.u32.u64 %r0, %in0; cvt.u32.u64 %r1, %in1;\n" + body + "\ncvt.u64.u32 %out, %r2;", in,
      ".reg .b32 %r<8>; .reg .b64 %q<4>; .reg .pred %p<2>;");
}

}  // namespace

TEST_CASE("rest: products of 24 bits with a sum") {
  const std::vector<std::vector<uint64_t>> in = {patterns(1), patterns(2)};
  const auto low = run32("mad24.lo.u32 %r2, %r0, %r1, %r0;", in);
  const auto high = run32("mad24.hi.s32 %r2, %r0, %r1, %r0;", in);
  const auto sign24 = [](uint64_t x) { return static_cast<int32_t>(x << 8) >> 8; };
  for (size_t i = 0; i < 32; ++i) {
    const auto a = static_cast<uint32_t>(in[0][i]);
    const uint64_t product = (in[0][i] & 0xffffff) * (in[1][i] & 0xffffff);
    CHECK(low[i] == static_cast<uint32_t>(static_cast<uint32_t>(product) + a));
    const int64_t wide = int64_t{sign24(in[0][i])} * sign24(in[1][i]);
    CHECK(high[i] == static_cast<uint32_t>(static_cast<uint32_t>(wide >> 16) + a));
  }
}

TEST_CASE("rest: the n-th set bit, counted up and down from a base") {
  std::vector<std::vector<uint64_t>> in = {patterns(3), std::vector<uint64_t>(32)};
  for (size_t i = 0; i < 32; ++i) in[1][i] = i;
  for (const int n : {1, 2, 3, -1, -2, 0}) {
    CAPTURE(n);
    const auto got = run32(fmt::format("fns.b32 %r2, %r0, %r1, {};", n), in);
    for (size_t i = 0; i < 32; ++i) {
      const auto mask = static_cast<uint32_t>(in[0][i]);
      uint32_t expected = ~0u;
      int left = std::abs(n);
      const int step = n < 0 ? -1 : 1;
      for (int bit = static_cast<int>(i); bit >= 0 && bit < 32; bit += step) {
        if (!(mask >> bit & 1)) {
          if (n == 0) break;
          continue;
        }
        if (n == 0 || --left == 0) {
          expected = static_cast<uint32_t>(bit);
          break;
        }
      }
      CHECK(got[i] == expected);
    }
  }
}

TEST_CASE("rest: hints change nothing") {
  const auto in = std::vector<std::vector<uint64_t>>{patterns(4), patterns(5)};
  const auto got = run32(
      "prefetch.global.L2 [%a0]; prefetchu.L1 [%a0]; createpolicy.fractional.L2::evict_first.b64 "
      "%q0, 0f3F800000; nanosleep.u32 20; pmevent 3; griddepcontrol.wait; "
      "griddepcontrol.launch_dependents; setmaxnreg.inc.sync.aligned.u32 64; add.u32 %r2, %r0, "
      "%r1;",
      in);
  for (size_t i = 0; i < 32; ++i) CHECK(got[i] == static_cast<uint32_t>(in[0][i] + in[1][i]));
}

TEST_CASE("rest: ldu reads, a trap and a breakpoint end the kernel, an address knows its block") {
  const auto in = std::vector<std::vector<uint64_t>>{patterns(6), patterns(7)};
  const auto got = run32("ldu.global.u32 %r2, [%a0];", in);
  for (size_t i = 0; i < 32; ++i) CHECK(got[i] == static_cast<uint32_t>(in[0][i]));
  CHECK_THROWS_AS(run32("trap;", in), KernelFault);
  CHECK_THROWS_AS(run32("brkpt;", in), KernelFault);
  CHECK(run32("mov.u32 %r3, 64; getctarank.shared::cluster.u32 %r2, %r3;", in)[0] == 0);
}

TEST_CASE("rest: every opcode of the table is executed by a unit test") {
  std::string text;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(LINNET_SOURCE_DIR) + "/tests/virtual")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("test_") || name.starts_with("test_parser") ||
        name.starts_with("test_fuzz"))
      continue;
    std::ostringstream all;
    all << std::ifstream(entry.path()).rdbuf();
    text += all.str();
  }
  REQUIRE(text.size() > 10000);
  for (const std::string_view opcode : known_opcodes()) {
    const std::regex used("(^|[^a-z0-9_%.])" + std::string(opcode) + "[. ;]");
    CHECK_MESSAGE(std::regex_search(text, used), std::string(opcode));
  }
}
