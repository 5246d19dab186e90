// Running sums and sums of tiles and vectors, always in one order.
#pragma once
#include "tile.cuh"

namespace linnet {

enum class Direction { forward, reverse };
enum class Own { included, excluded };

// The running sum over the eight lane groups of a warp, from the first or from the last.
template <Direction D>
__device__ inline float group_scan(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) {
    float other = D == Direction::forward ? __shfl_up_sync(0xffffffffu, x, step)
                                          : __shfl_down_sync(0xffffffffu, x, step);
    bool take = D == Direction::forward ? lane() >= step : lane() + step < 32;
    x += take ? other : 0.f;
  }
  return x;
}
// The running sum of the group before, `first` for the first one.
template <Direction D>
__device__ inline float group_before(float x, float first) {
  float other = D == Direction::forward ? __shfl_up_sync(0xffffffffu, x, 4)
                                        : __shfl_down_sync(0xffffffffu, x, 4);
  return group() == (D == Direction::forward ? 0 : 7) ? first : other;
}

// Down the rows of a tile. Without its own number a row has the very number of the row before: the
// two kinds agree to the bit.
template <Direction D = Direction::forward, Own O = Own::included, int R, int N, int W>
__device__ inline Tile<R, N, Columns<W>> cumsum(const Tile<R, N, Columns<W>>& a) {
  using T = Tile<R, N, Columns<W>>;
  constexpr int kLast = D == Direction::forward ? 28 : 0;
  T y;
#pragma unroll
  for (int n = 0; n < T::kN; ++n)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float before = 0;
#pragma unroll
      for (int step = 0; step < 2 * T::kM; ++step) {
        int half = D == Direction::forward ? step : 2 * T::kM - 1 - step;
        int m = half / 2, e = half % 2 * 2 + c;
        float number = T::kRows % 16 == 0 || T::row(m, e) < T::kRows ? a.x[m][n][e] : 0.f;
        float sum = group_scan<D>(number) + before;
        y.x[m][n][e] = O == Own::included ? sum : group_before<D>(sum, before);
        before = shuffle(sum, kLast + quad());
      }
    }
  return y;
}

// The same for one number a token, by one warp.
template <Direction D = Direction::forward, Own O = Own::included, int Size>
__device__ inline void cumsum(float* to, const float* from) {
  if (warp() != 0) return;
  float before = 0;
#pragma unroll
  for (int step = 0; step < Size; step += 32) {
    int i = D == Direction::forward ? step + lane() : Size - 1 - step - lane();
    bool inside = i >= 0 && i < Size;
    float sum = inside ? from[i] : 0.f;
#pragma unroll
    for (int far = 1; far < 32; far *= 2) {
      float other = __shfl_up_sync(0xffffffffu, sum, far);
      sum += lane() >= far ? other : 0.f;
    }
    sum += before;
    float previous = __shfl_up_sync(0xffffffffu, sum, 1);
    previous = lane() == 0 ? before : previous;
    if (inside) to[i] = O == Own::included ? sum : previous;
    before = shuffle(sum, 31);
  }
  for (int i = Size + lane(); i < round_up(Size, 16); i += 32) to[i] = 0.f;
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int far = 16; far > 0; far /= 2) x += shuffle_xor(x, far);
  return x;
}

// One sum a row. `scratch` holds a number for every row and warp.
template <int R, int N, int W>
__device__ inline void row_sums(float* to, const Tile<R, N, Columns<W>>& a, float* scratch) {
  using T = Tile<R, N, Columns<W>>;
  constexpr int kPadded = round_up(R, 16);
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = 0;
#pragma unroll
      for (int n = 0; n < T::kN; ++n)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          bool take = T::owns(m, n) && (N % 16 == 0 || T::column(n, c) < N);
          sum += take ? a.x[m][n][half * 2 + c] : 0.f;
        }
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      if (quad() == 0) scratch[warp() * kPadded + T::row(m, half * 2)] = sum;
    }
  __syncthreads();
  share_out<Cta<W>, kPadded>([&](int i) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < W; ++w) sum += scratch[w * kPadded + i];
    to[i] = i < R ? sum : 0.f;
  });
}

// One sum a column of what a thread holds, over all rows.
template <int R, int N, class S>
__device__ inline float column_sum(const Tile<R, N, S>& a, int n, int c) {
  using T = Tile<R, N, S>;
  float sum = 0;
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int e = c; e < 4; e += 2) sum += R % 16 == 0 || T::row(m, e) < R ? a.x[m][n][e] : 0.f;
#pragma unroll
  for (int far = 4; far < 32; far *= 2) sum += shuffle_xor(sum, far);
  return sum;
}
template <int R, int N, int W>
__device__ inline void column_sums(float* to, const Tile<R, N, Columns<W>>& a) {
  using T = Tile<R, N, Columns<W>>;
#pragma unroll
  for (int n = 0; n < T::kN; ++n)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float sum = column_sum(a, n, c);
      int j = T::column(n, c);
      if (group() == 0 && T::owns(0, n)) to[j] = j < N ? sum : 0.f;
    }
}

// Everything, the same number for every thread. `scratch` holds a number for every warp.
template <int R, int N, int W>
__device__ inline float total(const Tile<R, N, Columns<W>>& a, float* scratch) {
  using T = Tile<R, N, Columns<W>>;
  float sum = 0;
  for_each<T>([&](int m, int n, int e) {
    bool take = T::owns(m, n) && T::inside(T::row(m, e), T::column(n, e));
    sum += take ? a.x[m][n][e] : 0.f;
  });
  sum = warp_sum(sum);
  if (lane() == 0) scratch[warp()] = sum;
  __syncthreads();
  sum = 0;
#pragma unroll
  for (int w = 0; w < W; ++w) sum += scratch[w];
  return sum;
}
template <int Size, class E>
__device__ inline float total(const E* vector) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Size; i += 32) sum += i + lane() < Size ? to_f32(vector[i + lane()]) : 0.f;
  return warp_sum(sum);
}
template <int Size, class A, class B>
__device__ inline float dot(const A* a, const B* b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Size; i += 32)
    if (i + lane() < Size) sum = fmaf(to_f32(a[i + lane()]), to_f32(b[i + lane()]), sum);
  return warp_sum(sum);
}

// Sums over a tile of `Count` rows that is made band by band: band(i) has the rows from i on.
template <class Band, int Count, class F>
__device__ inline Band sum_of_bands(F band) {
  Band sum = constant<Band>(0.f);
#pragma unroll 1
  for (int i = 0; i < Count; i += Band::kRows) sum = sum + band(i);
  return sum;
}

// One row of a tile.
template <int R, int N, class S>
__device__ inline void take_row(float* to, const Tile<R, N, S>& a, int row) {
  using T = Tile<R, N, S>;
  for_each<T>([&](int m, int n, int e) {
    int j = T::column(n, e);
    if (T::row(m, e) == row && T::owns(m, n)) to[j] = j < N ? a.x[m][n][e] : 0.f;
  });
}

}  // namespace linnet
