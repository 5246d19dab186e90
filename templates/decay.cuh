// Scores under decay and their adjoints: sums whose terms carry exp(rows_i - columns_j), every
// exponential in a bounded form (MATH.md E2 to E5).
#pragma once
#include "mma.cuh"

namespace linnet {

// How the diagonal blocks are bounded: the exponential of each difference, or both factors measured
// from row 0 of the block plus a constant.
enum class Form { pairwise, anchored };
enum class Side { rows, columns };

// In place of scratch where a chunk is one pairwise block, which needs none.
struct NoScratch {};

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

// The pairs of a block's triangle, one for each thread: row r and row Block - 1 - r share a row of
// threads, which is one too short if the diagonal is kept: the rest of it comes behind.
struct Pair {
  int i, j;  // j negative: none
};
template <Triangle Kept, int Block>
__device__ constexpr int pairs_of() {
  return Block * (Block / 2) + (Kept == Triangle::lower ? Block / 2 : 0);
}
template <Triangle Kept, int Block>
__device__ inline Pair find_pair(int x) {
  static_assert(Block % 2 == 0, "rows are taken in twos");
  constexpr int kOwn = Kept == Triangle::lower ? 1 : 0;
  int r = x / Block, c = x % Block;
  if (r >= Block / 2) return {Block - 1 - c, Block - 1 - c};
  if (c < r + kOwn) return {r, c};
  int j = c - r - kOwn;
  return {Block - 1 - r, j < Block - 1 - r ? j : -1};
}

// sum_d a_id b_jd exp(rows_id - columns_jd). Rows four apart lie in the same banks: threads take
// each eight channels in orders of their own, so that those rows are read in different places. The
// padding is zero.
template <int K, class A, class B, class G>
__device__ inline float pair_score(A a, B b, G rows, G columns, int i, int j) {
  int turn = j / 4 % 4 * 2;
  float even = 0, odd = 0;
#pragma unroll 1
  for (int first = 0; first < K; first += 8)
#pragma unroll
    for (int c = 0; c < 8; c += 2) {
      int d = first + (c ^ turn);
      float2 x = load_pair(a.at(i, d)), y = load_pair(b.at(j, d));
      float2 from = load_pair(rows.at(i, d)), until = load_pair(columns.at(j, d));
      even = fmaf(x.x * y.x, exp_of(from.x - until.x), even);
      odd = fmaf(x.y * y.y, exp_of(from.y - until.y), odd);
    }
  return even + odd;
}

// sum_d a_id b_jd exp(rows_id - columns_jd) on a triangle, zero elsewhere, for gates per key
// channel (F1). `left` and `right` are scratch for operands.
template <class Cta, Precision P, Triangle Kept, Form F, int Block, int C, class A, class B,
          class G, class L>
__device__ inline void decay_dot(SharedTile<float, C, C> to, A a, B b, G rows, G columns,
                                 float offset, L left, L right) {
  constexpr int kPadded = round_up(C, 16), kKeys = A::kColumns;
  share_out<Cta, SharedTile<float, C, C>::kBytes / 4>([&](int x) { to.data[x] = 0.f; });
#pragma unroll 1
  for (int begin = 0; begin < C; begin += Block) {
    // Rows [begin, begin + Block) against columns [first, last), both factors from one anchor.
    auto through = [&](auto add, int first, int last) {
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
    if constexpr (Block < C)
      if (begin > 0) through(0.f, 0, begin);  // E2
    if constexpr (F == Form::anchored) {
      through(offset, begin, begin + Block);  // E4c
    } else {                                  // E3
      if (begin == 0) __syncthreads();
      constexpr int kRows = round_up(Block, 2);
#pragma unroll 1
      for (int x = threadIdx.x; x < pairs_of<Kept, kRows>(); x += Cta::kThreads) {
        Pair pair = find_pair<Kept, kRows>(x);
        int i = begin + pair.i, j = begin + pair.j;
        if (pair.j >= 0 && i < C) to(i, j) = pair_score<kKeys>(a, b, rows, columns, i, j);
      }
    }
  }
}

// Adds vectors [first, last) to rows [begin, end) of a result: sum_j weight_ij x_j exp(+-(own_i -
// other_j)), both factors of the exponential measured from one anchor.
template <class Cta, Precision P, int Sign, class T, class W, class X, class G, class Anchor,
          class L>
__device__ inline void apply_through(T& y, W weight, X vectors, G own, G other, Anchor anchor,
                                     L scaled, int begin, int end, int first, int last) {
  __syncthreads();
  scale_rows<Cta, -Sign>(scaled, vectors, other, anchor, first, last - first);
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
        bool take = i < T::kRows && j < T::kColumns;
        float difference = take ? own(i, j) - anchor(j) : 0.f;
        y.x[m][n][e] += take ? exp_of(Sign * difference) * d[e] : 0.f;
      }
    }
}

// The pairs of a token with those of its own 16 rows, one vector after another. The pair of a token
// with itself does not decay; what is left out is left out before the exponential is taken.
template <int Sign, class T, class W, class X, class G>
__device__ inline void apply_pairs(T& y, W weight, X vectors, G own, G other) {
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll 1
    for (int j = m * 16; j < m * 16 + 16 && j < T::kRows; ++j) {
      float above = weight(T::row(m, 0), j), below = weight(T::row(m, 2), j);
#pragma unroll
      for (int n = 0; n < T::kN; ++n) {
        if (!T::owns(m, n)) continue;
        int d = T::column(n, 0);
        float2 x = load_pair(vectors.at(j, d)), gate = load_pair(other.at(j, d));
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          int i = T::row(m, e);
          bool take = Sign > 0 ? j < i : j > i;
          float2 from = load_pair(own.at(i, d));
          float w = e == 0 ? above : below;
          y.x[m][n][e] = fmaf(w * x.x, exp_of(take ? Sign * (from.x - gate.x) : 0.f), y.x[m][n][e]);
          y.x[m][n][e + 1] =
              fmaf(w * x.y, exp_of(take ? Sign * (from.y - gate.y) : 0.f), y.x[m][n][e + 1]);
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
  constexpr int C = T::kRows;
  constexpr bool kByRows = S == Side::rows;
  constexpr int kSign = kByRows ? 1 : -1;
  G own = kByRows ? rows : columns, other = kByRows ? columns : rows;
  // The number that couples row i of the result to vector j.
  auto weight = [&](int i, int j) {
    int r = kByRows ? i : j, c = kByRows ? j : i;
    return r < C && c < C && keeps<Kept>(r, c) ? matrix(r, c) : 0.f;
  };
  T y = constant<T>(0.f);
  if constexpr (Block < C || F == Form::anchored) {
#pragma unroll
    for (int begin = 0; begin < C; begin += Block) {
      int end = begin + Block < C ? begin + Block : C;
      auto through = [&](G gate, int row, float add, int first, int last) {
        auto anchor = [&](int d) { return gate(row, d) + add; };
        apply_through<Cta, P, kSign>(y, weight, vectors, own, other, anchor, scaled, begin, end,
                                     first, last);
      };
      if (kByRows && begin > 0) through(rows, begin, 0.f, 0, begin);                // E2
      if (!kByRows && end < C) through(columns, end - 1, 0.f, end, C);              // E2'
      if constexpr (F == Form::anchored) through(rows, begin, offset, begin, end);  // E4c
    }
  }
  if constexpr (F == Form::pairwise) apply_pairs<kSign>(y, weight, vectors, own, other);  // E3
  return y;
}

}  // namespace linnet
