// Sums over what shares an argument: the value heads of a key head, or all chunks of a head.
#pragma once
#include "sequence.cuh"

namespace linnet {

template <class Cta>
__device__ inline i64 blocks_for(i64 numbers) {
  return (numbers + Cta::kThreads - 1) / Cta::kThreads;
}

// The share of a chunk that is not there.
template <class Cta>
__device__ inline void zero_slot(float* to, int width) {
#pragma unroll 1
  for (int i = threadIdx.x; i < width; i += Cta::kThreads) to[i] = 0.f;
}

// to[token, head, :] = sum over the group of from[token, value head, :], in order.
template <class Cta, class T>
__device__ inline void gather_heads(const Tensor<T>& to, const float* from, i64 block,
                                    const Batch& batch, i64 tokens, int width) {
  i64 at = block * Cta::kThreads + threadIdx.x;
  if (at >= tokens * batch.heads * width) return;
  i64 row = at / width, d = at % width, token = row / batch.heads, head = row % batch.heads;
  int group = batch.value_heads / batch.heads;
  float sum = 0;
  for (int i = 0; i < group; ++i) sum += from[(row * group + i) * width + d];
  to.data[token / batch.tokens * to.batch_step + token % batch.tokens * to.row_step +
          head * to.head_step + d] = from_f32<T>(sum);
}

// to[head, :] = sum over the slots of from[slot, head, :], in order.
template <class Cta>
__device__ inline void gather_slots(const Tensor<float>& to, const float* from, i64 block,
                                    i64 slots, int heads, int width) {
  i64 at = block * Cta::kThreads + threadIdx.x, size = static_cast<i64>(heads) * width;
  if (at >= size) return;
  float sum = 0;
  for (i64 slot = 0; slot < slots; ++slot) sum += from[slot * size + at];
  to.data[at / width * to.head_step + at % width] = sum;
}

}  // namespace linnet
