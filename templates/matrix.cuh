// Fragments of two-byte numbers, from shared memory to the registers mma.sync takes them from.
#pragma once
#include "shared.cuh"

namespace linnet {

// The first operand of a block: 16 rows, 16 (two-byte numbers) or 8 (tf32) of the summed index.
struct FragmentA {
  u32 x[4];
};
struct FragmentB {
  u32 x[2];
};

__device__ inline void load_matrices(FragmentA& a, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a.x[0]), "=r"(a.x[1]), "=r"(a.x[2]), "=r"(a.x[3])
               : "r"(shared_address(row)));
}
__device__ inline void load_matrices_transposed(FragmentA& a, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a.x[0]), "=r"(a.x[1]), "=r"(a.x[2]), "=r"(a.x[3])
               : "r"(shared_address(row)));
}
__device__ inline void load_matrices(FragmentB& b, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(b.x[0]), "=r"(b.x[1])
               : "r"(shared_address(row)));
}
__device__ inline void load_matrices_transposed(FragmentB& b, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(b.x[0]), "=r"(b.x[1])
               : "r"(shared_address(row)));
}

// Two-byte operands. The tile's index (i, k), or (k, i) if it is read transposed.
template <class E, int R, int N>
__device__ inline void load_a(FragmentA& a, SharedTile<E, R, N> s, int i, int k) {
  load_matrices(a, s.at(i + lane() % 16, k + lane() / 16 * 8));
}
template <class E, int R, int N>
__device__ inline void load_a(FragmentA& a, Transposed<SharedTile<E, R, N>> s, int i, int k) {
  int block = lane() / 8;
  load_matrices_transposed(a, s.tile.at(k + lane() % 8 + block / 2 * 8, i + block % 2 * 8));
}
template <class E, int R, int N>
__device__ inline void load_b(FragmentB& b, SharedTile<E, R, N> s, int k, int j) {
  load_matrices_transposed(b, s.at(k + lane() % 16, j));
}
template <class E, int R, int N>
__device__ inline void load_b(FragmentB& b, Transposed<SharedTile<E, R, N>> s, int k, int j) {
  load_matrices(b, s.tile.at(j + lane() % 8, k + lane() / 8 % 2 * 8));
}

}  // namespace linnet
