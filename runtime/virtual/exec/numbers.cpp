#include "exec/numbers.h"

namespace linnet::vgpu {
namespace {

// Rounds a non-negative number to an integer; `negative` is the sign of the whole value.
double round_magnitude(double magnitude, Rounding rounding, bool negative) {
  const double floor = std::floor(magnitude);
  const double rest = magnitude - floor;
  if (rest == 0) return floor;
  switch (rounding) {
    case Rounding::Zero:
      return floor;
    case Rounding::Down:
      return negative ? floor + 1 : floor;
    case Rounding::Up:
      return negative ? floor : floor + 1;
    case Rounding::NearestAway:
      return rest >= 0.5 ? floor + 1 : floor;
    case Rounding::Nearest:
      break;
  }
  if (rest != 0.5) return rest > 0.5 ? floor + 1 : floor;
  return std::fmod(floor, 2.0) == 0 ? floor : floor + 1;
}

}  // namespace

uint32_t encode_float(double value, const FloatFormat& format, Rounding rounding,
                      bool saturate_finite) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t exponent_ones = (1u << format.exponent_bits) - 1;
  const uint32_t sign =
      std::signbit(value) ? 1u << (format.exponent_bits + format.fraction_bits) : 0u;
  const uint32_t fraction_ones = (1u << format.fraction_bits) - 1;
  const uint32_t all_ones = exponent_ones << format.fraction_bits | fraction_ones;
  if (std::isnan(value)) return all_ones;
  const uint32_t infinity = format.has_infinity ? exponent_ones << format.fraction_bits : all_ones;
  const uint32_t largest = infinity - 1;
  if (std::isinf(value)) return sign | (saturate_finite ? largest : infinity);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - bias) exponent = 1 - bias;  // subnormals share the smallest exponent
  const double scaled = std::ldexp(magnitude, format.fraction_bits - exponent);
  const double rounded = round_magnitude(scaled, rounding, std::signbit(value));
  // The carry of rounding and the step from subnormal to normal fall out of plain addition.
  const auto units = static_cast<uint64_t>(rounded);
  const uint64_t code =
      (static_cast<uint64_t>(exponent + bias - 1) << format.fraction_bits) + units;
  if (code <= largest) return sign | static_cast<uint32_t>(code);
  const bool towards_zero = rounding == Rounding::Zero || (rounding == Rounding::Down && !sign) ||
                            (rounding == Rounding::Up && sign);
  return sign | (saturate_finite || towards_zero ? largest : infinity);
}

double decode_float(uint32_t bits, const FloatFormat& format) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t exponent_ones = (1u << format.exponent_bits) - 1;
  const uint32_t exponent = (bits >> format.fraction_bits) & exponent_ones;
  const uint32_t fraction_ones = (1u << format.fraction_bits) - 1;
  const uint32_t fraction = bits & fraction_ones;
  const bool negative = (bits >> (format.exponent_bits + format.fraction_bits)) & 1u;
  double value = 0;
  if (exponent == exponent_ones && (format.has_infinity || fraction == fraction_ones))
    value = fraction && (!format.has_infinity || fraction) ? NAN : HUGE_VAL;
  else if (exponent == 0)
    value = std::ldexp(fraction, 1 - bias - format.fraction_bits);
  else
    value = std::ldexp(fraction + fraction_ones + 1.0,
                       static_cast<int>(exponent) - bias - format.fraction_bits);
  return negative ? -value : value;
}

}  // namespace linnet::vgpu
