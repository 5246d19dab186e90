// Loops over the 32 lanes of a warp, written so that the compiler turns them into vector code.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace linnet::vgpu {

constexpr int kLanes = 32;
constexpr uint32_t kAllLanes = 0xffff'ffffu;

inline bool lane_in(uint32_t mask, int lane) { return (mask >> lane) & 1u; }

// Writes `values` to the lanes of `dst` that are in `mask`.
template <class T>
inline void blend(T* dst, const T* values, uint32_t mask) {
  for (int lane = 0; lane < kLanes; ++lane)
    dst[lane] = (mask >> lane) & 1u ? values[lane] : dst[lane];
}

// dst[lane] = f(lane). `f` is evaluated for all lanes, so it must be harmless for inactive ones.
// Registers either coincide or do not overlap, hence no loop-carried dependence.
template <class T, class F>
inline void each_lane(T* dst, uint32_t mask, F f) {
  if (mask == kAllLanes) {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) dst[lane] = f(lane);
    return;
  }
  alignas(64) T values[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) values[lane] = f(lane);
  blend(dst, values, mask);
}

// Calls f(lane) for the active lanes only, in lane order.
template <class F>
inline void active_lanes(uint32_t mask, F f) {
  for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
}

// Bit i of the result is the sign of values[i].
inline uint32_t pack_signs(const int32_t* values) {
#if defined(__AVX2__)
  uint32_t packed = 0;
  for (int part = 0; part < 4; ++part) {
    const __m256i row = _mm256_load_si256(reinterpret_cast<const __m256i*>(values + 8 * part));
    packed |= static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(row))) << (8 * part);
  }
  return packed;
#else
  uint32_t packed = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    packed |= (static_cast<uint32_t>(values[lane]) >> 31) << lane;
  return packed;
#endif
}

// Bit i of the result is f(i).
template <class F>
inline uint32_t ballot_lanes(F f) {
  alignas(64) int32_t signs[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) signs[lane] = f(lane) ? -1 : 0;
  return pack_signs(signs);
}

}  // namespace linnet::vgpu
