// The functions of the special-function unit: ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh,
// div.approx.
#include <cmath>

#include "exec/families.h"
#include "exec/launch.h"
#include "exec/numbers.h"
#include "exec/warp.h"

namespace linnet::vgpu {
namespace {

// 2^x in double for |x| < 1100, accurate far beyond f32; branch-free so that loops vectorise.
inline double exp2_double(double x) {
  const double clamped = x < -1000.0 ? -1000.0 : x > 1000.0 ? 1000.0 : x;
  const double shifted = clamped + 0x1.8p52;  // rounds to an integer
  const double whole = shifted - 0x1.8p52;
  const double t = (clamped - whole) * 0.693147180559945309417;
  double sum = 1.0 / 6227020800.0;
  constexpr double kInverse[] = {1.0 / 479001600.0,
                                 1.0 / 39916800.0,
                                 1.0 / 3628800.0,
                                 1.0 / 362880.0,
                                 1.0 / 40320.0,
                                 1.0 / 5040.0,
                                 1.0 / 720.0,
                                 1.0 / 120.0,
                                 1.0 / 24.0,
                                 1.0 / 6.0,
                                 0.5,
                                 1.0,
                                 1.0};
  for (const double coefficient : kInverse) sum = sum * t + coefficient;
  const uint64_t exponent = (std::bit_cast<uint64_t>(shifted) + 1023) << 52;
  return sum * std::bit_cast<double>(exponent);
}

struct Exp2 {
  static double of(double x) { return x != x ? x : exp2_double(x); }
  static constexpr double kError = 0x1p-22;
};
struct Log2 {
  static double of(double x) { return std::log2(x); }
  static constexpr double kError = 0x1p-22;
};
struct Reciprocal {
  static double of(double x) { return 1.0 / x; }
  static constexpr double kError = 0x1p-23;
};
struct ReciprocalRoot {
  static double of(double x) { return 1.0 / std::sqrt(x); }
  static constexpr double kError = 0x1.3p-23;
};
struct Root {
  static double of(double x) { return std::sqrt(x); }
  static constexpr double kError = 0x1p-23;
};
struct Sine {
  static double of(double x) { return std::sin(x); }
  static constexpr double kError = 0x1.6p-21;
};
struct Cosine {
  static double of(double x) { return std::cos(x); }
  static constexpr double kError = 0x1.6p-21;
};
struct Tanh {
  static double of(double x) {
    const double y = x < 0 ? -x : x;
    // 1 - 2/(e^2y + 1) loses digits near 0, where the series takes over.
    const double e = exp2_double(2.8853900817779268147 * (y > 40 ? 40 : y));
    const double q = y * y;
    const double series =
        y * (1 - q * (1.0 / 3 -
                      q * (2.0 / 15 -
                           q * (17.0 / 315 - q * (62.0 / 2835 - q * (1382.0 / 155925 -
                                                                     q * (21844.0 / 6081075)))))));
    const double result = y < 0.15 ? series : 1 - 2 / (e + 1);
    return x != x ? x : x < 0 ? -result : result;
  }
  static constexpr double kError = 0x1p-11;
};

// A number in [-1, 1] that depends on the argument only, so that runs repeat.
double noise(float x) {
  uint64_t h = std::bit_cast<uint32_t>(x) * 0x9e3779b97f4a7c15ull;
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9ull;
  return static_cast<double>(h >> 11) * 0x1p-52 - 1.0;
}

// Exact results stay exact, as on hardware (2^0, 1/2, ...).
float perturb(double exact, float argument, double error) {
  const float near = static_cast<float>(exact);
  if (near == exact || !std::isfinite(near)) return near;
  return static_cast<float>(exact * (1.0 + error * noise(argument)));
}

bool perturbed(const Warp& warp) { return warp.launch.settings.approx == ApproxMode::Perturbed; }

template <class F, bool Ftz>
void approximate(Warp& warp, const Op& op, uint32_t mask) {
  const float* a = warp.src<float>(op.a);
  if (perturbed(warp)) {
    each_lane(warp.dst<float>(op.dst), mask, [=](int i) {
      const float x = Ftz ? flush(a[i]) : a[i];
      const float y = canonical(perturb(F::of(x), x, F::kError));
      return Ftz ? flush(y) : y;
    });
    return;
  }
  each_lane(warp.dst<float>(op.dst), mask, [=](int i) {
    const float y = canonical(static_cast<float>(F::of(Ftz ? flush(a[i]) : a[i])));
    return Ftz ? flush(y) : y;
  });
}

template <bool Ftz>
void divide(Warp& warp, const Op& op, uint32_t mask) {
  const float* a = warp.src<float>(op.a);
  const float* b = warp.src<float>(op.b);
  const bool noisy = perturbed(warp);
  each_lane(warp.dst<float>(op.dst), mask, [=](int i) {
    const float x = Ftz ? flush(a[i]) : a[i];
    const float y = Ftz ? flush(b[i]) : b[i];
    const double quotient = static_cast<double>(x) / y;
    const float z =
        canonical(noisy ? perturb(quotient, x + y, 0x1p-22) : static_cast<float>(quotient));
    return Ftz ? flush(z) : z;
  });
}

template <float (*Decode)(uint16_t), uint16_t (*Encode)(float), class F, int PerLane>
void approximate_half(Warp& warp, const Op& op, uint32_t mask) {
  const uint16_t* a = warp.src<uint16_t>(op.a);
  alignas(64) uint16_t values[kLanes * PerLane];
  const bool noisy = perturbed(warp);
  for (int i = 0; i < kLanes * PerLane; ++i) {
    const float x = Decode(a[i]);
    values[i] = Encode(noisy ? perturb(F::of(x), x, 0x1p-10) : static_cast<float>(F::of(x)));
  }
  if constexpr (PerLane == 1) {
    blend(warp.dst<uint16_t>(op.dst), values, mask);
  } else {
    alignas(64) uint32_t pairs[kLanes];
    std::memcpy(pairs, values, sizeof pairs);
    blend(warp.dst<uint32_t>(op.dst), pairs, mask);
  }
}

template <class F>
Handler half_handler(Type type) {
  switch (type) {
    case Type::F16:
      return approximate_half<half_to_float, half_from_float, F, 1>;
    case Type::F16x2:
      return approximate_half<half_to_float, half_from_float, F, 2>;
    case Type::BF16:
      return approximate_half<bfloat_to_float, bfloat_from_float, F, 1>;
    case Type::BF16x2:
      return approximate_half<bfloat_to_float, bfloat_from_float, F, 2>;
    default:
      return nullptr;
  }
}

template <class F>
void approximate_f64(Warp& warp, const Op& op, uint32_t mask) {
  const double* a = warp.src<double>(op.a);
  each_lane(warp.dst<double>(op.dst), mask, [=](int i) { return F::of(a[i]); });
}

template <class F>
void decode_function(OpBuilder& b) {
  const Type type = b.type();
  if (!b.get("rnd").empty()) return decode_rounded_arithmetic(b);
  b.op.kind = OpClass::Mufu;
  b.op.dst = b.dst(0, type);
  b.op.a = b.src(1, type);
  if (type == Type::F32)
    b.op.run = b.has("ftz") ? approximate<F, true> : approximate<F, false>;
  else if (type == Type::F64)
    b.op.run = approximate_f64<F>;
  else
    b.op.run = half_handler<F>(type);
}

constexpr DecodeRow kRows[] = {
    {"ex2", decode_function<Exp2>},       {"lg2", decode_function<Log2>},
    {"rcp", decode_function<Reciprocal>}, {"rsqrt", decode_function<ReciprocalRoot>},
    {"sqrt", decode_function<Root>},      {"sin", decode_function<Sine>},
    {"cos", decode_function<Cosine>},     {"tanh", decode_function<Tanh>},
};

}  // namespace

std::span<const DecodeRow> approx_family() { return kRows; }

Handler approximate_division(bool ftz) { return ftz ? divide<true> : divide<false>; }

}  // namespace linnet::vgpu
