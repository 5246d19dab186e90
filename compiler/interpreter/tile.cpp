#include "compiler/interpreter/tile.h"

#include <bit>
#include <cassert>

namespace linnet::interpreter {

namespace {

// Drops `bits` of the mantissa, to nearest even. Infinities and NaN stay.
float drop_bits(float x, int bits) {
  if (!std::isfinite(x)) return x;
  uint32_t u = std::bit_cast<uint32_t>(x);
  uint32_t half = (1u << (bits - 1)) - 1 + ((u >> bits) & 1);
  return std::bit_cast<float>((u + half) & ~((1u << bits) - 1));
}

float round_to_f16(float x) {
  if (!std::isfinite(x)) return x;
  if (std::fabs(x) < 0x1p-14f)
    return std::nearbyint(x * 0x1p24f) * 0x1p-24f;  // subnormal: steps of 2^-24
  float y = drop_bits(x, 13);
  return std::fabs(y) > 65504.0f ? std::copysign(INFINITY, x) : y;
}

bool keeps(Triangle triangle, int64_t i, int64_t j) {
  return triangle == Triangle::lower ? i >= j : i > j;
}

// The rows [begin, end) of x, each times exp(sign * (gate - anchor)), rounded as an operand of a
// product.
template <class T>
Tile<T> scaled_rows(const Tile<T>& x, const Tile<T>& gate, const std::vector<T>& anchor, T sign,
                    int64_t begin, int64_t end, Precision precision) {
  Tile<T> result({end - begin, x.columns()});
  for (int64_t i = begin; i < end; ++i)
    for (int64_t d = 0; d < x.columns(); ++d)
      result(i - begin, d) =
          round_to(x(i, d) * std::exp(sign * (gate(i, d) - anchor[d])), precision);
  return result;
}

// Blocks of a decay_dot: rows of one block, and where its exponentials are anchored.
template <class T>
struct Blocks {
  Blocks(const Tile<T>& rows, const Tile<T>& columns, BoundAttr bound)
      : rows(rows), columns(columns) {
    size = bound ? bound.getBlock() : rows.rows();
    anchored = bound && bound.getForm() == chunk::Form::anchored;
    offset = anchored ? static_cast<T>((size - 1) / 2.0 * bound.getLower().getValueAsDouble()) : 0;
  }
  int64_t tokens() const { return rows.rows(); }
  int64_t end(int64_t begin) const { return std::min(begin + size, tokens()); }
  std::vector<T> first_row(int64_t begin) const { return at(rows, begin, 0); }                // E2
  std::vector<T> last_column(int64_t begin) const { return at(columns, end(begin) - 1, 0); }  // E2'
  std::vector<T> diagonal(int64_t begin) const { return at(rows, begin, offset); }            // E4c

  const Tile<T>&rows, &columns;
  int64_t size;
  bool anchored;
  T offset;

 private:
  static std::vector<T> at(const Tile<T>& gate, int64_t row, T add) {
    std::vector<T> anchor(gate.row(row), gate.row(row) + gate.columns());
    for (T& x : anchor) x += add;
    return anchor;
  }
};

template <class T>
Tile<T> part(const Tile<T>& x, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  Tile<T> result({rows, columns});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) result(i, j) = x(row + i, column + j);
  return result;
}

// c[m, n] += a[m, k] b[k, n]; built for several instruction sets, the one of this machine is taken
// when it runs.
#define MULTIPLY_ADD(T)                                                              \
  __attribute__((target_clones("avx512f", "avx2", "default"))) void multiply_add(    \
      int64_t m, int64_t n, int64_t k, const T* __restrict a, const T* __restrict b, \
      T* __restrict c) {                                                             \
    for (int64_t i = 0; i < m; ++i)                                                  \
      for (int64_t p = 0; p < k; ++p)                                                \
        for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + p] * b[p * n + j]; \
  }
MULTIPLY_ADD(float)
MULTIPLY_ADD(double)
#undef MULTIPLY_ADD

// An operand of a product as it is multiplied: not transposed, rounded.
template <class T>
Tile<T> operand(const Tile<T>& x, bool transpose, Precision precision) {
  if (!transpose) return precision == Precision::f32 ? x : rounded(x, precision);
  Tile<T> result({x.columns(), x.rows()});
  for (int64_t i = 0; i < x.rows(); ++i)
    for (int64_t j = 0; j < x.columns(); ++j) result(j, i) = round_to(x(i, j), precision);
  return result;
}

}  // namespace

float round_to(float x, Precision precision) {
  switch (precision) {
    case Precision::f32:
      return x;
    case Precision::tf32:
      return drop_bits(x, 13);
    case Precision::bf16:
      return drop_bits(x, 16);
    case Precision::f16:
      return round_to_f16(x);
  }
  return x;
}

template <class T>
Tile<T> rounded(Tile<T> x, Precision precision) {
  for (T& value : x.data) value = round_to(value, precision);
  return x;
}

template <class T>
Tile<T> matmul(const Tile<T>& a, bool transpose_a, const Tile<T>& b, bool transpose_b,
               Precision precision) {
  Tile<T> left = operand(a, transpose_a, precision), right = operand(b, transpose_b, precision);
  Tile<T> result({left.rows(), right.columns()});
  multiply_add(left.rows(), right.columns(), left.columns(), left.data.data(), right.data.data(),
               result.data.data());
  return result;
}

template <class T>
Tile<T> cumsum(const Tile<T>& x, bool exclusive, bool reverse) {
  Tile<T> result(x.shape);
  int64_t n = x.rows();
  std::vector<T> sum(x.columns(), 0);
  for (int64_t step = 0; step < n; ++step) {
    int64_t i = reverse ? n - 1 - step : step;
    for (int64_t d = 0; d < x.columns(); ++d) {
      T before = sum[d];
      sum[d] += x(i, d);
      result(i, d) = exclusive ? before : sum[d];
    }
  }
  return result;
}

template <class T>
Tile<T> mask(const Tile<T>& x, Triangle triangle) {
  Tile<T> result(x.shape);
  for (int64_t i = 0; i < x.rows(); ++i)
    for (int64_t j = 0; j < x.columns(); ++j)
      if (keeps(triangle, i, j)) result(i, j) = x(i, j);
  return result;
}

template <class T>
Tile<T> decay_mask(const Tile<T>& rows, const Tile<T>& columns, Triangle triangle) {
  int64_t n = rows.rows();
  Tile<T> result({n, n});
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      if (keeps(triangle, i, j)) result(i, j) = std::exp(rows.data[i] - columns.data[j]);
  return result;
}

template <class T>
Tile<T> decay_dot(const Tile<T>& a, const Tile<T>& b, const Tile<T>& rows, const Tile<T>& columns,
                  Triangle triangle, BoundAttr bound, Precision precision) {
  Blocks<T> blocks(rows, columns, bound);
  int64_t n = blocks.tokens();
  Tile<T> result({n, n});
  for (int64_t begin = 0; begin < n; begin += blocks.size) {
    int64_t end = blocks.end(begin);
    // Everything left of the diagonal block, and the block itself if it is anchored.
    auto product = [&](const std::vector<T>& anchor, int64_t first, int64_t last) {
      Tile<T> left = scaled_rows<T>(a, rows, anchor, 1, begin, end, precision);
      Tile<T> right = scaled_rows<T>(b, columns, anchor, -1, first, last, precision);
      Tile<T> scores = matmul(left, false, right, true, Precision::f32);
      for (int64_t i = begin; i < end; ++i)
        for (int64_t j = first; j < last; ++j)
          if (keeps(triangle, i, j)) result(i, j) = scores(i - begin, j - first);
    };
    if (begin > 0) product(blocks.first_row(begin), 0, begin);
    if (blocks.anchored) {
      product(blocks.diagonal(begin), begin, end);
      continue;
    }
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = begin; j < end; ++j) {
        if (!keeps(triangle, i, j)) continue;
        T sum = 0;
        for (int64_t d = 0; d < a.columns(); ++d)
          sum += a(i, d) * b(j, d) * std::exp(rows(i, d) - columns(j, d));
        result(i, j) = sum;
      }
  }
  return result;
}

template <class T>
Tile<T> decay_apply(Side side, const Tile<T>& matrix, const Tile<T>& vectors, const Tile<T>& rows,
                    const Tile<T>& columns, Triangle triangle, BoundAttr bound,
                    Precision precision) {
  Blocks<T> blocks(rows, columns, bound);
  int64_t n = blocks.tokens(), width = vectors.columns();
  Tile<T> result({n, width}), kept = mask(matrix, triangle);
  bool by_rows = side == Side::rows;
  const Tile<T>& own = by_rows ? rows : columns;    // the gate of the result's rows
  const Tile<T>& other = by_rows ? columns : rows;  // the gate of the vectors' rows
  T sign = by_rows ? 1 : -1;
  for (int64_t begin = 0; begin < n; begin += blocks.size) {
    int64_t end = blocks.end(begin);
    // Adds the vectors [first, last) to the result's rows of this block, through an anchor.
    auto product = [&](const std::vector<T>& anchor, int64_t first, int64_t last) {
      Tile<T> scaled = scaled_rows<T>(vectors, other, anchor, -sign, first, last, precision);
      Tile<T> weights = by_rows ? part(kept, begin, end - begin, first, last - first)
                                : part(kept, first, last - first, begin, end - begin);
      Tile<T> sums = matmul(weights, !by_rows, scaled, false, precision);
      for (int64_t i = begin; i < end; ++i)
        for (int64_t d = 0; d < width; ++d)
          result(i, d) += std::exp(sign * (own(i, d) - anchor[d])) * sums(i - begin, d);
    };
    if (by_rows && begin > 0) product(blocks.first_row(begin), 0, begin);
    if (!by_rows && end < n) product(blocks.last_column(begin), end, n);
    if (blocks.anchored) {
      product(blocks.diagonal(begin), begin, end);
      continue;
    }
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = begin; j < end; ++j) {
        if (!keeps(triangle, i, j)) continue;
        for (int64_t d = 0; d < width; ++d) {
          T decay = std::exp(rows(i, d) - columns(j, d));
          if (by_rows)
            result(i, d) += matrix(i, j) * vectors(j, d) * decay;
          else
            result(j, d) += matrix(i, j) * vectors(i, d) * decay;
        }
      }
  }
  return result;
}

// Forward substitution inside 16 x 16 diagonal blocks, then blocks merged by distance from the
// diagonal (MATH.md c).
template <class T>
Tile<T> inverse_unit_lower(const Tile<T>& a, Precision precision) {
  constexpr int64_t kBlock = 16;
  int64_t n = a.rows();
  Tile<T> z({n, n});
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    int64_t end = std::min(begin + kBlock, n);
    for (int64_t i = begin; i < end; ++i) {
      z(i, i) = 1;
      for (int64_t j = begin; j < i; ++j)
        for (int64_t c = begin; c <= j; ++c) z(i, c) -= a(i, j) * z(j, c);
    }
  }
  auto block = [&](const Tile<T>& x, int64_t i, int64_t j) {
    return part(x, i, std::min(kBlock, n - i), j, std::min(kBlock, n - j));
  };
  for (int64_t distance = kBlock; distance < n; distance += kBlock)
    for (int64_t i = distance; i < n; i += kBlock) {
      int64_t j = i - distance;
      Tile<T> sum({std::min(kBlock, n - i), kBlock});
      for (int64_t m = j; m < i; m += kBlock) {
        Tile<T> term = matmul(block(a, i, m), false, block(z, m, j), false, precision);
        for (size_t x = 0; x < sum.data.size(); ++x) sum.data[x] += term.data[x];
      }
      Tile<T> merged = matmul(block(z, i, i), false, sum, false, precision);
      for (int64_t r = 0; r < merged.rows(); ++r)
        for (int64_t c = 0; c < merged.columns(); ++c) z(i + r, j + c) = -merged(r, c);
    }
  return z;
}

namespace {

// Calls f(index in the larger tile, index in the smaller) where the smaller lacks `dims` of the
// larger.
template <class F>
void for_each_pair(llvm::ArrayRef<int64_t> larger, llvm::ArrayRef<int64_t> dims, F f) {
  int64_t rows = larger.size() > 0 ? larger[0] : 1, columns = larger.size() > 1 ? larger[1] : 1;
  bool row = !llvm::is_contained(dims, 0) && !larger.empty(),
       column = !llvm::is_contained(dims, 1) && larger.size() > 1;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      f(i * columns + j, (row ? i * (column ? columns : 1) : 0) + (column ? j : 0));
}

}  // namespace

template <class T>
Tile<T> reduce(const Tile<T>& x, llvm::ArrayRef<int64_t> dims,
               llvm::ArrayRef<int64_t> result_shape) {
  Tile<T> result(result_shape);
  for_each_pair(x.shape, dims, [&](int64_t from, int64_t to) { result.data[to] += x.data[from]; });
  return result;
}

template <class T>
Tile<T> broadcast(const Tile<T>& x, llvm::ArrayRef<int64_t> dims,
                  llvm::ArrayRef<int64_t> result_shape) {
  Tile<T> result(result_shape);
  for_each_pair(result.shape, dims,
                [&](int64_t to, int64_t from) { result.data[to] = x.data[from]; });
  return result;
}

#define INSTANTIATE(T)                                                                       \
  template Tile<T> rounded(Tile<T>, Precision);                                              \
  template Tile<T> matmul(const Tile<T>&, bool, const Tile<T>&, bool, Precision);            \
  template Tile<T> cumsum(const Tile<T>&, bool, bool);                                       \
  template Tile<T> mask(const Tile<T>&, Triangle);                                           \
  template Tile<T> decay_mask(const Tile<T>&, const Tile<T>&, Triangle);                     \
  template Tile<T> decay_dot(const Tile<T>&, const Tile<T>&, const Tile<T>&, const Tile<T>&, \
                             Triangle, BoundAttr, Precision);                                \
  template Tile<T> decay_apply(Side, const Tile<T>&, const Tile<T>&, const Tile<T>&,         \
                               const Tile<T>&, Triangle, BoundAttr, Precision);              \
  template Tile<T> inverse_unit_lower(const Tile<T>&, Precision);                            \
  template Tile<T> reduce(const Tile<T>&, llvm::ArrayRef<int64_t>, llvm::ArrayRef<int64_t>); \
  template Tile<T> broadcast(const Tile<T>&, llvm::ArrayRef<int64_t>, llvm::ArrayRef<int64_t>);
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace linnet::interpreter
