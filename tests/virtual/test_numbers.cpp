#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "exec/mma_arithmetic.h"
#include "exec/numbers.h"

using namespace linnet::vgpu;

TEST_CASE("numbers: every half converts to float and back to itself") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = half_to_float(half);
    if (value != value) continue;
    REQUIRE(value == decode_float(bits, kFormatF16));
    REQUIRE(half_from_float(value) == half);
  }
}

TEST_CASE("numbers: the fast encoders agree with the slow one") {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    REQUIRE(half_from_float(value) == encode_float(value, kFormatF16, Rounding::Nearest, false));
    REQUIRE(bfloat_from_float(value) == encode_float(value, kFormatBF16, Rounding::Nearest, false));
  }
}

TEST_CASE("numbers: the slow encoder is the compiler's conversion for f32") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100000; ++i) {
    const double value =
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 180);
    REQUIRE(encode_float(value, kFormatF32, Rounding::Nearest, false) ==
            std::bit_cast<uint32_t>(static_cast<float>(value)));
  }
}

namespace {

// Factors of a format, from any bits.
struct Numbers {
  std::string name;
  int smallest_exponent;
  float (*from)(uint32_t bits);

  float cut(float value) const {
    if (name == "f16") return half_to_float(half_from_float(value));
    return from(std::bit_cast<uint32_t>(value) >> (name == "bf16" ? 16 : 0));
  }
};
const Numbers kNumbers[] = {
    {"bf16", -126, [](uint32_t bits) { return bfloat_to_float(static_cast<uint16_t>(bits)); }},
    {"f16", -14, [](uint32_t bits) { return half_to_float(static_cast<uint16_t>(bits)); }},
    {"tf32", -126, [](uint32_t bits) { return std::bit_cast<float>(bits & 0xffff'e000u); }}};

template <class A, class B, class C>
void fill(MmaTile& tile, A a, B b, C c) {
  for (int k = 0; k < tile.depth; ++k) {
    for (int row = 0; row < 16; ++row) tile.a_at(row, k) = a();
    for (int column = 0; column < 8; ++column) tile.b_at(k, column) = b();
  }
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) tile.c_at(row, column) = c();
  find_exponents_a(tile);
  find_exponents_b(tile);
}

// Every way this processor has gives the bits of the plain one, or leaves the tile to it. Returns
// how many of them computed the tile themselves.
int check_ways(const MmaTile& tile, const MmaRounding& rounding) {
  MmaTile plain = tile;
  mma_hardware_reference(plain, rounding);
  int count = 0, taken = 0;
  const MmaWay* ways = mma_ways(count);
  for (int way = 0; way < count; ++way) {
    MmaTile fast = tile;
    const bool done = ways[way].multiply(fast, rounding);
    taken += done;
    const MmaTile& expected = done ? plain : tile;
    CAPTURE(ways[way].vector_bits);
    for (int i = 0; i < 128; ++i) {
      const float got = fast.c[i / 16][i / 2 % 8][i % 2];
      const float wanted = expected.c[i / 16][i / 2 % 8][i % 2];
      CAPTURE(got);
      CAPTURE(wanted);
      REQUIRE((std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(wanted) ||
               (got != got && wanted != wanted)));
    }
  }
  return taken;
}

constexpr struct {
  int depth, block;
} kShapes[] = {{16, 16}, {16, 8}, {8, 8}, {8, 4}, {4, 4}};

}  // namespace

TEST_CASE("mma: the fast block-wise sums equal the plain one, bit for bit, numbers of any size") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Numbers& numbers : kNumbers)
    for (const auto& shape : kShapes)
      for (const int spread : {0, 4, 20, 60}) {
        CAPTURE(numbers.name);
        int taken = 0;
        for (int i = 0; i < 40; ++i) {
          MmaTile tile;
          tile.depth = shape.depth;
          tile.smallest_exponent = numbers.smallest_exponent;
          std::uniform_int_distribution<int> exponent(-spread, spread);
          const auto factor = [&] {
            if (random() % 16 == 0) return random() % 2 ? 0.0f : -0.0f;
            return numbers.cut(std::ldexp(normal(random), exponent(random)));
          };
          fill(tile, factor, factor, [&] { return std::ldexp(normal(random), exponent(random)); });
          taken += check_ways(tile, {shape.block, shape.block == 8 ? 24 : 25});
        }
        // The fast ways are what is tested: ordinary numbers never leave them.
        int count = 0;
        mma_ways(count);
        if (spread <= 4) CHECK(taken == 40 * count);
      }
}

TEST_CASE("mma: the fast block-wise sums equal the plain one on any bits") {
  std::mt19937 random(4);
  int taken = 0;
  for (const Numbers& numbers : kNumbers)
    for (const auto& shape : kShapes)
      for (int i = 0; i < 200; ++i) {
        CAPTURE(numbers.name);
        MmaTile tile;
        tile.depth = shape.depth;
        tile.smallest_exponent = numbers.smallest_exponent;
        const bool finite = i % 2;  // half of the tiles have no infinity or NaN
        const auto factor = [&] {
          float value = numbers.from(static_cast<uint32_t>(random()));
          while (finite && !std::isfinite(value))
            value = numbers.from(static_cast<uint32_t>(random()));
          // Products of any two numbers nearly always leave the range of f32.
          return i % 4 == 1 && std::fabs(value) > 0x1p20f ? numbers.cut(1 / value) : value;
        };
        const auto addend = [&] {
          const auto bits = static_cast<uint32_t>(random());
          return std::bit_cast<float>(i % 3 && finite ? bits & 0xbfff'ffffu : bits);
        };
        fill(tile, factor, factor, addend);
        taken += check_ways(tile, {shape.block, 25});
      }
  CHECK(taken > 100);
}

TEST_CASE("mma: sums at the ends of 32 bits, of largest and smallest factors, and of zeros") {
  for (const Numbers& numbers : kNumbers)
    for (const auto& shape : kShapes)
      for (const float sign : {1.0f, -1.0f})
        for (const float c :
             {0.0f, -0.0f, 0x1.fffffep0f, -0x1.fffffep0f, 0x1.fffffep1f, 0x1p-126f, 0x1p-149f}) {
          MmaTile tile;
          tile.depth = shape.depth;
          tile.smallest_exponent = numbers.smallest_exponent;
          const bool is_half = numbers.smallest_exponent == -14;
          // The largest mantissa, the smallest normal and subnormal number, and zero.
          for (const float value :
               {is_half ? 0x1.ffcp0f : 0x1.fep0f, is_half ? 0x1p-14f : 0x1p-126f,
                is_half ? 0x1p-24f : 0x1p-133f, 0.0f}) {
            for (const float other : {value, is_half ? 0x1.ffcp0f : 0x1.fep0f, -0.0f}) {
              fill(tile, [&] { return sign * value; }, [&] { return other; }, [&] { return c; });
              check_ways(tile, {shape.block, 25});
            }
          }
        }
}

TEST_CASE("mma: truncation drops what lies below the kept bits, and keeps what lies above") {
  MmaTile tile{};
  tile.depth = 16;
  tile.a_at(0, 0) = 1;
  tile.b_at(0, 0) = 1;
  for (const int bit : {24, 25, 26}) {
    tile.c_at(0, 0) = 0;
    tile.a_at(0, 1) = std::ldexp(1.0f, -bit);
    tile.b_at(1, 0) = 1;
    // 2^bit copies of 2^-bit cannot be tested with 16 products; subtracting 1 shows what was kept.
    tile.a_at(0, 2) = -1;
    tile.b_at(2, 0) = 1;
    find_exponents_a(tile);
    find_exponents_b(tile);
    MmaTile a100 = tile, h100 = tile;
    mma_hardware(a100, {16, 24});
    mma_hardware(h100, {16, 25});
    CHECK(a100.c_at(0, 0) == (bit <= 24 ? std::ldexp(1.0f, -bit) : 0.0f));
    CHECK(h100.c_at(0, 0) == (bit <= 25 ? std::ldexp(1.0f, -bit) : 0.0f));
  }
}

TEST_CASE("mma: infinities, NaN and overflow follow ordinary arithmetic") {
  MmaTile tile{};
  tile.a_at(0, 0) = INFINITY;
  tile.b_at(0, 0) = 1;
  tile.a_at(1, 0) = NAN;
  tile.a_at(2, 0) = 0x1p127f;
  tile.a_at(2, 1) = 0x1p127f;
  tile.b_at(1, 0) = 1;
  find_exponents_a(tile);
  find_exponents_b(tile);
  mma_hardware(tile, {16, 25});
  CHECK(std::isinf(tile.c_at(0, 0)));
  CHECK(std::isnan(tile.c_at(1, 0)));
  CHECK(tile.c_at(2, 0) == INFINITY);
}
