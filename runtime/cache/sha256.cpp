#include "runtime/cache/sha256.h"

#include <array>
#include <bit>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace linnet {

namespace {

using State = std::array<uint32_t, 8>;

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes (4.2.2).
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const unsigned char* bytes) {
  return uint32_t(bytes[0]) << 24 | uint32_t(bytes[1]) << 16 | uint32_t(bytes[2]) << 8 | bytes[3];
}

// The hash computation of one block of 64 bytes (6.2.2).
void add_block(State& state, const unsigned char* block) {
  uint32_t w[64];
  for (int t = 0; t < 16; ++t) w[t] = big_endian(block + 4 * t);
  for (int t = 16; t < 64; ++t) {
    uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = s1 + w[t - 7] + s0 + w[t - 16];
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int t = 0; t < 64; ++t) {
    uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    uint32_t choice = (e & f) ^ (~e & g);
    uint32_t t1 = h + sum1 + choice + kRound[t] + w[t];
    uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + sum0 + majority;
  }
  const uint32_t out[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state[i] += out[i];
}

// What is left after the whole blocks, a one bit, zeros, and the length in bits (5.1.1).
std::string padded_tail(std::string_view tail, uint64_t total_bytes) {
  std::string text(tail);
  text += '\x80';
  while (text.size() % 64 != 56) text += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(total_bytes * 8 >> shift);
  return text;
}

#if defined(__x86_64__)
// The same by the processor's SHA instructions, some six times as fast: hashing is most of a warm
// find. They keep the state as (a, b, e, f) and (c, d, g, h), a and c in the highest lane.
__attribute__((target("sha,sse4.1"))) void add_block_x86(State& state, const unsigned char* block) {
  const auto [a, b, c, d, e, f, g, h] = state;
  __m128i abef = _mm_set_epi32(a, b, e, f), cdgh = _mm_set_epi32(c, d, g, h);
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i w[4];  // the last sixteen words of the schedule
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if (i < 4) {
      w[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block) + i);
      w[i] = _mm_shuffle_epi8(w[i], swap);
    } else {
      __m128i last = w[(i + 3) % 4], before = w[(i + 2) % 4];
      __m128i sum = _mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]);
      w[i % 4] = _mm_sha256msg2_epu32(_mm_add_epi32(sum, _mm_alignr_epi8(last, before, 4)), last);
    }
    __m128i round = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRound) + i);
    __m128i wk = _mm_add_epi32(w[i % 4], round);
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
  }
  alignas(16) uint32_t feba[4], hgdc[4];
  _mm_store_si128(reinterpret_cast<__m128i*>(feba), abef);
  _mm_store_si128(reinterpret_cast<__m128i*>(hgdc), cdgh);
  const uint32_t out[8] = {feba[3], feba[2], hgdc[3], hgdc[2], feba[1], feba[0], hgdc[1], hgdc[0]};
  for (int i = 0; i < 8; ++i) state[i] += out[i];
}

bool has_sha_instructions() {
  unsigned a, b, c, d;
  bool sse41 = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1);
  return sse41 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}
#endif

using AddBlock = void (*)(State&, const unsigned char*);

AddBlock fastest() {
#if defined(__x86_64__)
  if (has_sha_instructions()) return add_block_x86;
#endif
  return add_block;
}

std::string digest(std::string_view bytes, AddBlock add) {
  // The fractional parts of the square roots of the first eight primes (5.3.3).
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  size_t whole = bytes.size() / 64 * 64;
  const std::string tail = padded_tail(bytes.substr(whole), bytes.size());
  for (std::string_view blocks : {bytes.substr(0, whole), std::string_view(tail)})
    for (size_t i = 0; i < blocks.size(); i += 64)
      add(state, reinterpret_cast<const unsigned char*>(blocks.data() + i));
  std::string hex;
  for (uint32_t word : state)
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  return hex;
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  static const AddBlock add = fastest();
  return digest(bytes, add);
}

std::string sha256_hex_portable(std::string_view bytes) { return digest(bytes, add_block); }

}  // namespace linnet
