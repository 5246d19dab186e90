// Tiles of numbers and what chunk ops do to them, written to be read, not to be fast.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "compiler/dialect/chunk.h"

namespace linnet::interpreter {

using chunk::BoundAttr;
using chunk::Precision;
using chunk::Side;
using chunk::Triangle;

template <class T>
struct Tile {
  std::vector<int64_t> shape;
  std::vector<T> data;

  Tile() = default;
  explicit Tile(std::initializer_list<int64_t> sizes) : Tile(llvm::ArrayRef<int64_t>(sizes)) {}
  explicit Tile(llvm::ArrayRef<int64_t> sizes, T value = 0) : shape(sizes.begin(), sizes.end()) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    data.assign(count, value);
  }
  int64_t rows() const { return shape[0]; }
  int64_t columns() const { return shape.size() > 1 ? shape[1] : 1; }
  T& operator()(int64_t i, int64_t j) { return data[i * columns() + j]; }
  T operator()(int64_t i, int64_t j) const { return data[i * columns() + j]; }
  T* row(int64_t i) { return data.data() + i * columns(); }
  const T* row(int64_t i) const { return data.data() + i * columns(); }
};

// Round to nearest even in a narrower format; double is left alone.
float round_to(float x, Precision precision);
inline double round_to(double x, Precision) { return x; }

template <class T>
Tile<T> rounded(Tile<T> x, Precision precision);

template <class T>
Tile<T> matmul(const Tile<T>& a, bool transpose_a, const Tile<T>& b, bool transpose_b,
               Precision precision);
template <class T>
Tile<T> cumsum(const Tile<T>& x, bool exclusive, bool reverse);
template <class T>
Tile<T> mask(const Tile<T>& x, Triangle triangle);
template <class T>
Tile<T> decay_mask(const Tile<T>& rows, const Tile<T>& columns, Triangle triangle);
template <class T>
Tile<T> decay_dot(const Tile<T>& a, const Tile<T>& b, const Tile<T>& rows, const Tile<T>& columns,
                  Triangle triangle, BoundAttr bound, Precision precision);
template <class T>
Tile<T> decay_apply(Side side, const Tile<T>& matrix, const Tile<T>& vectors, const Tile<T>& rows,
                    const Tile<T>& columns, Triangle triangle, BoundAttr bound,
                    Precision precision);
template <class T>
Tile<T> inverse_unit_lower(const Tile<T>& a, Precision precision);
template <class T>
Tile<T> reduce(const Tile<T>& x, llvm::ArrayRef<int64_t> dims,
               llvm::ArrayRef<int64_t> result_shape);
template <class T>
Tile<T> broadcast(const Tile<T>& x, llvm::ArrayRef<int64_t> dims,
                  llvm::ArrayRef<int64_t> result_shape);

}  // namespace linnet::interpreter
