// Sums over what shares an argument: the value heads of a key head, or all chunks of a head.
#pragma once
#include "sequence.cuh"
#include "shared.cuh"

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

// Neighbours in a row, and sums of them.
template <int Wide>
struct Numbers {
  float x[Wide] = {};

  __device__ void add(const float* from) {
    if constexpr (Wide == 4) {
      float4 own = *reinterpret_cast<const float4*>(from);
      x[0] += own.x, x[1] += own.y, x[2] += own.z, x[3] += own.w;
    } else {
      x[0] += *from;
    }
  }
  template <class T>
  __device__ void store(T* to) const {
    if constexpr (Wide == 4 && sizeof(T) == 2) {
      uint2 both;
      both.x = pack<T>(x[0], x[1]);
      both.y = pack<T>(x[2], x[3]);
      store_eight(to, both);
    } else if constexpr (Wide == 4) {
      float4 own;
      own.x = x[0], own.y = x[1], own.z = x[2], own.w = x[3];
      *reinterpret_cast<float4*>(to) = own;
    } else {
      *to = from_f32<T>(x[0]);
    }
  }
};

// A quotient; those of 64 bits take a hundred instructions, and are seldom needed.
__device__ inline i64 divide_by(i64 a, i64 b) {
  bool narrow = (a | b) >> 32 == 0;
  return narrow ? static_cast<i64>(static_cast<u32>(a) / static_cast<u32>(b)) : a / b;
}

// A chunk's rows of an output that key heads have: the rows themselves where a key head has one
// value head, and a share of them otherwise.
template <class Cta, class T, int R, int N>
__device__ inline void store_share(const Tensor<T>& to, const Tensor<float>& partial,
                                   const Batch& batch, const Chunk& chunk,
                                   SharedTile<float, R, N> from) {
  static_assert(N % 4 == 0, "four numbers at a time");
  share_out<Cta, R*(N / 4)>([&](int x) {
    int i = x / (N / 4), j = x % (N / 4) * 4;
    if (i >= chunk.rows) return;
    Numbers<4> own;
    own.add(from.at(i, j));
    if (batch.shares_heads())
      own.store(chunk.at(partial, chunk.head) + i * partial.row_step + j);
    else
      own.store(chunk.at(to, chunk.head) + i * to.row_step + j);
  });
}

// to[token, head, :] = sum over the group of from[token, value head, :], in order; `Wide` numbers a
// thread.
template <class Cta, int Wide, class T>
__device__ inline void gather_heads(const Tensor<T>& to, const float* from, i64 block,
                                    const Batch& batch, i64 tokens, int width) {
  i64 at = (block * Cta::kThreads + threadIdx.x) * Wide;
  if (at >= tokens * batch.heads * width) return;
  i64 row = divide_by(at, width), token = divide_by(row, batch.heads);
  int d = static_cast<int>(at - row * width), head = static_cast<int>(row - token * batch.heads);
  int group = batch.value_heads / batch.heads;
  Numbers<Wide> sum;
#pragma unroll 1
  for (int i = 0; i < group; ++i) sum.add(from + (row * group + i) * width + d);
  i64 element = batch.cu_seqlens.data ? 0 : divide_by(token, batch.tokens);
  sum.store(to.data + element * to.batch_step + (token - element * batch.tokens) * to.row_step +
            head * to.head_step + d);
}

// to[head, :] = sum over the slots of from[slot, head, :], in order.
template <class Cta, int Wide>
__device__ inline void gather_slots(const Tensor<float>& to, const float* from, i64 block,
                                    i64 slots, int heads, int width) {
  i64 at = (block * Cta::kThreads + threadIdx.x) * Wide, size = static_cast<i64>(heads) * width;
  if (at >= size) return;
  Numbers<Wide> sum;
#pragma unroll 4
  for (i64 slot = 0; slot < slots; ++slot) sum.add(from + slot * size + at);
  sum.store(to.data + at / width * to.head_step + at % width);
}

}  // namespace linnet
