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

MmaTile random_tile(std::mt19937& random, int spread) {
  MmaTile tile;
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-spread, spread);
  const auto bf16 = [&] {
    const float value = std::ldexp(normal(random), exponent(random));
    return random() % 16 == 0 ? 0.0f : bfloat_to_float(bfloat_from_float(value));
  };
  for (auto& row : tile.a)
    for (float& value : row) value = bf16();
  for (auto& row : tile.b)
    for (float& value : row) value = bf16();
  for (auto& row : tile.c)
    for (float& value : row) value = std::ldexp(normal(random), exponent(random));
  return tile;
}

}  // namespace

TEST_CASE("mma: the fast block-wise sum equals the plain one, bit for bit") {
  std::mt19937 random(3);
  for (const int spread : {0, 4, 20, 60})
    for (const int block : {8, 16})
      for (int i = 0; i < 200; ++i) {
        MmaTile fast = random_tile(random, spread);
        MmaTile plain = fast;
        const MmaRounding rounding{block, block == 8 ? 24 : 25};
        mma_hardware(fast, rounding);
        mma_hardware_reference(plain, rounding);
        for (int row = 0; row < 16; ++row)
          for (int column = 0; column < 8; ++column)
            REQUIRE(std::bit_cast<uint32_t>(fast.c[row][column]) ==
                    std::bit_cast<uint32_t>(plain.c[row][column]));
      }
}

TEST_CASE("mma: truncation drops what lies below the kept bits, and keeps what lies above") {
  MmaTile tile{};
  tile.depth = 16;
  tile.a[0][0] = 1;
  tile.b[0][0] = 1;
  for (const int bit : {24, 25, 26}) {
    tile.c[0][0] = 0;
    tile.a[0][1] = std::ldexp(1.0f, -bit);
    tile.b[1][0] = 1;
    // 2^bit copies of 2^-bit cannot be tested with 16 products; subtracting 1 shows what was kept.
    tile.a[0][2] = -1;
    tile.b[2][0] = 1;
    MmaTile a100 = tile, h100 = tile;
    mma_hardware(a100, {16, 24});
    mma_hardware(h100, {16, 25});
    CHECK(a100.c[0][0] == (bit <= 24 ? std::ldexp(1.0f, -bit) : 0.0f));
    CHECK(h100.c[0][0] == (bit <= 25 ? std::ldexp(1.0f, -bit) : 0.0f));
  }
}

TEST_CASE("mma: infinities, NaN and overflow follow ordinary arithmetic") {
  MmaTile tile{};
  tile.a[0][0] = INFINITY;
  tile.b[0][0] = 1;
  tile.a[1][0] = NAN;
  tile.a[2][0] = 0x1p127f;
  tile.a[2][1] = 0x1p127f;
  tile.b[1][0] = 1;
  mma_hardware(tile, {16, 25});
  CHECK(std::isinf(tile.c[0][0]));
  CHECK(std::isnan(tile.c[1][0]));
  CHECK(tile.c[2][0] == INFINITY);
}
