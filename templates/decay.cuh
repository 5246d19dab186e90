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

// exp(x) as a factor of a product's terms. What exp_of puts back is lost in products of less than
// f32's bits.
template <Precision P>
__device__ inline float decay_of(float x) {
  return P == Precision::f32 ? exp_of(x) : power_of_two(x * kLog2e);
}

// Rows [first, first + count) of x, each times exp(sign (gate - anchor)), as operands of a product.
template <class Cta, Precision P, int Sign, class L, class X, class G, class Anchor>
__device__ inline void scale_rows(L to, X x, G gate, Anchor anchor, int first, int count) {
  using E = typename L::Element;
  constexpr int kAcross = L::kPaddedColumns;
  int padded = round_up(count, 16);
  for (int at = threadIdx.x; at < padded * kAcross; at += Cta::kThreads) {
    int i = at / kAcross, d = at % kAcross;
    bool take = i < count && d < X::kColumns;
    float factor = take ? decay_of<P>(Sign * (gate(first + i, d) - anchor(d))) : 0.f;
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
    for (int e = 0; e < 4; e += 2) {
      float2 sums;
      sums.x = d[e], sums.y = d[e + 1];
      put(i + group() + e / 2 * 8, j + quad() * 2, sums);
    }
  }
}

// Scores that are made together: numbers (i, j) of `to` from rows a_i and b_j, under one decay.
template <Triangle Kept, class To, class A, class B>
struct Score {
  static constexpr bool kDiagonal = Kept == Triangle::lower;
  To to;
  A a;
  B b;
  float sum, own;  // of the lane's pair, and of a row with itself

  __device__ void start() { sum = own = 0; }
  __device__ static float term(float sum, float2 x, float2 y, float2 decay) {
    return fmaf(x.x, y.x * decay.x, fmaf(x.y, y.y * decay.y, sum));
  }
  __device__ void add(int i, int j, int d, float2 decay) {
    sum = term(sum, load_pair(a.at(i, d)), load_pair(b.at(j, d)), decay);
  }
  __device__ void add_own(int i, int d, float2 decay) {
    if (kDiagonal) own = term(own, load_pair(a.at(i, d)), load_pair(b.at(i, d)), decay);
  }
  // The sums of a row with itself, from the eight lanes that share it.
  __device__ void join_own() {
    if (!kDiagonal) return;
    own += shuffle_xor(own, 1);
    own += shuffle_xor(own, 2);
    own += shuffle_xor(own, 16);
  }
  // Columns j and j + 1 of row i, whose pairs begin at lane `pairs`; its own sum is lane `row`'s.
  __device__ void store(int begin, int i, int j, int pairs, int row) const {
    float diagonal = kDiagonal ? shuffle(own, row) : 0.f;
    float first = shuffle(sum, (pairs + j) % 32), second = shuffle(sum, (pairs + j + 1) % 32);
    store_pair(to.at(begin + i, begin + j), j < i ? first : j == i ? diagonal : 0.f,
               j + 1 < i ? second : j + 1 == i ? diagonal : 0.f);
  }
};
template <Triangle Kept, class To, class A, class B>
__device__ inline Score<Kept, To, A, B> score(To to, A a, B b) {
  return {to, a, b};
}

// sum_d a_id b_jd exp(rows_id - columns_jd) for a diagonal block of 16 rows, pair by pair (E3).
//
// Rows r and 15 - r have 15 pairs together: sixteen lanes take one each, and a warp rows 2w, 2w + 1
// and their partners. Rows four apart lie in the same banks: lanes begin at channels of their own,
// so that those rows are read in different places. Two rows that are stored at once lie sixteen
// banks apart. No access meets a conflict; the padding is zero.
template <class Cta, Precision P, class G, class... S>
__device__ inline void pair_scores(int begin, G rows, G columns, S... scores) {
  constexpr int kKeys = G::kPaddedColumns;
  auto decay = [&](int i, int j, int d) {
    float2 from = load_pair(rows.at(i, d)), until = load_pair(columns.at(j, d));
    from.x = decay_of<P>(from.x - until.x);
    from.y = decay_of<P>(from.y - until.y);
    return from;
  };
  int half = lane() / 16, place = lane() % 16;
#pragma unroll 1
  for (int band = warp(); band < 4; band += Cta::kWarps) {
    (scores.start(), ...);
    int upper = 2 * band, lower = 14 - upper;
    int r = upper + half;
    int i = begin + (place < r ? r : 15 - r), j = begin + (place < r ? place : place - r);
    int turn = j / 4 % 4 * 2;
    auto add = [&](int d) {
      float2 both = decay(i, j, d);
      (scores.add(i, j, d, both), ...);
    };
#pragma unroll 1
    for (int first = turn; first < turn + kKeys - 8; first += 8)
#pragma unroll
      for (int c = 0; c < 8; c += 2) add(first + c);
#pragma unroll
    for (int c = kKeys - 8; c < kKeys; c += 2) add(turn + c < kKeys ? turn + c : turn + c - kKeys);
    if constexpr ((S::kDiagonal || ...)) {
      int own = begin + (place < 8 ? upper : lower) + place / 4 % 2;
#pragma unroll 1
      for (int first = 32 * half; first < kKeys; first += 64)
#pragma unroll
        for (int c = 0; c < 32; c += 8) {
          int d = first + c + quad() * 2;
          if (kKeys % 64 != 0 && d >= kKeys) continue;
          float2 both = decay(own, own, d);
          (scores.add_own(own, d, both), ...);
        }
      (scores.join_own(), ...);
    }
    int own = (place < 8 ? upper : lower) + half, partner = 15 - own;
    int pairs = own < 8 ? own % 2 * 16 : partner % 2 * 16 + partner;
    (scores.store(begin, own, place % 8 * 2, pairs, place / 8 * 8 + half * 4), ...);
  }
}

// Scores of chunks of at most 16 tokens that have their decay in common.
template <class Cta, Precision P, class G, class... S>
__device__ inline void decay_dots(G rows, G columns, S... scores) {
  pair_scores<Cta, P>(0, rows, columns, scores...);
}

// sum_d a_id b_jd exp(rows_id - columns_jd) on a triangle, zero elsewhere, for gates per key
// channel (F1). `left` and `right` are scratch for operands.
template <class Cta, Precision P, Triangle Kept, Form F, int Block, int C, class A, class B,
          class G, class L>
__device__ inline void decay_dot(SharedTile<float, C, C> to, A a, B b, G rows, G columns,
                                 float offset, L left, L right) {
  static_assert(F == Form::anchored || Block == 16 || C < 16, "pairs are taken 16 rows at a time");
  constexpr bool kWhole = C <= Block && (F == Form::pairwise || C == 16);
  if constexpr (!kWhole)
    share_out<Cta, SharedTile<float, C, C>::kBytes / 4>([&](int x) { to.data[x] = 0.f; });
#pragma unroll 1
  for (int begin = 0; begin < C; begin += Block) {
    // Rows [begin, begin + Block) against columns [first, last), both factors from one anchor.
    auto through = [&](auto add, int first, int last) {
      auto anchor = [&](int d) { return rows(begin, d) + add; };
      __syncthreads();
      scale_rows<Cta, P, 1>(left, a, rows, anchor, begin, Block);
      scale_rows<Cta, P, -1>(right, b, columns, anchor, first, last - first);
      __syncthreads();
      score_blocks<Cta, P>(left, right, Block, last - first, [&](int i, int j, float2 sums) {
        auto kept = [&](int column) {
          return begin + i < C && column < last && keeps<Kept>(begin + i, column);
        };
        float second = kept(first + j + 1) ? sums.y : 0.f;
        store_pair(to.at(begin + i, first + j), kept(first + j) ? sums.x : 0.f, second);
      });
    };
    if constexpr (Block < C)
      if (begin > 0) through(0.f, 0, begin);  // E2
    if constexpr (F == Form::anchored) {
      through(offset, begin, begin + Block);  // E4c
    } else {
      if (!kWhole && begin == 0) __syncthreads();
      pair_scores<Cta, P>(begin, rows, columns, score<Kept>(to, a, b));
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
  scale_rows<Cta, P, -Sign>(scaled, vectors, other, anchor, first, last - first);
  __syncthreads();
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int n = 0; n < T::kN; ++n) {
      if (m * 16 < begin || m * 16 >= end || !T::owns(m, n)) continue;
      Sums<P> sums;
#pragma unroll 1
      for (int k = 0; k < last - first; k += 8) {
        PartsA<P> pa;
        PartsB<P> pb;
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
        y.x[m][n][e] += take ? decay_of<P>(Sign * difference) * d[e] : 0.f;
      }
    }
}

// One adjoint of scores: row i of y gets sum_j matrix_ij vectors_j exp(rows_i - columns_j), or
// (columns) row j gets sum_i matrix_ij vectors_i exp(rows_i - columns_j).
template <Side S, Triangle Kept, class T, class M, class X>
struct Adjoint {
  using Result = T;
  static constexpr Side kSide = S;
  T& y;
  M matrix;
  X vectors;
  float weights[2][4];  // of vectors j and j + 1, for rows i (twice) and i + 8 of the result

  __device__ void take_weights(int i, int j) {
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      int own = i + e / 2 * 8;
      float2 both;
      if constexpr (S == Side::rows)
        both = load_pair(matrix.at(own, j));
      else
        both.x = matrix(j, own), both.y = matrix(j + 1, own);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        bool kept = S == Side::rows ? keeps<Kept>(own, j + c) : keeps<Kept>(j + c, own);
        weights[c][e] = weights[c][e + 1] = kept ? c == 0 ? both.x : both.y : 0.f;
      }
    }
  }
  __device__ void add(int m, int n, int j, int c, const float (&decay)[4]) {
    float2 x = load_pair(vectors.at(j + c, T::column(n, 0)));
#pragma unroll
    for (int e = 0; e < 4; ++e)
      y.x[m][n][e] = fmaf(weights[c][e], (e % 2 ? x.y : x.x) * decay[e], y.x[m][n][e]);
  }
};
template <Triangle Kept, class T, class M, class X>
__device__ inline Adjoint<Side::rows, Kept, T, M, X> onto_rows(T& y, M matrix, X vectors) {
  return {y, matrix, vectors};
}
template <Triangle Kept, class T, class M, class X>
__device__ inline Adjoint<Side::columns, Kept, T, M, X> onto_columns(T& y, M matrix, X vectors) {
  return {y, matrix, vectors};
}

// The pairs of a token with those of its own 16 rows, one vector after another (E3). A token
// couples with those before it on one side and with those behind it on the other: one exponential
// serves all adjoints. The pair of a token with itself does not decay; what is left out is left out
// before the exponential is taken.
template <Precision P, class G, class A, class... Rest>
__device__ inline void apply_pairs(G rows, G columns, A adjoint, Rest... rest) {
  using T = typename A::Result;
  constexpr bool kAllRows = A::kSide == Side::rows && ((Rest::kSide == Side::rows) && ...);
  constexpr bool kAllColumns = A::kSide == Side::columns && ((Rest::kSide == Side::columns) && ...);
  bool same = rows.data == columns.data;  // known to the compiler
  T own_rows = load<T>(rows), own_columns = load<T>(columns);
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll 1
    for (int j = m * 16; j < m * 16 + 16 && j < T::kRows; j += 2) {
      adjoint.take_weights(T::row(m, 0), j);
      (rest.take_weights(T::row(m, 0), j), ...);
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int n = 0; n < T::kN; ++n) {
          if (!T::owns(m, n)) continue;
          int d = T::column(n, 0);
          float2 row = load_pair(rows.at(j + c, d)), column = load_pair(columns.at(j + c, d));
          float decay[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float before = own_rows.x[m][n][e] - (e % 2 ? column.y : column.x);
            float behind = (e % 2 ? row.y : row.x) - own_columns.x[m][n][e];
            if (same) behind = -before;
            float none = same ? before : 0.f;
            int i = T::row(m, e);
            bool is_before = (same || !kAllColumns) && j + c < i;
            bool is_behind = (same || !kAllRows) && j + c > i;
            decay[e] = decay_of<P>(is_before ? before : is_behind ? behind : none);
          }
          adjoint.add(m, n, j, c, decay);
          (rest.add(m, n, j, c, decay), ...);
        }
    }
}

// Adjoints of scores of chunks of at most 16 tokens that have their decay in common.
template <Precision P, class G, class... A>
__device__ inline void decay_applies(G rows, G columns, A... adjoints) {
  ((adjoints.y = constant<typename A::Result>(0.f)), ...);
  apply_pairs<P>(rows, columns, adjoints...);
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
  if constexpr (F == Form::pairwise) {
    Adjoint<S, Kept, T, M, X> adjoint{y, matrix, vectors};
    apply_pairs<P>(rows, columns, adjoint);
  }
  return y;
}

}  // namespace linnet
