// Tiles in registers: what a thread holds of a tile, laid out as the sums of mma.sync, and
// arithmetic on them.
#pragma once
#include "math.cuh"
#include "matrix.cuh"

namespace linnet {

// How the warps of a block share a tile: all rows and some columns each, or some rows and all
// columns.
template <int Warps>
struct Columns {
  static constexpr int kRowWarps = 1, kColumnWarps = Warps, kPadding = 16;
};
template <int Warps>
struct Rows {
  static constexpr int kRowWarps = Warps, kColumnWarps = 1, kPadding = 16;
};
// One number a row, in the first lane of its four: no operand of a product by mma.sync.
template <int Warps>
struct OneColumn {
  static constexpr int kRowWarps = Warps, kColumnWarps = 1, kPadding = 8;
};

// R x N numbers as 16 x 8 blocks; x[m][n][e] of a thread is one number. What lies beyond R and N is
// padding: finite, and of no meaning.
template <int R, int N, class Split>
struct Tile {
  static constexpr int kRows = R, kColumns = N;
  static constexpr int kBlocksDown = round_up(R, 16) / 16;
  static constexpr int kBlocksAcross = round_up(N, Split::kPadding) / 8;
  static constexpr int kM = (kBlocksDown + Split::kRowWarps - 1) / Split::kRowWarps;
  static constexpr int kN = (kBlocksAcross + Split::kColumnWarps - 1) / Split::kColumnWarps;
  static constexpr bool kEven =
      kM * Split::kRowWarps == kBlocksDown && kN * Split::kColumnWarps == kBlocksAcross;
  float x[kM][kN][4];

  __device__ static int first_row() { return Split::kRowWarps == 1 ? 0 : warp() * kM * 16; }
  __device__ static int first_column() { return Split::kColumnWarps == 1 ? 0 : warp() * kN * 8; }
  __device__ static int row(int m, int e) {
    return first_row() + m * 16 + group() + (e >= 2 ? 8 : 0);
  }
  __device__ static int column(int n, int e) {
    return first_column() + n * 8 + quad() * 2 + (e & 1);
  }
  // Whether this warp's block m, n is one of the tile's: the last warps may have fewer.
  __device__ static bool owns(int m, int n) {
    return kEven || (first_row() / 16 + m < kBlocksDown && first_column() / 8 + n < kBlocksAcross);
  }
  // Whether a number is not padding.
  __device__ static bool inside(int i, int j) {
    return (R % 16 == 0 || i < R) && (N % 16 == 0 || j < N);
  }
};

// Calls f(m, n, e) for everything a thread holds.
template <class T, class F>
__device__ inline void for_each(F f) {
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int n = 0; n < T::kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) f(m, n, e);
}

// The tile whose number at (i, j) is f(i, j).
template <class T, class F>
__device__ inline T generate(F f) {
  T y;
  for_each<T>([&](int m, int n, int e) { y.x[m][n][e] = f(T::row(m, e), T::column(n, e)); });
  return y;
}
template <class T, class F>
__device__ inline T map(const T& a, F f) {
  T y;
  for_each<T>([&](int m, int n, int e) { y.x[m][n][e] = f(a.x[m][n][e]); });
  return y;
}
template <class T, class F>
__device__ inline T map(const T& a, const T& b, F f) {
  T y;
  for_each<T>([&](int m, int n, int e) { y.x[m][n][e] = f(a.x[m][n][e], b.x[m][n][e]); });
  return y;
}

template <class T>
__device__ inline T constant(float c) {
  return generate<T>([=](int, int) { return c; });
}

#define LINNET_TILE_OPERATOR(op)                                                                \
  template <int R, int N, class S>                                                              \
  __device__ inline Tile<R, N, S> operator op(const Tile<R, N, S>& a, const Tile<R, N, S>& b) { \
    return map(a, b, [](float x, float y) { return x op y; });                                  \
  }                                                                                             \
  template <int R, int N, class S>                                                              \
  __device__ inline Tile<R, N, S> operator op(const Tile<R, N, S>& a, float b) {                \
    return map(a, [=](float x) { return x op b; });                                             \
  }                                                                                             \
  template <int R, int N, class S>                                                              \
  __device__ inline Tile<R, N, S> operator op(float a, const Tile<R, N, S>& b) {                \
    return map(b, [=](float x) { return a op x; });                                             \
  }
LINNET_TILE_OPERATOR(+)
LINNET_TILE_OPERATOR(-)
LINNET_TILE_OPERATOR(*)
#undef LINNET_TILE_OPERATOR

// Functions of numbers and, number by number, of tiles: the emitted code writes both alike.
#define LINNET_TILE_FUNCTION(name, function)                     \
  __device__ inline float name(float a) { return function(a); }  \
  template <int R, int N, class S>                               \
  __device__ inline Tile<R, N, S> name(const Tile<R, N, S>& a) { \
    return map(a, [](float x) { return function(x); });          \
  }
LINNET_TILE_FUNCTION(exponential, exp_of)
LINNET_TILE_FUNCTION(logarithm, log_of)
LINNET_TILE_FUNCTION(square_root, sqrt_of)
LINNET_TILE_FUNCTION(reciprocal_root, rsqrt_of)
LINNET_TILE_FUNCTION(sigmoid, sigmoid_of)
LINNET_TILE_FUNCTION(softplus, softplus_of)
LINNET_TILE_FUNCTION(hyperbolic_tangent, tanh_of)
LINNET_TILE_FUNCTION(negative, -)
#undef LINNET_TILE_FUNCTION

#define LINNET_TILE_FUNCTION(name, expression)                                           \
  __device__ inline float name(float x, float y) { return expression; }                  \
  template <int R, int N, class S>                                                       \
  __device__ inline Tile<R, N, S> name(const Tile<R, N, S>& a, const Tile<R, N, S>& b) { \
    return map(a, b, [](float x, float y) { return expression; });                       \
  }                                                                                      \
  template <int R, int N, class S>                                                       \
  __device__ inline Tile<R, N, S> name(const Tile<R, N, S>& a, float y) {                \
    return map(a, [=](float x) { return expression; });                                  \
  }                                                                                      \
  template <int R, int N, class S>                                                       \
  __device__ inline Tile<R, N, S> name(float x, const Tile<R, N, S>& b) {                \
    return map(b, [=](float y) { return expression; });                                  \
  }
LINNET_TILE_FUNCTION(quotient, divide(x, y))
LINNET_TILE_FUNCTION(maximum, fmaxf(x, y))
LINNET_TILE_FUNCTION(at_least, x >= y ? 1.f : 0.f)
#undef LINNET_TILE_FUNCTION

// a where the condition is not zero, b elsewhere.
__device__ inline float choose(float condition, float a, float b) {
  return condition != 0.f ? a : b;
}
template <int R, int N, class S>
__device__ inline Tile<R, N, S> choose(const Tile<R, N, S>& condition, const Tile<R, N, S>& a,
                                       const Tile<R, N, S>& b) {
  Tile<R, N, S> y;
  for_each<Tile<R, N, S>>([&](int m, int n, int e) {
    y.x[m][n][e] = choose(condition.x[m][n][e], a.x[m][n][e], b.x[m][n][e]);
  });
  return y;
}
template <int R, int N, class S>
__device__ inline Tile<R, N, S> choose(const Tile<R, N, S>& c, const Tile<R, N, S>& a, float b) {
  return choose(c, a, constant<Tile<R, N, S>>(b));
}

template <Precision P>
__device__ inline float round_to(float x) {
  return rounded<P>(x);
}
template <Precision P, int R, int N, class S>
__device__ inline Tile<R, N, S> round_to(const Tile<R, N, S>& a) {
  return map(a, [](float x) { return rounded<P>(x); });
}

// One number a row, or one a column, everywhere along it.
template <class T, class E>
__device__ inline T over_rows(const E* vector) {
  return generate<T>(
      [=](int i, int) { return T::kRows % 16 == 0 || i < T::kRows ? to_f32(vector[i]) : 0.f; });
}
template <class T, class E>
__device__ inline T over_columns(const E* vector) {
  return generate<T>([=](int, int j) {
    return T::kEven && T::kColumns % 16 == 0 || j < T::kColumns ? to_f32(vector[j]) : 0.f;
  });
}

// Zero outside of a triangle, by selection.
template <Triangle Kept, int R, int N, class S>
__device__ inline Tile<R, N, S> keep(const Tile<R, N, S>& a) {
  using T = Tile<R, N, S>;
  T y;
  for_each<T>([&](int m, int n, int e) {
    y.x[m][n][e] = keeps<Kept>(T::row(m, e), T::column(n, e)) ? a.x[m][n][e] : 0.f;
  });
  return y;
}
// Zero from a row (or, for a tile that lies on its side, a column) on.
template <int R, int N, class S>
__device__ inline Tile<R, N, S> keep_rows(const Tile<R, N, S>& a, int rows) {
  using T = Tile<R, N, S>;
  T y;
  for_each<T>(
      [&](int m, int n, int e) { y.x[m][n][e] = T::row(m, e) < rows ? a.x[m][n][e] : 0.f; });
  return y;
}
template <int R, int N, class S>
__device__ inline Tile<R, N, S> keep_columns(const Tile<R, N, S>& a, int columns) {
  using T = Tile<R, N, S>;
  T y;
  for_each<T>(
      [&](int m, int n, int e) { y.x[m][n][e] = T::column(n, e) < columns ? a.x[m][n][e] : 0.f; });
  return y;
}
// Zero but for one row.
template <class T>
__device__ inline T place_row(const float* vector, int row) {
  return generate<T>([=](int i, int j) { return i == row && j < T::kColumns ? vector[j] : 0.f; });
}

// Two blocks side by side of two-byte numbers by one ldmatrix: laid out as a first operand of
// mma.sync.
template <class T, class E, class S>
__device__ inline void load_matrix(T& y, S from) {
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int n = 0; n < T::kN; n += 2) {
      FragmentA a;
      load_a(a, from, T::first_row() + m * 16, T::first_column() + n * 8);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        float2 pair = unpack<E>(a.x[x]);
        y.x[m][n + x / 2][x % 2 * 2] = pair.x;
        y.x[m][n + x / 2][x % 2 * 2 + 1] = pair.y;
      }
    }
}
template <class T, class E>
constexpr bool kByMatrix = sizeof(E) == 2 && T::kEven && T::kN % 2 == 0;

// Between shared memory and registers.
template <class T, class E, int R, int N>
__device__ inline T load(SharedTile<E, R, N> from) {
  static_assert(T::kRows == R && T::kColumns == N, "a tile is loaded from one of its own size");
  T y;
  if constexpr (kByMatrix<T, E>) {
    load_matrix<T, E>(y, from);
  } else {
#pragma unroll
    for (int m = 0; m < T::kM; ++m)
#pragma unroll
      for (int n = 0; n < T::kN; ++n)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          float2 pair = {};
          if (T::owns(m, n)) pair = load_pair(from.at(T::row(m, e), T::column(n, e)));
          y.x[m][n][e] = pair.x;
          y.x[m][n][e + 1] = pair.y;
        }
  }
  return y;
}
template <class T, class E, int R, int N>
__device__ inline T load(Transposed<SharedTile<E, R, N>> from) {
  static_assert(T::kRows == N && T::kColumns == R, "a tile is loaded from one of its own size");
  T y;
  if constexpr (kByMatrix<T, E>)
    load_matrix<T, E>(y, from);
  else
    for_each<T>([&](int m, int n, int e) {
      y.x[m][n][e] = T::owns(m, n) ? to_f32(from.tile(T::column(n, e), T::row(m, e))) : 0.f;
    });
  return y;
}

template <class E, int R, int N, class S>
__device__ inline void store(SharedTile<E, R, N> to, const Tile<R, N, S>& a) {
  using T = Tile<R, N, S>;
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int n = 0; n < T::kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        int i = T::row(m, e), j = T::column(n, e);
        float first = T::inside(i, j) ? a.x[m][n][e] : 0.f;
        float second = T::inside(i, j + 1) ? a.x[m][n][e + 1] : 0.f;
        if (T::owns(m, n)) store_pair(to.at(i, j), first, second);
      }
}
template <class E, int R, int N, class S>
__device__ inline void store(Transposed<SharedTile<E, R, N>> to, const Tile<N, R, S>& a) {
  using T = Tile<N, R, S>;
  for_each<T>([&](int m, int n, int e) {
    int i = T::row(m, e), j = T::column(n, e);
    if (T::owns(m, n)) to.tile(j, i) = from_f32<E>(T::inside(i, j) ? a.x[m][n][e] : 0.f);
  });
}

// Two-byte numbers of two blocks side by side: a lane trades a pair with its neighbour and has four
// numbers in a row, so that the lanes of a row fill a sector of memory.
struct Traded {
  static __device__ bool odd() { return quad() & 1; }
  // The first of the lane's four columns, of blocks that begin at a column.
  static __device__ int column(int first) {
    return odd() ? first + 8 + (quad() - 1) * 2 : first + quad() * 2;
  }
  static __device__ uint2 join(u32 left, u32 right) {
    u32 got = __shfl_xor_sync(0xffffffffu, odd() ? left : right, 1);
    uint2 both;
    both.x = odd() ? got : left;
    both.y = odd() ? right : got;
    return both;
  }
  static __device__ uint2 split(uint2 both) {
    u32 got = __shfl_xor_sync(0xffffffffu, odd() ? both.x : both.y, 1);
    uint2 own;
    own.x = odd() ? got : both.x;
    own.y = odd() ? both.y : got;
    return own;
  }
};

// A tile's image in a workspace, straight from and to registers.
template <class T, int Stride, class E>
__device__ inline T read_block(const E* from) {
  T y;
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const E* row = from + T::row(m, e) * Stride;
      bool inside = T::kRows % 16 == 0 || T::row(m, e) < T::kRows;
      if constexpr (kByMatrix<T, E>) {
#pragma unroll
        for (int n = 0; n < T::kN; n += 2) {
          uint2 both = {};
          const E* at = row + Traded::column(T::first_column() + n * 8);
          if (inside) both = load_eight(at);
          both = Traded::split(both);
          float2 left = unpack<E>(both.x), right = unpack<E>(both.y);
          y.x[m][n][e] = left.x;
          y.x[m][n][e + 1] = left.y;
          y.x[m][n + 1][e] = right.x;
          y.x[m][n + 1][e + 1] = right.y;
        }
      } else {
#pragma unroll
        for (int n = 0; n < T::kN; ++n) {
          float2 pair = {};
          if (inside && T::owns(m, n)) pair = load_pair(row + T::column(n, e));
          y.x[m][n][e] = pair.x;
          y.x[m][n][e + 1] = pair.y;
        }
      }
    }
  return y;
}
template <int Stride, class E, int R, int N, class S>
__device__ inline void write_block(E* to, const Tile<R, N, S>& a, int rows = R) {
  using T = Tile<R, N, S>;
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      int i = T::row(m, e);
      E* row = to + i * Stride;
      auto number = [&](int n, int c) {
        return T::inside(i, T::column(n, c)) ? a.x[m][n][e + c] : 0.f;
      };
      if constexpr (kByMatrix<T, E>) {
#pragma unroll
        for (int n = 0; n < T::kN; n += 2) {
          uint2 both = Traded::join(pack<E>(number(n, 0), number(n, 1)),
                                    pack<E>(number(n + 1, 0), number(n + 1, 1)));
          E* at = row + Traded::column(T::first_column() + n * 8);
          if (i < rows) store_eight(at, both);
        }
      } else {
#pragma unroll
        for (int n = 0; n < T::kN; ++n)
          if (T::owns(m, n) && i < rows)
            store_pair(row + T::column(n, 0), number(n, 0), number(n, 1));
      }
    }
}

// One number a row, as a row of a tensor.
template <class E, int R, int W>
__device__ inline void store_column(E* to, const Tile<R, 1, OneColumn<W>>& a, int count) {
  using T = Tile<R, 1, OneColumn<W>>;
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      int i = T::row(m, e);
      if (quad() == 0 && i < R && i < count) to[i] = from_f32<E>(a.x[m][0][e]);
    }
}

// How a state lies in memory: [K, V] or [V, K].
enum class StateOrder { k_first, v_first };

// Calls f(m, n, e, place) for everything a thread holds of a state, on its side in registers: rows
// are value channels from `first_value` on, columns are key channels. Where tiles are whole nothing
// is asked, which is most of the time a compiler takes.
template <class T, StateOrder Order, int V, class F>
__device__ inline void for_each_in_state(int first_value, F f) {
  constexpr int K = T::kColumns;
  constexpr bool kWhole = T::kEven && V % T::kRows == 0 && T::kRows % 16 == 0 && K % 16 == 0;
  constexpr int kKey = Order == StateOrder::k_first ? V : 1;
  constexpr int kValue = Order == StateOrder::k_first ? 1 : K;
  int first = (first_value + T::row(0, 0)) * kValue + T::column(0, 0) * kKey;
  for_each<T>([&](int m, int n, int e) {
    int i = T::row(m, e), j = T::column(n, e);
    if (kWhole || (i < T::kRows && first_value + i < V && j < K))
      f(m, n, e, first + (m * 16 + e / 2 * 8) * kValue + (n * 8 + e % 2) * kKey);
  });
}

// No state is a state of zeros.
template <class T, StateOrder Order, int V, class E>
__device__ inline T load_state(const E* from, int first_value) {
  T y = constant<T>(0.f);
  if (from)
    for_each_in_state<T, Order, V>(
        first_value, [&](int m, int n, int e, int at) { y.x[m][n][e] = to_f32(from[at]); });
  return y;
}
template <StateOrder Order, int V, class E, int R, int K, class S>
__device__ inline void store_state(E* to, const Tile<R, K, S>& a, int first_value) {
  if (to)
    for_each_in_state<Tile<R, K, S>, Order, V>(
        first_value, [&](int m, int n, int e, int at) { to[at] = from_f32<E>(a.x[m][n][e]); });
}

}  // namespace linnet
