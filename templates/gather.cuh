// Sums over what shares an argument: the value heads of a key head, or all chunks of a head.
#pragma once
#include "base.cuh"

namespace linnet {

template <class Cta>
__device__ inline i64 blocks_for(i64 numbers) {
  return (numbers + Cta::kThreads - 1) / Cta::kThreads;
}

// The share of a chunk that is not there.
template <class Cta>
__device__ inline void zero_slot(float* to, int width) {
  for (int i = threadIdx.x; i < width; i += Cta::kThreads) to[i] = 0.f;
}

// to[token, head, :] = sum over the group of from[token, value head, :], in order.
template <class Cta, class T>
__device__ inline void gather_heads(T* to, const float* from, i64 block, i64 count, int group,
                                    int width) {
  i64 at = block * Cta::kThreads + threadIdx.x;
  if (at >= count * width) return;
  i64 row = at / width, d = at % width;
  float sum = 0;
  for (int i = 0; i < group; ++i) sum += from[(row * group + i) * width + d];
  to[at] = from_f32<T>(sum);
}

// to[head, :] = sum over the slots of from[slot, head, :], in order.
template <class Cta>
__device__ inline void gather_slots(float* to, const float* from, i64 block, i64 slots, int heads,
                                    int width) {
  i64 at = block * Cta::kThreads + threadIdx.x, size = static_cast<i64>(heads) * width;
  if (at >= size) return;
  float sum = 0;
  for (i64 slot = 0; slot < slots; ++slot) sum += from[slot * size + at];
  to[at] = sum;
}

}  // namespace linnet
