// The inverse of I + A for a strictly lower triangular A (F2).
#pragma once
#include "mma.cuh"

namespace linnet {

// Z_i = e_i - sum_j<i A_ij Z_j inside a 16 x 16 diagonal block: a lane for each column of Z.
template <int C>
__device__ inline void invert_block(SharedTile<float, C, C> z, SharedTile<float, C, C> a,
                                    int first) {
  int column = lane() % 16;
  float own[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float sum = i == column ? 1.f : 0.f;
#pragma unroll
    for (int j = 0; j < i; ++j) sum = fmaf(-a(first + i, first + j), own[j], sum);
    own[i] = sum;
  }
  if (lane() < 16)
#pragma unroll
    for (int i = 0; i < 16; ++i) z(first + i, first + column) = own[i];
}

// 16 x 16 blocks I > J of Z, by their distance from the diagonal:
// Z_IJ = -Z_II (sum over M from J to I - 1 of A_IM Z_MJ). One warp makes one block.
template <Precision P, int C>
__device__ inline void merge_block(SharedTile<float, C, C> z, SharedTile<float, C, C> a, int i,
                                   int j) {
  float sums[2][4] = {};
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    Sums<P> sum;
#pragma unroll 1
    for (int k = j; k < i; k += 8) {
      PartsA<P> pa;
      PartsB<P> pb;
      fill_a(pa, [&](int r, int c) { return a(r, c); }, i, k);
      fill_b(pb, [&](int r, int c) { return z(r, c); }, k, j + n * 8);
      sum.add(pa, pb);
    }
    sum.finish(sums[n]);
  }
  // The sums become the second operand of the next product: through the block's own place.
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      z(i + group() + e / 2 * 8, j + n * 8 + quad() * 2 + e % 2) = sums[n][e];
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    Sums<P> sum;
#pragma unroll
    for (int k = 0; k < 16; k += 8) {
      PartsA<P> pa;
      PartsB<P> pb;
      fill_a(pa, [&](int r, int c) { return z(r, c); }, i, i + k);
      fill_b(pb, [&](int r, int c) { return z(r, c); }, i + k, j + n * 8);
      sum.add(pa, pb);
    }
    sum.finish(sums[n]);
  }
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      z(i + group() + e / 2 * 8, j + n * 8 + quad() * 2 + e % 2) = -sums[n][e];
}

template <class Cta, Precision P, int C>
__device__ inline void inverse_unit_lower(SharedTile<float, C, C> z, SharedTile<float, C, C> a) {
  constexpr int kPadded = round_up(C, 16), kBlocks = kPadded / 16;
  // Above the diagonal blocks.
  if constexpr (kBlocks > 1)
    share_out<Cta, kPadded * kPadded>([&](int x) {
      int i = x / kPadded, j = x % kPadded;
      if (i / 16 < j / 16) z(i, j) = 0.f;
    });
  for (int block = warp(); block < kBlocks; block += Cta::kWarps) invert_block(z, a, block * 16);
#pragma unroll 1
  for (int distance = 1; distance < kBlocks; ++distance) {
    __syncthreads();
    for (int block = distance + warp(); block < kBlocks; block += Cta::kWarps)
      merge_block<P>(z, a, block * 16, (block - distance) * 16);
  }
}

}  // namespace linnet
