// Tiles in shared memory, and their way from and to global memory.
#pragma once
#include "base.cuh"

namespace linnet {

// R x N numbers, padded by zeros to multiples of 16. Rows are skewed by 16 bytes (32 for f32) so
// that eight rows, or a quarter of the columns, lie in different banks: ldmatrix, 128-bit copies
// and fragments of f32 pairs meet no conflict.
template <class T, int R, int N>
struct SharedTile {
  using Element = T;
  static constexpr int kRows = R, kColumns = N;
  static constexpr int kPaddedRows = round_up(R, 16), kPaddedColumns = round_up(N, 16);
  static constexpr int kStride = kPaddedColumns + 8;
  static constexpr int kBytes = kPaddedRows * kStride * static_cast<int>(sizeof(T));
  T* data;

  __device__ explicit SharedTile(unsigned char* at) : data(reinterpret_cast<T*>(at)) {}
  __device__ T* at(int i, int j) const { return data + i * kStride + j; }
  __device__ T& operator()(int i, int j) const { return data[i * kStride + j]; }
};

// The same tile read with rows and columns exchanged.
template <class S>
struct Transposed {
  S tile;
};
template <class T, int R, int N>
__device__ inline Transposed<SharedTile<T, R, N>> transposed(SharedTile<T, R, N> tile) {
  return {tile};
}

__device__ inline u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// An asynchronous copy of 4, 8 or 16 bytes; zeros if `take` is false.
template <int Bytes>
__device__ inline void copy_async(void* to, const void* from, bool take) {
  u32 address = shared_address(to);
  int size = take ? Bytes : 0;
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(size)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from),
                 "n"(Bytes), "r"(size)
                 : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `Pending` groups of copies of this thread are on their way.
template <int Pending = 0>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Calls f(x) for every x below `Count`, spread over the threads of a block.
template <class Cta, int Count, class F>
__device__ inline void share_out(F f) {
  constexpr int kWhole = Count / Cta::kThreads;
  int thread = threadIdx.x;
#pragma unroll(kWhole <= 4 ? 4 : 1)
  for (int turn = 0; turn < kWhole; ++turn) f(turn * Cta::kThreads + thread);
  if constexpr (Count % Cta::kThreads != 0) {
    int last = kWhole * Cta::kThreads + thread;
    if (last < Count) f(last);
  }
}

// The first number of the x-th piece of a tile, as threads take them in turn. Eight neighbours lie
// in different banks: where a row is shorter than eight pieces they are of different rows.
template <class S, int Wide>
struct Piece {
  static constexpr int kAcross = S::kPaddedColumns / Wide;
  static constexpr int kBytes = Wide * static_cast<int>(sizeof(typename S::Element));
  static constexpr bool kShort = kBytes == 16 && kAcross < 8;
  static constexpr int kTogether = sizeof(typename S::Element) == 2 ? 1 : 2;
  int i, j;

  __device__ explicit Piece(int x) {
    if constexpr (kShort) {
      int y = x % (16 * kAcross);
      i = x / (16 * kAcross) * 16 + y / kTogether % 16;
      j = (y / (16 * kTogether) * kTogether + y % kTogether) * Wide;
    } else {
      i = x / kAcross, j = x % kAcross * Wide;
    }
  }
};

// Rows of a tensor, `step` numbers apart, into a tile: `rows` x `columns` of them, zeros beyond.
// Every row is aligned to `Bytes`.
template <class Cta, int Bytes, class T, int R, int N>
__device__ inline void load_rows(SharedTile<T, R, N> to, const T* from, i64 step, int rows,
                                 int columns) {
  using S = SharedTile<T, R, N>;
  constexpr int kWide = Bytes >= 4 ? Bytes / static_cast<int>(sizeof(T)) : 1;
  share_out<Cta, S::kPaddedRows * Piece<S, kWide>::kAcross>([&](int x) {
    auto [i, j] = Piece<S, kWide>(x);
    bool take = i < rows && j < columns;
    const T* source = take ? from + i * step + j : from;
    if constexpr (Bytes >= 4)
      copy_async<Bytes>(to.at(i, j), source, take);
    else
      to(i, j) = take ? *source : from_f32<T>(0.f);
  });
}

template <class Cta, int Bytes, class T, int R, int N>
__device__ inline void store_rows(T* to, i64 step, SharedTile<T, R, N> from, int rows,
                                  int columns) {
  using S = SharedTile<T, R, N>;
  constexpr int kWide = Bytes >= 4 ? Bytes / static_cast<int>(sizeof(T)) : 1;
  share_out<Cta, S::kPaddedRows * Piece<S, kWide>::kAcross>([&](int x) {
    auto [i, j] = Piece<S, kWide>(x);
    if (i >= rows || j >= columns) return;
    if constexpr (Bytes == 16)
      *reinterpret_cast<uint4*>(to + i * step + j) = *reinterpret_cast<const uint4*>(from.at(i, j));
    else if constexpr (Bytes == 8)
      *reinterpret_cast<uint2*>(to + i * step + j) = *reinterpret_cast<const uint2*>(from.at(i, j));
    else if constexpr (Bytes == 4)
      *reinterpret_cast<u32*>(to + i * step + j) = *reinterpret_cast<const u32*>(from.at(i, j));
    else
      to[i * step + j] = from(i, j);
  });
}

// A tile's image in a workspace, padding included: its rows one after another, `Stride` numbers
// apart.
template <class Cta, int Stride, class T, int R, int N>
__device__ inline void load_block(SharedTile<T, R, N> to, const T* from, int rows = R) {
  load_rows<Cta, 16>(to, from, Stride, rows, SharedTile<T, R, N>::kPaddedColumns);
}
template <class Cta, int Stride, class T, int R, int N>
__device__ inline void store_block(T* to, SharedTile<T, R, N> from) {
  using S = SharedTile<T, R, N>;
  store_rows<Cta, 16>(to, Stride, from, S::kPaddedRows, S::kPaddedColumns);
}

// A row of a tensor, aligned to `Bytes`, as a vector of `Size`: zeros from `count` on.
template <class Cta, int Bytes, int Size, class T>
__device__ inline void load_row(T* to, const T* from, int count) {
  constexpr int kWide = Bytes >= 4 ? Bytes / static_cast<int>(sizeof(T)) : 1;
  share_out<Cta, Size / kWide>([&](int x) {
    int i = x * kWide;
    if constexpr (Bytes >= 4)
      copy_async<Bytes>(to + i, i < count ? from + i : from, i < count);
    else
      to[i] = i < count ? from[i] : from_f32<T>(0.f);
  });
}

// One number a token, `step` numbers apart, zeros from `count` on.
template <class Cta, int Size, class T>
__device__ inline void load_vector(float* to, const T* from, i64 step, int count) {
  share_out<Cta, round_up(Size, 16)>(
      [&](int i) { to[i] = i < count ? to_f32(from[i * step]) : 0.f; });
}
template <class Cta, int Size>
__device__ inline void load_vector(float* to, const float* from, i64 step, int count) {
  share_out<Cta, round_up(Size, 16)>(
      [&](int i) { copy_async<4>(to + i, i < count ? from + i * step : from, i < count); });
}
template <class Cta, class T>
__device__ inline void store_vector(T* to, i64 step, const float* from, int count) {
#pragma unroll 1
  for (int i = threadIdx.x; i < count; i += Cta::kThreads) to[i * step] = from_f32<T>(from[i]);
}
// to[i] = f(i), zeros in the padding.
template <class Cta, int Size, class F>
__device__ inline void fill_vector(float* to, F f) {
  share_out<Cta, round_up(Size, 16)>([&](int i) { to[i] = i < Size ? f(i) : 0.f; });
}

}  // namespace linnet
