// Number formats, lanes and small arithmetic: what every other template stands on.
#pragma once

// A kernel for blocks of some threads, and how many of them a multiprocessor must have registers for
// at a time. Left to itself ptxas spills a few bytes to fit one more.
#define LINNET_KERNEL(threads, blocks) \
  extern "C" __global__ void __launch_bounds__(threads, blocks)

namespace linnet {

using i64 = long long;
using u32 = unsigned;
using u16 = unsigned short;

// What operands of a product are rounded to; f32 means three tf32 products that keep f32's bits.
enum class Precision { f32, tf32, bf16, f16 };
enum class Triangle { lower, strict_lower };

struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};

__device__ constexpr int round_up(int x, int to) { return (x + to - 1) / to * to; }

// The threads of a block; `Cta<4>` is four warps.
template <int Warps>
struct Cta {
  static constexpr int kWarps = Warps, kThreads = 32 * Warps;
};

__device__ inline int lane() { return threadIdx.x & 31; }
__device__ inline int warp() { return threadIdx.x >> 5; }
// Where a lane stands in the 8 x 8 blocks of mma fragments: its row, and its pair of columns.
__device__ inline int group() { return lane() >> 2; }
__device__ inline int quad() { return lane() & 3; }

__device__ inline float to_f32(float x) { return x; }
__device__ inline float to_f32(bf16 x) { return __uint_as_float(static_cast<u32>(x.bits) << 16); }
__device__ inline float to_f32(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

template <class T>
__device__ inline T from_f32(float x);
template <>
__device__ inline float from_f32<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 from_f32<bf16>(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
__device__ inline f16 from_f32<f16>(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

// The same pointer or 64-bit number, as one that the compiler has not seen before: addresses made of
// it are made where they are used, instead of waiting in registers since they were made for others.
template <class T>
__device__ inline T anew(T x) {
  asm volatile("" : "+l"(x));
  return x;
}

// Two neighbours in one register, the first in the lower half.
template <class T>
__device__ inline u32 pack(float first, float second);
template <>
__device__ inline u32 pack<bf16>(float first, float second) {
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
  return y;
}
template <>
__device__ inline u32 pack<f16>(float first, float second) {
  u32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
  return y;
}

template <class T>
__device__ inline float2 unpack(u32 both) {
  float2 pair;
  pair.x = to_f32(T{static_cast<u16>(both)});
  pair.y = to_f32(T{static_cast<u16>(both >> 16)});
  return pair;
}

__device__ inline u32 to_tf32(float x) {
  u32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

// A value as storing it in a narrower format and loading it again would leave it.
template <Precision P>
__device__ inline float rounded(float x) {
  if constexpr (P == Precision::bf16) return to_f32(from_f32<bf16>(x));
  if constexpr (P == Precision::f16) return to_f32(from_f32<f16>(x));
  if constexpr (P == Precision::tf32) return __uint_as_float(to_tf32(x));
  return x;
}

// The element type that operands of a product lie in.
template <Precision P>
struct OperandOf {
  using type = float;
};
template <>
struct OperandOf<Precision::bf16> {
  using type = bf16;
};
template <>
struct OperandOf<Precision::f16> {
  using type = f16;
};

template <>
__device__ inline float2 unpack<bf16>(u32 both) {
  float2 pair;
  pair.x = __uint_as_float(both << 16);
  pair.y = __uint_as_float(both & 0xffff0000u);
  return pair;
}

// Eight bytes in one access: left to itself the compiler may make two of a uint2 or a float2.
__device__ inline uint2 load_eight(const void* at) {
  auto bits = *static_cast<const unsigned long long*>(at);
  uint2 both;
  asm("mov.b64 {%0, %1}, %2;" : "=r"(both.x), "=r"(both.y) : "l"(bits));
  return both;
}
__device__ inline void store_eight(void* at, uint2 both) {
  unsigned long long bits;
  asm("mov.b64 %0, {%1, %2};" : "=l"(bits) : "r"(both.x), "r"(both.y));
  *static_cast<unsigned long long*>(at) = bits;
}

// Two neighbours of a row at once; the first has an even column.
__device__ inline float2 load_pair(const float* at) { return *reinterpret_cast<const float2*>(at); }
template <class T>
__device__ inline float2 load_pair(const T* at) {
  return unpack<T>(*reinterpret_cast<const u32*>(at));
}
__device__ inline void store_pair(float* at, float first, float second) {
  uint2 both;
  both.x = __float_as_uint(first);
  both.y = __float_as_uint(second);
  store_eight(at, both);
}
template <class T>
__device__ inline void store_pair(T* at, float first, float second) {
  *reinterpret_cast<u32*>(at) = pack<T>(first, second);
}

__device__ inline float shuffle(float x, int from) { return __shfl_sync(0xffffffffu, x, from); }
__device__ inline float shuffle_xor(float x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}

template <Triangle Kept>
__device__ inline bool keeps(int i, int j) {
  return Kept == Triangle::lower ? i >= j : i > j;
}

}  // namespace linnet
