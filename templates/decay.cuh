// Scores under decay and their adjoints: sums whose terms carry exp(rows_i - columns_j), every
// exponential in a bounded form (MATH.md E2 to E5).
#pragma once
#include "mma.cuh"

namespace linnet {

// How the diagonal blocks are bounded: the exponential of each difference, or both factors measured
// from row 0 of the block plus a constant.
enum class Form { pairwise, anchored };
enum class Side { rows, columns };

// exp(rows_i - columns_j) on a triangle, for one gate a token (E5).
template <class T, Triangle Kept>
__device__ inline T decay_mask(const float* rows, const float* columns) {
  return generate<T>([=](int i, int j) {
    bool take = i < T::kRows && j < T::kColumns && keeps<Kept>(i, j);
    return take ? exp_of(rows[i] - columns[j]) : 0.f;
  });
}

// Rows [first, first + count) of x, each times exp(sign (gate - anchor)), as operands of a product.
template <class Cta, int Sign, class L, class X, class G, class Anchor>
__device__ inline void scale_rows(L to, X x, G gate, Anchor anchor, int first, int count) {
  using E = typename L::Element;
  constexpr int kAcross = L::kPaddedColumns;
  int padded = round_up(count, 16);
  for (int at = threadIdx.x; at < padded * kAcross; at += Cta::kThreads) {
    int i = at / kAcross, d = at % kAcross;
    bool take = i < count && d < X::kColumns;
    float factor = take ? exp_of(Sign * (gate(first + i, d) - anchor(d))) : 0.f;
    to(i, d) = from_f32<E>(take ? to_f32(x(first + i, d)) * factor : 0.f);
  }
}

// d_ij = sum_k left_ik right_jk for some rows and columns; warps take turns at the 16 x 8 blocks.
template <class Cta, Precision P, class L, class R, class F>
__device__ inline void score_blocks(L left, R right, int rows, int columns, F put) {
  int across = (columns + 7) / 8, count = (rows + 15) / 16 * across;
  for (int block = warp(); block < count; block += Cta::kWarps) {
    int i = block / across * 16, j = block % across * 8;
    float d[4] = {};
    block_product<P>(d, left, transposed(right), i, j);
#pragma unroll
    for (int e = 0; e < 4; ++e) put(i + group() + e / 2 * 8, j + quad() * 2 + e % 2, d[e]);
  }
}

// sum_d a_id b_jd exp(rows_id - columns_jd) on a triangle, zero elsewhere, for gates per key
// channel (F1). `left` and `right` are scratch for operands.
template <class Cta, Precision P, Triangle Kept, Form F, int Block, int C, class A, class B,
          class G, class L>
__device__ inline void decay_dot(SharedTile<float, C, C> to, A a, B b, G rows, G columns,
                                 float offset, L left, L right) {
  constexpr int kPadded = round_up(C, 16), kKeys = A::kColumns;
  for (int x = threadIdx.x; x < kPadded * kPadded; x += Cta::kThreads)
    to(x / kPadded, x % kPadded) = 0.f;
#pragma unroll 1
  for (int begin = 0; begin < C; begin += Block) {
    // Rows [begin, begin + Block) against columns [first, last), both factors from one anchor.
    auto through = [&](float add, int first, int last) {
      auto anchor = [&](int d) { return rows(begin, d) + add; };
      __syncthreads();
      scale_rows<Cta, 1>(left, a, rows, anchor, begin, Block);
      scale_rows<Cta, -1>(right, b, columns, anchor, first, last - first);
      __syncthreads();
      score_blocks<Cta, P>(left, right, Block, last - first, [&](int i, int j, float sum) {
        bool take = begin + i < C && first + j < last && keeps<Kept>(begin + i, first + j);
        if (take) to(begin + i, first + j) = sum;
      });
    };
    if (begin > 0) through(0.f, 0, begin);  // E2
    if constexpr (F == Form::anchored) {
      through(offset, begin, begin + Block);  // E4c
    } else {                                  // E3: one pair for each thread
      if (begin == 0) __syncthreads();
      for (int x = threadIdx.x; x < Block * Block; x += Cta::kThreads) {
        int i = begin + x / Block, j = begin + x % Block;
        if (!keeps<Kept>(i, j)) continue;
        float sum = 0;
#pragma unroll 4
        for (int d = 0; d < kKeys; ++d)
          sum = fmaf(to_f32(a(i, d)) * to_f32(b(j, d)), exp_of(rows(i, d) - columns(j, d)), sum);
        to(i, j) = sum;
      }
    }
  }
}

// The adjoints of decay_dot (B6): row i of the result is sum_j m_ij x_j exp(rows_i - columns_j)
// over the triangle, or (columns) row j is sum_i m_ij x_i exp(rows_i - columns_j). `scaled` is
// scratch.
template <class T, class Cta, Precision P, Side S, Triangle Kept, Form F, int Block, class M,
          class X, class G, class L>
__device__ inline T decay_apply(M matrix, X vectors, G rows, G columns, float offset, L scaled) {
  constexpr int C = T::kRows, kKeys = T::kColumns;
  constexpr bool kByRows = S == Side::rows;
  G own = kByRows ? rows : columns, other = kByRows ? columns : rows;
  // The number that couples row i of the result to vector j.
  auto weight = [&](int i, int j) {
    int r = kByRows ? i : j, c = kByRows ? j : i;
    return r < C && c < C && keeps<Kept>(r, c) ? matrix(r, c) : 0.f;
  };
  T y = constant<T>(0.f);
#pragma unroll
  for (int begin = 0; begin < C; begin += Block) {
    int end = begin + Block < C ? begin + Block : C;
    // Adds vectors [first, last) to the rows of this block, both factors from one anchor.
    auto through = [&](G gate, int anchor_row, float add, int first, int last) {
      auto anchor = [&](int d) { return gate(anchor_row, d) + add; };
      __syncthreads();
      scale_rows<Cta, kByRows ? -1 : 1>(scaled, vectors, other, anchor, first, last - first);
      __syncthreads();
#pragma unroll
      for (int m = 0; m < T::kM; ++m)
#pragma unroll
        for (int n = 0; n < T::kN; ++n) {
          if (m * 16 < begin || m * 16 >= end || !T::owns(m, n)) continue;
          Sums<P> sums;
#pragma unroll 1
          for (int k = 0; k < last - first; k += 8) {
            PartsA pa;
            PartsB pb;
            fill_a(pa, [&](int i, int j) { return weight(i, first + j); }, m * 16, k);
            fill_b(pb, [&](int j, int d) { return scaled(j, d); }, k, T::first_column() + n * 8);
            sums.add(pa, pb);
          }
          float d[4];
          sums.finish(d);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            int i = T::row(m, e), j = T::column(n, e);
            bool take = i < C && j < kKeys;
            float difference = take ? own(i, j) - anchor(j) : 0.f;
            y.x[m][n][e] += take ? exp_of(kByRows ? difference : -difference) * d[e] : 0.f;
          }
        }
    };
    if (kByRows && begin > 0) through(rows, begin, 0.f, 0, begin);                // E2
    if (!kByRows && end < C) through(columns, end - 1, 0.f, end, C);              // E2'
    if constexpr (F == Form::anchored) through(rows, begin, offset, begin, end);  // E4c
  }
  if constexpr (F == Form::pairwise)  // E3
    for_each<T>([&](int m, int n, int e) {
      int i = T::row(m, e), d = T::column(n, e), begin = i / Block * Block;
      if (i >= C || d >= kKeys) return;
      float gate = own(i, d), sum = 0;
      int first = kByRows ? begin : i, last = kByRows ? i + 1 : begin + Block;
#pragma unroll 1
      for (int j = first; j < last && j < C; ++j) {
        float difference = kByRows ? gate - other(j, d) : other(j, d) - gate;
        float decay = i == j ? 1.f : exp_of(difference);
        sum = fmaf(weight(i, j) * to_f32(vectors(j, d)), decay, sum);
      }
      y.x[m][n][e] += sum;
    });
  return y;
}

}  // namespace linnet
