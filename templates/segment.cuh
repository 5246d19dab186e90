// Segments of a long sequence (MATH.md e): a scan over every segment by itself finds what the segment
// makes of any state, S -> A S + B; these maps are applied one after another, which gives the state
// that enters every segment; then all segments are scanned at once.
//
// A segment's record is a matrix in the workspace, rows of K numbers, states on their side: B^T, a
// row for every value channel, in whose place the state that enters comes; then A^T.
#pragma once
#include "mma.cuh"
#include "sequence.cuh"

namespace linnet {

// What a block of a scan over segments works on. Sequences are cut at multiples of some tokens from
// their own start, so that none is summed in another order for its neighbours' sake. Segments are
// counted in the order of the scan.
template <int C, bool Reverse = false>
struct Segment : Sequence<C> {
  i64 index, count;  // which of the sequence's it is, and how many there are: an empty one has one
  int begin, end;    // its turns of the scan
  i64 first_record;  // of the sequence and head, in records

  // A block for every slot of a segment, value head and `Values` value channels.
  template <int Values>
  __device__ static Segment find(const Batch& batch, i64 tokens, i64 block, int value_blocks) {
    Segment s;
    i64 slot = block / value_blocks / batch.value_heads;
    s.begin_with<Values>(batch, tokens, block, value_blocks, owner_of(batch, slot, tokens));
    s.index = slot - first_slot(batch, s.sequence, tokens);
    i64 of_segment = tokens / C, place = s.place_of(s.index), chunks = s.chunks();
    i64 from = place * of_segment, until = from + of_segment < chunks ? from + of_segment : chunks;
    s.begin = static_cast<int>(Reverse ? chunks - until : from);
    s.end = static_cast<int>(Reverse ? chunks - from : until);
    return s;
  }
  // A block for every sequence, value head and `Values` value channels; of its segments the first.
  template <int Values>
  __device__ static Segment find_first(const Batch& batch, i64 tokens, i64 block,
                                       int value_blocks) {
    Segment s;
    s.begin_with<Values>(batch, tokens, block, value_blocks,
                         static_cast<int>(block / value_blocks / batch.value_heads));
    s.index = 0;
    s.begin = s.end = 0;
    return s;
  }

  // Slots are more than there are segments.
  __device__ bool is_there() const { return index < count; }
  // By what a scan knows anyway: registers are few.
  __device__ bool is_first() const { return begin == 0; }
  __device__ bool is_last() const { return end >= static_cast<int>(this->chunks()); }
  // Where the record of one of the sequence's segments is, each of `size` numbers.
  __device__ float* record(float* records, i64 of, i64 size) const {
    return records + (first_record + place_of(of) * this->batch.value_heads) * size;
  }
  __device__ float* record(float* records, i64 size) const { return record(records, index, size); }

 private:
  __device__ i64 place_of(i64 of) const { return Reverse ? count - 1 - of : of; }
  template <int Values>
  __device__ void begin_with(const Batch& batch, i64 tokens, i64 block, int value_blocks,
                             int sequence) {
    this->batch = batch;
    this->first_value = static_cast<int>(block % value_blocks) * Values;
    this->head = static_cast<int>(block / value_blocks % batch.value_heads);
    this->take(sequence);
    count = this->length > tokens ? (this->length + tokens - 1) / tokens : 1;
    first_record = first_slot(batch, sequence, tokens) * batch.value_heads + this->head;
  }
};

// Channels beside the value channels, nothing of which comes from inputs: row i of a tile is number
// first + i of them, negative ones are value channels. A scan that starts from one unit vector for
// every key channel ends with the columns of A; where A is diagonal one channel of ones is enough.
template <class T>
__device__ inline T unit_vectors(int first) {
  return generate<T>(
      [=](int i, int j) { return j < T::kColumns && first + i == j ? 1.f : 0.f; });
}
template <class T>
__device__ inline T ones_in_first(int first) {
  return generate<T>([=](int i, int j) { return j < T::kColumns && first + i == 0 ? 1.f : 0.f; });
}

// The state that enters a segment: the sequence's own where that is its only one, else what
// `merge_segments` left in the record. Beyond `rows` lies padding.
template <class T, StateOrder Order, int V, int Stride, int C, bool Reverse, class E>
__device__ inline T load_entering(const Segment<C, Reverse>& segment, const Tensor<E>& initial,
                                  float* record, int rows) {
  if (segment.count == 1) return load_state<T, Order, V>(segment.state(initial), segment.first_value);
  T y = constant<T>(0.f);
  const float* from = record + segment.first_value * Stride;
#pragma unroll
  for (int m = 0; m < T::kM; ++m)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      int i = T::row(m, e);
      if (segment.first_value + i >= rows) continue;
#pragma unroll
      for (int n = 0; n < T::kN; ++n) {
        if (!T::owns(m, n)) continue;
        float2 pair = load_pair(from + i * Stride + T::column(n, e));
        y.x[m][n][e] = pair.x;
        y.x[m][n][e + 1] = pair.y;
      }
    }
  return y;
}

// y += a b for 8 numbers of the summed index, to f32's bits. Rows of a lie four banks apart, rows of
// b eight: no conflict if both take the index in its own order.
template <class T, int Stride, class B>
__device__ inline void add_by_eight(T& y, const float* a, B b, int k, int at) {
  PartsA<Precision::f32> pa;
#pragma unroll
  for (int x = 0; x < 4; ++x)
    pa.set(x, a[(group() + x % 2 * 8) * Stride + k + quad() + x / 2 * 4]);
#pragma unroll
  for (int n = 0; n < T::kN; ++n) {
    if (!T::owns(0, n)) continue;
    int j = T::first_column() + n * 8 + group();
    PartsB<Precision::f32> pb;
    pb.set(0, b(at + quad(), j));
    pb.set(1, b(at + quad() + 4, j));
    Sums<Precision::f32> sums;
    float step[4];
    sums.add(pa, pb);
    sums.finish(step);
#pragma unroll
    for (int e = 0; e < 4; ++e) y.x[0][n][e] += step[e];
  }
}

// Shared memory of `merge_segments`: the state, and two bands of A^T.
template <class T, int Band>
struct MergeMemory {
  static constexpr int kKeys = round_up(T::kColumns, 16), kStride = kKeys + 4;
  static constexpr int kStateBytes = 16 * kStride * 4;
  using BandTile = SharedTile<float, Band, kKeys>;
};

// Of 16 value channels: applies the maps of a sequence's segments one after another to the state
// that enters the first, and leaves in each record, in place of B, the state that enters. A^T comes
// in bands of rows, the next while one is multiplied. Row `First` of a record is A's first.
template <class Cta, int Size, int First, int Band, class T, class G>
__device__ inline void merge_segments(T S, const G& segment, float* records, unsigned char* shared) {
  static_assert(T::kM == 1 && T::kRows == 16, "a warp has all of 16 rows");
  using M = MergeMemory<T, Band>;
  constexpr int K = M::kKeys, kBands = (K + Band - 1) / Band;
  float* const state = reinterpret_cast<float*>(shared);
  auto band = [&](i64 turn) {
    return typename M::BandTile(shared + M::kStateBytes + turn % 2 * M::BandTile::kBytes);
  };
  auto fetch = [&](i64 turn) {
    int row = static_cast<int>(turn % kBands) * Band;
    const float* from = segment.record(records, turn / kBands, Size);
    load_block<Cta, K>(band(turn), from + (First + row) * K, K - row);
    commit_copies();
  };
  const i64 turns = (segment.count - 1) * kBands;
  fetch(0);
  for (i64 i = 0; i + 1 < segment.count; ++i) {
    float* const own = segment.record(records, i, Size) + segment.first_value * K;
    T next = read_block<T, K>(own);
    write_block<K>(own, S);
    __syncthreads();
    for_each<T>([&](int m, int n, int e) {
      int j = T::column(n, e);
      if (T::owns(m, n)) state[T::row(m, e) * M::kStride + j] = j < T::kColumns ? S.x[m][n][e] : 0.f;
    });
#pragma unroll 1
    for (int b = 0; b < kBands; ++b) {
      i64 turn = i * kBands + b;
      __syncthreads();
      if (turn + 1 < turns) fetch(turn + 1);
      else commit_copies();
      wait_for_copies<1>();
      __syncthreads();
#pragma unroll
      for (int k = 0; k < Band; k += 8)
        if (K % Band == 0 || b * Band + k < K)
          add_by_eight<T, M::kStride>(next, state, band(turn), b * Band + k, k);
    }
    S = next;
  }
  write_block<K>(segment.record(records, segment.count - 1, Size) + segment.first_value * K, S);
}
// The same where A is diagonal: one row of its record.
template <class Cta, int Size, int First, class T, class G>
__device__ inline void merge_decayed(T S, const G& segment, float* records) {
  constexpr int K = round_up(T::kColumns, 16);
  for (i64 i = 0; i + 1 < segment.count; ++i) {
    float* const record = segment.record(records, i, Size);
    float* const own = record + segment.first_value * K;
    T next = read_block<T, K>(own);
    write_block<K>(own, S);
    S = next + over_columns<T>(record + First * K) * S;
  }
  write_block<K>(segment.record(records, segment.count - 1, Size) + segment.first_value * K, S);
}

}  // namespace linnet
