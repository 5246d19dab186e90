#include <cfenv>
#include <cmath>

#include "exec/numbers.h"
#include "op_check.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::testing;

namespace {
void check_float(const std::string& text, const Reference& reference,
                 const Settings& settings = {}) {
  check_op(text, 32, reference, 32, settings, float_patterns);
}
}  // namespace

TEST_CASE("float: add, mul, fma round to nearest and give the canonical NaN") {
  check_float("add.f32 %r9, %r0, %r1;",
              [](auto a, auto b, auto) { return canonical_bits(f32(a) + f32(b)); });
  check_float("mul.rn.f32 %r9, %r0, %r1;",
              [](auto a, auto b, auto) { return canonical_bits(f32(a) * f32(b)); });
  check_float("fma.rn.f32 %r9, %r0, %r1, %r2;", [](auto a, auto b, auto c) {
    return canonical_bits(std::fma(f32(a), f32(b), f32(c)));
  });
  check_float("div.rn.f32 %r9, %r0, %r1;",
              [](auto a, auto b, auto) { return canonical_bits(f32(a) / f32(b)); });
  check_float("sub.ftz.f32 %r9, %r0, %r1;", [](auto a, auto b, auto) {
    return canonical_bits(flush(flush(f32(a)) - flush(f32(b))));
  });
  check_float("add.sat.f32 %r9, %r0, %r1;", [](auto a, auto b, auto) {
    const float sum = f32(a) + f32(b);
    return bits_of(sum > 0 ? std::min(sum, 1.0f) : 0.0f);
  });
}

TEST_CASE("float: directed roundings") {
  const auto rounded = [](int mode, auto f) {
    return [mode, f](uint64_t a, uint64_t b, uint64_t c) {
      std::fesetround(mode);
      volatile float x = f32(a), y = f32(b), z = f32(c);
      volatile float result = f(x, y, z);
      std::fesetround(FE_TONEAREST);
      return canonical_bits(result);
    };
  };
  check_float("add.rz.f32 %r9, %r0, %r1;",
              rounded(FE_TOWARDZERO,
                      [](volatile float& x, volatile float& y, volatile float&) { return x + y; }));
  check_float("mul.rm.f32 %r9, %r0, %r1;",
              rounded(FE_DOWNWARD,
                      [](volatile float& x, volatile float& y, volatile float&) { return x * y; }));
  check_float("fma.rp.f32 %r9, %r0, %r1, %r2;",
              rounded(FE_UPWARD, [](volatile float& x, volatile float& y, volatile float& z) {
                return std::fma(float(x), float(y), float(z));
              }));
  check_float("rcp.rz.f32 %r9, %r0;",
              rounded(FE_TOWARDZERO, [](volatile float& x, volatile float&, volatile float&) {
                return 1.0f / x;
              }));
}

TEST_CASE("float: min, max, abs, neg, copysign") {
  const auto extreme = [](bool max, bool nan) {
    return [=](uint64_t a, uint64_t b, uint64_t) -> uint64_t {
      const float x = f32(a), y = f32(b);
      if (nan && (x != x || y != y)) return kNanF32;
      if (x != x) return canonical_bits(y);
      if (y != y) return canonical_bits(x);
      if (x == y) return max ? (a & b) & 0xffffffffu : (a | b) & 0xffffffffu;
      return bits_of(max ? std::max(x, y) : std::min(x, y));
    };
  };
  check_float("min.f32 %r9, %r0, %r1;", extreme(false, false));
  check_float("max.f32 %r9, %r0, %r1;", extreme(true, false));
  check_float("max.NaN.f32 %r9, %r0, %r1;", extreme(true, true));
  check_float("abs.f32 %r9, %r0;", [](auto a, auto, auto) { return a & 0x7fffffff; });
  check_float("neg.f32 %r9, %r0;", [](auto a, auto, auto) { return a ^ 0x80000000; });
  check_float("copysign.f32 %r9, %r0, %r1;",
              [](auto a, auto b, auto) { return (a & 0x80000000) | (b & 0x7fffffff); });
}

TEST_CASE("float: double precision") {
  check_op("fma.rn.f64 %out, %in0, %in1, %in2;", 64, [](auto a, auto b, auto c) {
    const double r = std::fma(f64(a), f64(b), f64(c));
    return r != r ? 0x7fffffffffffffffull : bits_of(r);
  });
  check_op("sqrt.rn.f64 %out, %in0;", 64, [](auto a, auto, auto) {
    const double r = std::sqrt(f64(a));
    return r != r ? 0x7fffffffffffffffull : bits_of(r);
  });
}

TEST_CASE("float: approximate functions are correctly rounded by default") {
  const auto near = [](double exact) { return canonical_bits(static_cast<float>(exact)); };
  check_float("ex2.approx.f32 %r9, %r0;",
              [&](auto a, auto, auto) { return near(std::exp2(static_cast<double>(f32(a)))); });
  check_float("lg2.approx.f32 %r9, %r0;",
              [&](auto a, auto, auto) { return near(std::log2(static_cast<double>(f32(a)))); });
  check_float("rcp.approx.ftz.f32 %r9, %r0;",
              [&](auto a, auto, auto) { return canonical_bits(flush(1.0f / flush(f32(a)))); });
  check_float("rsqrt.approx.f32 %r9, %r0;", [&](auto a, auto, auto) {
    return near(1.0 / std::sqrt(static_cast<double>(f32(a))));
  });
  check_float("sqrt.approx.f32 %r9, %r0;",
              [&](auto a, auto, auto) { return canonical_bits(std::sqrt(f32(a))); });
  check_float("tanh.approx.f32 %r9, %r0;",
              [&](auto a, auto, auto) { return near(std::tanh(static_cast<double>(f32(a)))); });
  check_float("sin.approx.f32 %r9, %r0;",
              [&](auto a, auto, auto) { return near(std::sin(static_cast<double>(f32(a)))); });
  check_float("cos.approx.f32 %r9, %r0;",
              [&](auto a, auto, auto) { return near(std::cos(static_cast<double>(f32(a)))); });
  check_float("div.full.f32 %r9, %r0, %r1;",
              [&](auto a, auto b, auto) { return near(static_cast<double>(f32(a)) / f32(b)); });
}

TEST_CASE("float: the perturbed mode stays within the documented error and differs") {
  Settings settings;
  settings.approx = ApproxMode::Perturbed;
  std::vector<uint64_t> arguments;
  for (int i = 0; i < 32; ++i) arguments.push_back(bits_of(0.1f + 0.37f * static_cast<float>(i)));
  const auto result =
      run_lanes("cvt.u32.u64 %r0, %in0; ex2.approx.f32 %r9, %r0; cvt.u64.u32 %out, %r9;",
                {arguments}, kRegisters, settings);
  int moved = 0;
  for (size_t i = 0; i < 32; ++i) {
    const double exact = std::exp2(static_cast<double>(f32(arguments[i])));
    CHECK(std::fabs(f32(result[i]) / exact - 1) < 0x1.2p-22);
    moved += f32(result[i]) != static_cast<float>(exact);
  }
  CHECK(moved > 5);
}

TEST_CASE("float: testp tells the kinds of numbers apart") {
  const auto kind = [](const char* test, auto f) {
    check_op(
        fmt::format("testp.{}.f32 %p0, %r0;", test), 32,
        [f](auto a, auto, auto) -> uint64_t { return f(f32(a)); }, 1, {}, float_patterns);
  };
  kind("finite", [](float x) { return std::isfinite(x); });
  kind("infinite", [](float x) { return std::isinf(x); });
  kind("notanumber", [](float x) { return std::isnan(x); });
  kind("normal", [](float x) { return std::isnormal(x); });
  kind("subnormal", [](float x) { return std::fpclassify(x) == FP_SUBNORMAL; });
}
