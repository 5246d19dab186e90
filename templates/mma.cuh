// Products of tiles by mma.sync: bf16 and f16 by blocks of 16, tf32 and f32 (as three tf32
// products) by blocks of 8, sums always f32.
#pragma once
#include "tile.cuh"

namespace linnet {

template <Precision P>
__device__ inline void multiply_add(float (&d)[4], const FragmentA& a, const FragmentB& b) {
  if constexpr (P == Precision::bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
  else if constexpr (P == Precision::f16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
  else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
}

// f32 numbers as a tf32 and what it leaves behind. Both operands take the summed index in the order
// 0 2 4 6 1 3 5 7, in which a thread's pair of a row is its share of a fragment: sums of one
// product are operands of the next without leaving the thread.
template <Precision P, int Count>
struct Parts {
  u32 high[Count], low[Count];

  // To tensor cores the last 13 bits of a tf32 are not there: nothing has to cut off what a low part
  // has too many of. Rounding by a plain sum loses a NaN, but the low part of one is a NaN.
  __device__ void set(int i, float x) {
    if constexpr (P == Precision::f32) {
      high[i] = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
      low[i] = __float_as_uint(x - __uint_as_float(high[i]));
    } else {
      high[i] = to_tf32(x);
    }
  }
};
template <Precision P>
using PartsA = Parts<P, 4>;
template <Precision P>
using PartsB = Parts<P, 2>;

template <class S>
__device__ inline float element(S s, int i, int j) {
  return to_f32(s(i, j));
}
template <class S>
__device__ inline float element(Transposed<S> s, int i, int j) {
  return to_f32(s.tile(j, i));
}

// a(i, k) and b(k, j) are functions or views of tiles.
template <Precision P, class F>
__device__ inline void fill_a(PartsA<P>& a, F f, int i, int k) {
  int row = i + group(), column = k + quad() * 2;
  a.set(0, f(row, column));
  a.set(1, f(row + 8, column));
  a.set(2, f(row, column + 1));
  a.set(3, f(row + 8, column + 1));
}
template <Precision P, class F>
__device__ inline void fill_b(PartsB<P>& b, F f, int k, int j) {
  b.set(0, f(k + quad() * 2, j + group()));
  b.set(1, f(k + quad() * 2 + 1, j + group()));
}

// Sums of one block, the small parts of f32 products apart from the large ones.
template <Precision P>
struct Sums {
  float large[4] = {}, small[4] = {};

  __device__ void add(const PartsA<P>& a, const PartsB<P>& b) {
    FragmentA high_a{{a.high[0], a.high[1], a.high[2], a.high[3]}};
    FragmentB high_b{{b.high[0], b.high[1]}};
    if constexpr (P == Precision::f32) {
      FragmentA low_a{{a.low[0], a.low[1], a.low[2], a.low[3]}};
      FragmentB low_b{{b.low[0], b.low[1]}};
      multiply_add<Precision::tf32>(small, low_a, high_b);
      multiply_add<Precision::tf32>(small, high_a, low_b);
      // The sum of tensor cores is cut off, not rounded: a sum that runs through them grows a bias.
      float step[4] = {};
      multiply_add<Precision::tf32>(step, high_a, high_b);
#pragma unroll
      for (int e = 0; e < 4; ++e) large[e] += step[e];
    } else {
      multiply_add<Precision::tf32>(large, high_a, high_b);
    }
  }
  __device__ void finish(float (&d)[4]) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) d[e] = large[e] + small[e];
  }
};

// How long the summed index of a first operand is, padding included.
template <class E, int R, int N>
__device__ constexpr int summed(SharedTile<E, R, N>*) {
  return SharedTile<E, R, N>::kPaddedColumns;
}
template <class E, int R, int N>
__device__ constexpr int summed(Transposed<SharedTile<E, R, N>>*) {
  return SharedTile<E, R, N>::kPaddedRows;
}

template <Precision P>
constexpr bool kTwoBytes = P == Precision::bf16 || P == Precision::f16;

// Turns a sum of products into minus that sum.
template <Precision P, bool Minus>
__device__ inline void change_sign(FragmentB& b) {
  if constexpr (Minus) {
    b.x[0] ^= kTwoBytes<P> ? 0x80008000u : 0x80000000u;
    b.x[1] ^= kTwoBytes<P> ? 0x80008000u : 0x80000000u;
  }
}
template <bool Minus>
__device__ inline void add_sums(float (&d)[4], const float (&sums)[4]) {
#pragma unroll
  for (int e = 0; e < 4; ++e) d[e] += Minus ? -sums[e] : sums[e];
}

// One block of sums over the padded summed index: d += a(i.., :) b(:, j..).
template <Precision P, bool Minus = false, class A, class B>
__device__ inline void block_product(float (&d)[4], A a, B b, int i, int j) {
  constexpr int kLength = summed(static_cast<A*>(nullptr));
  if constexpr (kTwoBytes<P>) {
#pragma unroll
    for (int k = 0; k < kLength; k += 16) {
      FragmentA fa;
      FragmentB fb;
      load_a(fa, a, i, k);
      load_b(fb, b, k, j);
      change_sign<P, Minus>(fb);
      multiply_add<P>(d, fa, fb);
    }
  } else {
    Sums<P> sums;
#pragma unroll 4
    for (int k = 0; k < kLength; k += 8) {
      PartsA<P> pa;
      PartsB<P> pb;
      fill_a(pa, [&](int r, int c) { return element(a, r, c); }, i, k);
      fill_b(pb, [&](int r, int c) { return element(b, r, c); }, k, j);
      sums.add(pa, pb);
    }
    float total[4];
    sums.finish(total);
    add_sums<Minus>(d, total);
  }
}

// y += a b, or y -= a b, for operands in shared memory; each warp makes its own blocks.
template <Precision P, bool Minus, class T, class A, class B>
__device__ inline void accumulate(T& y, A a, B b) {
  constexpr int kLength = summed(static_cast<A*>(nullptr));
  if constexpr (kTwoBytes<P>) {
#pragma unroll
    for (int k = 0; k < kLength; k += 16) {
      FragmentA fa[T::kM];
#pragma unroll
      for (int m = 0; m < T::kM; ++m)
        if (T::owns(m, 0)) load_a(fa[m], a, T::first_row() + m * 16, k);
#pragma unroll
      for (int n = 0; n < T::kN; ++n) {
        if (!T::owns(0, n)) continue;
        FragmentB fb;
        load_b(fb, b, k, T::first_column() + n * 8);
        change_sign<P, Minus>(fb);
#pragma unroll
        for (int m = 0; m < T::kM; ++m)
          if (T::owns(m, n)) multiply_add<P>(y.x[m][n], fa[m], fb);
      }
    }
  } else {
#pragma unroll
    for (int m = 0; m < T::kM; ++m)
#pragma unroll
      for (int n = 0; n < T::kN; ++n)
        if (T::owns(m, n))
          block_product<P, Minus>(y.x[m][n], a, b, T::first_row() + m * 16,
                                  T::first_column() + n * 8);
  }
}

// f32 and tf32 products of a first operand in registers.
template <Precision P, class A>
__device__ inline void take_parts(PartsA<P>& parts, const A& a, int m, int k) {
  parts.set(0, a.x[m][k][0]);
  parts.set(1, a.x[m][k][2]);
  parts.set(2, a.x[m][k][1]);
  parts.set(3, a.x[m][k][3]);
}
template <Precision P, bool Minus, class T, class A, class B>
__device__ inline void accumulate_by_steps(T& y, const A& a, B b) {
  Sums<P> sums[T::kM][T::kN];
#pragma unroll
  for (int k = 0; k < A::kN; ++k)
#pragma unroll
    for (int m = 0; m < T::kM; ++m) {
      PartsA<P> pa;
      take_parts(pa, a, m, k);
#pragma unroll
      for (int n = 0; n < T::kN; ++n) {
        PartsB<P> pb;
        fill_b(pb, [&](int r, int c) { return element(b, r, c); }, k * 8, n * 8);
        sums[m][n].add(pa, pb);
      }
    }
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int n = 0; n < T::kN; ++n) {
      float total[4];
      sums[m][n].finish(total);
      add_sums<Minus>(y.x[m][n], total);
    }
}
template <Precision P, bool Minus, class T, class A, class B>
__device__ inline void accumulate_by_columns(T& y, const A& a, B b) {
#pragma unroll
  for (int m = 0; m < T::kM; ++m) {
    PartsA<P> pa[A::kN];
#pragma unroll
    for (int k = 0; k < A::kN; ++k) take_parts(pa[k], a, m, k);
#pragma unroll
    for (int n = 0; n < T::kN; ++n) {
      Sums<P> sums;
#pragma unroll
      for (int k = 0; k < A::kN; ++k) {
        PartsB<P> pb;
        fill_b(pb, [&](int r, int c) { return element(b, r, c); }, k * 8, n * 8);
        sums.add(pa[k], pb);
      }
      float total[4];
      sums.finish(total);
      add_sums<Minus>(y.x[m][n], total);
    }
  }
}

// The same for a first operand in registers, each warp multiplying its own rows of it: what one
// product summed goes into the next as it is.
template <Precision P, bool Minus, class T, int R, int N, class S, class B>
__device__ inline void accumulate(T& y, const Tile<R, N, S>& a, B b) {
  using A = Tile<R, N, S>;
  static_assert(S::kColumnWarps == 1, "a warp needs whole rows of its first operand");
  if constexpr (kTwoBytes<P>) {
    using E = typename OperandOf<P>::type;
#pragma unroll
    for (int k = 0; k < A::kN; k += 2) {
      FragmentA fa[T::kM];
#pragma unroll
      for (int m = 0; m < T::kM; ++m) {
        fa[m].x[0] = pack<E>(a.x[m][k][0], a.x[m][k][1]);
        fa[m].x[1] = pack<E>(a.x[m][k][2], a.x[m][k][3]);
        fa[m].x[2] = pack<E>(a.x[m][k + 1][0], a.x[m][k + 1][1]);
        fa[m].x[3] = pack<E>(a.x[m][k + 1][2], a.x[m][k + 1][3]);
      }
#pragma unroll
      for (int n = 0; n < T::kN; ++n) {
        FragmentB fb;
        load_b(fb, b, k * 8, n * 8);
        change_sign<P, Minus>(fb);
#pragma unroll
        for (int m = 0; m < T::kM; ++m) multiply_add<P>(y.x[m][n], fa[m], fb);
      }
    }
  } else {
    // The parts of one operand, or the sums, are held while the other goes by: whichever are fewer.
    if constexpr (T::kN <= A::kN)
      accumulate_by_steps<P, Minus>(y, a, b);
    else
      accumulate_by_columns<P, Minus>(y, a, b);
  }
}

// The same for a vector, which is no matter for tensor cores: sums over a's columns, one a row; or,
// where a is one column, every row of it times the vector. The vector's padding is zero.
template <Precision P, bool Minus, class T, int R, int N, class S, class E>
__device__ inline void accumulate(T& y, const Tile<R, N, S>& a, E* b) {
  using A = Tile<R, N, S>;
  static_assert(P == Precision::f32 && (N == 1 || T::kColumns == 1), "one token at a time");
#pragma unroll
  for (int m = 0; m < T::kM; ++m) {
    if constexpr (N == 1) {
      float above = shuffle(a.x[m][0][0], lane() & 28), below = shuffle(a.x[m][0][2], lane() & 28);
#pragma unroll
      for (int n = 0; n < T::kN; ++n) {
        float2 pair = load_pair(b + T::column(n, 0));
        if (Minus) pair.x = -pair.x, pair.y = -pair.y;
        y.x[m][n][0] = fmaf(above, pair.x, y.x[m][n][0]);
        y.x[m][n][1] = fmaf(above, pair.y, y.x[m][n][1]);
        y.x[m][n][2] = fmaf(below, pair.x, y.x[m][n][2]);
        y.x[m][n][3] = fmaf(below, pair.y, y.x[m][n][3]);
      }
    } else {
      float sums[4] = {};
#pragma unroll
      for (int n = 0; n < A::kN; ++n) {
        float2 pair = load_pair(b + A::column(n, 0));
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[e] = fmaf(a.x[m][n][e], e % 2 ? pair.y : pair.x, sums[e]);
      }
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        float sum = sums[e] + sums[e + 1];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        y.x[m][0][e] += Minus ? -sum : sum;
      }
    }
  }
}

// One of several f32 or tf32 products of a first operand in registers, which is split for all of
// them at once: kept for one after another, its parts would take all registers.
template <Precision P, class T, class B>
struct Product {
  T& y;
  B b;
  Sums<P> sums[T::kM][T::kN];

  __device__ void add(const PartsA<P>& pa, int m, int k) {
#pragma unroll
    for (int n = 0; n < T::kN; ++n) {
      PartsB<P> pb;
      fill_b(pb, [&](int r, int c) { return element(b, r, c); }, k * 8, n * 8);
      sums[m][n].add(pa, pb);
    }
  }
  __device__ void finish() {
#pragma unroll
    for (int m = 0; m < T::kM; ++m)
#pragma unroll
      for (int n = 0; n < T::kN; ++n) sums[m][n].finish(y.x[m][n]);
  }
};
template <Precision P, class T, class B>
__device__ inline Product<P, T, B> into(T& y, B b) {
  return {y, b, {}};
}
template <Precision P, class A, class... Products>
__device__ inline void products_of(const A& a, Products... products) {
#pragma unroll
  for (int k = 0; k < A::kN; ++k)
#pragma unroll
    for (int m = 0; m < A::kM; ++m) {
      PartsA<P> pa;
      take_parts(pa, a, m, k);
      (products.add(pa, m, k), ...);
    }
  (products.finish(), ...);
}

template <class T, Precision P, class A, class B>
__device__ inline T product(const A& a, B b) {
  T y = constant<T>(0.f);
  accumulate<P, false>(y, a, b);
  return y;
}
// y + a b and y - a b, summed where y is.
template <Precision P, class T, class A, class B>
__device__ inline T plus_product(T y, const A& a, B b) {
  accumulate<P, false>(y, a, b);
  return y;
}
template <Precision P, class T, class A, class B>
__device__ inline T minus_product(T y, const A& a, B b) {
  accumulate<P, true>(y, a, b);
  return y;
}

// One step along the summed index: y += a(:, k..) b(at.., :), 16 or 8 long.
template <Precision P, class T, class A, class B>
__device__ inline void add_step(T& y, A a, B b, int k, int at) {
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int n = 0; n < T::kN; ++n) {
      if (!T::owns(m, n)) continue;
      int i = T::first_row() + m * 16, j = T::first_column() + n * 8;
      if constexpr (kTwoBytes<P>) {
        FragmentA fa;
        FragmentB fb;
        load_a(fa, a, i, k);
        load_b(fb, b, at, j);
        multiply_add<P>(y.x[m][n], fa, fb);
      } else {
        PartsA<P> pa;
        PartsB<P> pb;
        Sums<P> sums;
        float step[4];
        fill_a(pa, [&](int r, int c) { return element(a, r, c); }, i, k);
        fill_b(pb, [&](int r, int c) { return element(b, r, c); }, at, j);
        sums.add(pa, pb);
        sums.finish(step);
#pragma unroll
        for (int e = 0; e < 4; ++e) y.x[m][n][e] += step[e];
      }
    }
}

// y += a b for a band of b's rows, those from `first` on.
template <Precision P, class T, class A, class E, int R, int N>
__device__ inline void add_band(T& y, A a, SharedTile<E, R, N> band, int first) {
  constexpr int kLength = summed(static_cast<A*>(nullptr)), kStep = kTwoBytes<P> ? 16 : 8;
#pragma unroll
  for (int k = 0; k < R; k += kStep)
    if (kLength % R == 0 || first + k < kLength) add_step<P>(y, a, band, first + k, k);
}

// a b^T where b is a workspace tile, rows `Stride` numbers apart, too large for shared memory: it
// comes through `band`, some of its columns at a time.
template <class T, Precision P, class Cta, int Stride, class A, class E, int R, int N>
__device__ inline T streamed_product(A a, const E* b, Transposed<SharedTile<E, R, N>> band) {
  constexpr int kLength = summed(static_cast<A*>(nullptr)), kStep = kTwoBytes<P> ? 16 : 8;
  T y = constant<T>(0.f);
#pragma unroll 1
  for (int first = 0; first < kLength; first += N) {
    __syncthreads();
    load_rows<Cta, 16>(band.tile, b + first, Stride, round_up(R, 16), kLength - first);
    commit_copies();
    wait_for_copies();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k += kStep)
      if (kLength % N == 0 || first + k < kLength) add_step<P>(y, a, band, first + k, k);
  }
  return y;
}

}  // namespace linnet
