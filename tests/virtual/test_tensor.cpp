// Tensor copies against plain C++: one to five dimensions, boxes over the edge, every swizzle.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "driver_client.h"
#include "exec/tensor_map.h"
#include "nvrtc.h"
#include "ptx_runner.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {

// Loads a box into shared memory, shows it as it lies there, and stores it at another place.
std::string box_kernel(int rank) {
  std::string load, store;
  for (int d = 0; d < rank; ++d) {
    load += fmt::format("{}%c{}", d ? "," : "", d);
    store += fmt::format("{}%e{}", d ? "," : "", d);
  }
  std::string text =
      kHeader +
      ".visible .entry k(.param .u64 map, .param .u64 coords, .param .u64 out, .param .u64 bytes, "
      ".param .u64 target)\n{ .reg .b64 %d<8>; .reg .b32 %r<8>; .reg .b32 %c<5>; .reg .b32 %e<5>; "
      ".reg .pred %p<4>; .shared .align 1024 .b8 tile[8192]; .shared .align 8 .b8 bar[8];\n"
      "ld.param.u64 %d0, [map]; ld.param.u64 %d1, [coords]; ld.param.u64 %d2, [out]; ld.param.u32 "
      "%r0, [bytes]; ld.param.u64 %d3, [target]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 "
      "%r3, bar;\n";
  for (int d = 0; d < rank; ++d)
    text += fmt::format("ld.global.u32 %c{0}, [%d1+{1}]; ld.global.u32 %e{0}, [%d1+{2}];\n", d,
                        4 * d, 20 + 4 * d);
  text +=
      "setp.ne.u32 %p0, %r1, 0; @%p0 bra WAIT; mbarrier.init.shared.b64 [%r3], 1; "
      "fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 _, [%r3], %r0;\n" +
      fmt::format(
          "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], "
          "[%d0, {{{}}}], [%r3];\n",
          rank, load) +
      "WAIT: bar.sync 0;\n"
      "AGAIN: mbarrier.try_wait.parity.shared.b64 %p1, [%r3], 0; @!%p1 bra AGAIN;\n"
      "mov.u32 %r4, %r1;\nSHOW: setp.ge.u32 %p2, %r4, %r0; @%p2 bra STORE; add.u32 %r5, %r2, %r4; "
      "ld.shared.u8 %r6, [%r5]; cvt.u64.u32 %d4, %r4; add.u64 %d5, %d2, %d4; st.global.u8 [%d5], "
      "%r6; add.u32 %r4, %r4, 32; bra SHOW;\nSTORE: bar.sync 0; @%p0 bra DONE;\n" +
      fmt::format("cp.async.bulk.tensor.{}d.global.shared::cta.bulk_group [%d3, {{{}}}], [%r2];\n",
                  rank, store) +
      "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nDONE: ret; }\n";
  return text;
}

struct Tensor {
  std::vector<uint32_t> dims, box;
  uint32_t element, span;
  std::vector<int32_t> from, to;

  uint32_t box_bytes() const {
    return std::accumulate(box.begin(), box.end(), element, std::multiplies<>());
  }
  // Rows are padded to 16 bytes.
  std::vector<uint64_t> strides() const {
    std::vector<uint64_t> all{element};
    for (size_t d = 0; d + 1 < dims.size(); ++d)
      all.push_back((all.back() * dims[d] + 15) / 16 * 16);
    return all;
  }
  uint64_t bytes() const { return strides().back() * dims.back(); }
  TensorMap map(uint64_t address) const {
    TensorMap made;
    made.magic = TensorMap::kMagic;
    made.address = address;
    made.rank = static_cast<uint8_t>(dims.size());
    made.element_bytes = static_cast<uint8_t>(element);
    made.span = static_cast<uint8_t>(span);
    for (size_t d = 0; d < dims.size(); ++d) {
      made.dims[d] = dims[d];
      made.box[d] = static_cast<uint16_t>(box[d]);
      if (d) made.strides[d - 1] = strides()[d];
    }
    return made;
  }
};

// Visits every element of the box: f(number in the box, byte in the tensor or -1).
template <class F>
void visit(const Tensor& t, const std::vector<int32_t>& origin, F f) {
  std::vector<uint32_t> at(t.dims.size(), 0);
  const uint32_t count = t.box_bytes() / t.element;
  for (uint32_t i = 0; i < count; ++i) {
    int64_t byte = 0;
    bool inside = true;
    for (size_t d = 0; d < at.size(); ++d) {
      const int64_t index = int64_t{origin[d]} + at[d];
      inside = inside && index >= 0 && index < int64_t{t.dims[d]};
      byte += index * static_cast<int64_t>(t.strides()[d]);
    }
    f(i, inside ? byte : -1);
    for (size_t d = 0; d < at.size(); ++d) {
      if (++at[d] < t.box[d]) break;
      at[d] = 0;
    }
  }
}

void check_box(const Tensor& t) {
  PtxRunner runner;
  runner.load(box_kernel(static_cast<int>(t.dims.size())));
  std::vector<uint8_t> numbers(t.bytes());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint8_t>(1 + i * 7 % 250);
  const uint64_t source = runner.upload(numbers);
  const uint64_t target = runner.upload(std::vector<uint8_t>(t.bytes(), 0));
  const uint64_t map = runner.upload(std::vector<TensorMap>{t.map(source)});
  const uint64_t target_map = runner.upload(std::vector<TensorMap>{t.map(target)});
  std::vector<int32_t> coordinates(10, 0);
  std::copy(t.from.begin(), t.from.end(), coordinates.begin());
  std::copy(t.to.begin(), t.to.end(), coordinates.begin() + 5);
  const uint64_t coords = runner.upload(coordinates);
  const uint64_t out = runner.upload(std::vector<uint8_t>(t.box_bytes(), 0));
  runner.run("k", {1, 1, 1}, {32, 1, 1}, {map, coords, out, t.box_bytes(), target_map});
  CHECK_MESSAGE(runner.findings.size() == 0, runner.findings.json());
  std::vector<uint8_t> box(t.box_bytes(), 0), expected(t.bytes(), 0), shown(t.box_bytes(), 0);
  visit(t, t.from, [&](uint32_t i, int64_t byte) {
    if (byte >= 0) std::copy_n(numbers.begin() + byte, t.element, box.begin() + i * t.element);
  });
  // Pieces of 16 bytes: the number within the span is exchanged with bits of the 128-byte line's.
  for (uint32_t piece = 0; piece < box.size() / 16; ++piece) {
    uint32_t number = piece;
    if (t.span) number = piece ^ (piece / 8 % (t.span / 16));
    std::copy_n(box.begin() + piece * 16, 16, shown.begin() + number * 16);
  }
  CHECK(runner.download<uint8_t>(out, t.box_bytes()) == shown);
  visit(t, t.to, [&](uint32_t i, int64_t byte) {
    if (byte >= 0) std::copy_n(box.begin() + i * t.element, t.element, expected.begin() + byte);
  });
  CHECK(runner.download<uint8_t>(target, t.bytes()) == expected);
}

}  // namespace

TEST_CASE("tensor copies: one to five dimensions, inside and over every edge") {
  check_box({{100}, {32}, 4, 0, {10}, {90}});
  check_box({{40, 20}, {16, 8}, 2, 0, {3, 5}, {-5, 15}});
  check_box({{40, 20}, {16, 8}, 2, 0, {-3, -2}, {30, 0}});
  check_box({{24, 6, 5}, {16, 4, 3}, 1, 0, {4, 3, 3}, {0, -1, 0}});
  check_box({{12, 5, 4, 3}, {4, 2, 2, 2}, 8, 0, {9, 3, 2, 2}, {1, 0, 0, 0}});
  check_box({{9, 4, 3, 3, 2}, {8, 2, 2, 2, 2}, 4, 0, {2, 1, 2, 0, 1}, {0, 0, 0, 0, 0}});
}

TEST_CASE("tensor copies: every swizzle, loaded and stored") {
  check_box({{64, 32}, {16, 16}, 2, 32, {8, 4}, {0, 0}});
  check_box({{64, 32}, {32, 16}, 2, 64, {8, 4}, {40, 20}});
  check_box({{128, 40}, {64, 16}, 2, 128, {8, 30}, {100, 0}});
  check_box({{128, 40, 3}, {32, 8, 2}, 4, 128, {8, 3, 1}, {0, 0, 0}});
}

TEST_CASE("tensor copies: a map that is none, and a box over the allocation, are found") {
  PtxRunner runner;
  runner.load(box_kernel(2));
  const Tensor t{{40, 20}, {16, 8}, 2, 0, {0, 0}, {0, 0}};
  const uint64_t coords = runner.upload(std::vector<int32_t>(10, 0));
  const uint64_t out = runner.upload(std::vector<uint8_t>(t.box_bytes(), 0));
  const uint64_t nothing = runner.upload(std::vector<uint8_t>(128, 1));
  CHECK_THROWS_AS(runner.run("k", {1, 1, 1}, {32, 1, 1}, {nothing, coords, out, 256, nothing}),
                  KernelFault);
  const uint64_t small = runner.upload(std::vector<uint8_t>(64, 1));
  const uint64_t map = runner.upload(std::vector<TensorMap>{t.map(small)});
  CHECK_THROWS_AS(runner.run("k", {1, 1, 1}, {32, 1, 1}, {map, coords, out, 256, map}),
                  KernelFault);
}

TEST_CASE("tensor copies: maps of the driver, a kernel compiled by NVRTC") {
  const std::string source = R"(
struct __align__(64) Map { unsigned long long opaque[16]; };
extern "C" __global__ void tile(const __grid_constant__ Map map, float* out) {
  __shared__ __align__(128) float box[8][16];
  __shared__ __align__(8) unsigned long long bar;
  unsigned b = (unsigned)__cvta_generic_to_shared(&bar), s = (unsigned)__cvta_generic_to_shared(box);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(b));
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;" :: "r"(b) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
      :: "r"(s), "l"(&map), "r"((int)blockIdx.x * 16 - 8), "r"(4), "r"(b) : "memory");
  }
  __syncthreads();
  asm volatile("{ .reg .pred p;\nWAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra WAIT; }" :: "r"(b) : "memory");
  for (int i = threadIdx.x; i < 128; i += 32) out[blockIdx.x * 128 + i] = box[i / 16][i % 16];
}
)";
  Session session(compile_cuda(source, "sm_90", "tile.cu"));
  auto& client = DriverClient::get();
  void* entry = nullptr;
  REQUIRE(client.cuGetProcAddress_v2("cuTensorMapEncodeTiled", &entry, 12000, 0, nullptr) == 0);
  const auto encode =
      reinterpret_cast<int (*)(void*, int, unsigned, void*, const uint64_t*, const uint64_t*,
                               const uint32_t*, const uint32_t*, int, int, int, int)>(entry);
  std::vector<float> numbers(20 * 24);
  std::iota(numbers.begin(), numbers.end(), 1.0f);
  DevicePointer in = session.upload(numbers), out = session.allocate(2 * 128 * 4);
  alignas(64) uint64_t map[16];
  const uint64_t dims[] = {24, 20}, strides[] = {96};
  const uint32_t box[] = {16, 8}, steps[] = {1, 1};
  const auto made = [&](int type, int swizzle, const uint32_t* wanted) {
    return encode(map, type, 2, reinterpret_cast<void*>(in), dims, strides, wanted, steps, 0,
                  swizzle, 0, 0);
  };
  const uint32_t uneven[] = {6, 8};
  CHECK(made(7, 0, uneven) == 1);  // 24 bytes a row: not a multiple of 16
  CHECK(made(7, 1, box) == 1);     // 64 bytes a row do not fit a swizzle of 32
  REQUIRE(made(7, 0, box) == 0);
  CHECK_MESSAGE(session.launch("tile", 2, 32, {map, &out}) == 0,
                client.linnet_virtual_last_error());
  const auto got = session.download<float>(out, 256);
  int wrong = 0;
  for (int block = 0; block < 2; ++block)
    for (int i = 0; i < 128; ++i) {
      const int x = block * 16 - 8 + i % 16, y = 4 + i / 16;
      const float expected = x < 0 || x >= 24 ? 0.0f : numbers[static_cast<size_t>(y * 24 + x)];
      wrong += got[static_cast<size_t>(block * 128 + i)] != expected;
    }
  CHECK(wrong == 0);
}

TEST_CASE("tensor copies: a multicast lands in every block it names, and in no other") {
  // Blocks 0 and 2 of a cluster of four ask for a box for blocks {0, 1, 3} and {2}; every block
  // waits at its own barrier for 256 bytes and shows what came.
  PtxRunner runner;
  runner.load(kHeader + R"(
.visible .entry k(.param .u64 map, .param .u64 out) .reqnctapercluster 4, 1, 1
{ .reg .b64 %d<8>; .reg .b32 %r<16>; .reg .b16 %h<4>; .reg .pred %p<8>;
.shared .align 128 .b8 tile[256]; .shared .align 8 .b8 bar[8];
ld.param.u64 %d0, [map]; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, tile; mov.u32 %r3, bar;
setp.ne.u32 %p0, %r0, 0; @%p0 bra READY;
mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 256;
READY: barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
@%p0 bra WAIT;
and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 1; @%p1 bra WAIT;
setp.eq.u32 %p2, %r1, 0; selp.b32 %r5, 11, 4, %p2; cvt.u16.u32 %h0, %r5; mul.lo.u32 %r6, %r1, 8;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%d0, {%r6, 1}], [%r3], %h0;
WAIT: bar.sync 0;
AGAIN: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0; @!%p3 bra AGAIN;
shl.b32 %r7, %r0, 3; add.u32 %r8, %r2, %r7; ld.shared.u64 %d2, [%r8];
mad.lo.u32 %r9, %r1, 256, %r7; cvt.u64.u32 %d3, %r9; add.u64 %d4, %d1, %d3; st.global.u64 [%d4], %d2;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; ret; })");
  const Tensor t{{64, 20}, {16, 8}, 2, 0, {}, {}};
  std::vector<uint16_t> numbers(64 * 20);
  std::iota(numbers.begin(), numbers.end(), uint16_t{1});
  const uint64_t map = runner.upload(std::vector<TensorMap>{t.map(runner.upload(numbers))});
  const uint64_t out = runner.upload(std::vector<uint16_t>(4 * 128, 0));
  runner.cluster = {4, 1, 1};
  runner.run("k", {4, 1, 1}, {32, 1, 1}, {map, out});
  CHECK_MESSAGE(runner.findings.size() == 0, runner.findings.json());
  const auto got = runner.download<uint16_t>(out, 4 * 128);
  int wrong = 0;
  for (size_t block = 0; block < 4; ++block)
    for (size_t i = 0; i < 128; ++i) {
      const size_t x = (block == 2 ? 16 : 0) + i % 16, y = 1 + i / 16;
      wrong += got[block * 128 + i] != numbers[y * 64 + x];
    }
  CHECK(wrong == 0);
}
