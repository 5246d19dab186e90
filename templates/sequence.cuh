// Which sequence, chunk and head a block works on, and where they lie in memory. Found from the
// offsets of the sequences inside the kernel: nothing is read back to the host.
#pragma once
#include "base.cuh"

namespace linnet {

// What a launch is about. Without offsets every sequence has `tokens` tokens.
struct Batch {
  const i64* cu_seqlens;
  i64 tokens;
  int sequences, heads, value_heads;

  __device__ i64 start(int sequence) const {
    return cu_seqlens ? cu_seqlens[sequence] : sequence * tokens;
  }
};

// A chunk of one head of one sequence.
struct Chunk {
  i64 first;     // its first token
  int rows;      // its tokens, at most the chunk size
  int head;      // value head
  int key_head;  // the head of q and k that it shares
  i64 slot;      // its place in the workspace

  // The first number of the chunk in a tensor of [tokens, heads, width].
  template <class T>
  __device__ T* at(T* tensor, int heads, int own_head, int width) const {
    return tensor + (first * heads + own_head) * width;
  }
};

// A tile of a chunk's record in the workspace.
template <class T>
__device__ inline T* in_record(unsigned char* record, int offset) {
  return reinterpret_cast<T*>(record + offset);
}

// Sequence s owns the workspace slots from start(s) / C + s on: enough for its chunks, and known
// without counting the chunks of the sequences before it.
template <int C>
__device__ inline i64 first_slot(const Batch& batch, int sequence) {
  return batch.start(sequence) / C + sequence;
}

// The chunk a block of a map works on. No rows: the slot is not used.
template <int C>
__device__ inline Chunk find_chunk(const Batch& batch, i64 block) {
  i64 slot = block / batch.value_heads;
  int low = 0, high = batch.sequences;  // the last sequence whose slots begin at or before this one
  while (high - low > 1) {
    int middle = (low + high) / 2;
    (first_slot<C>(batch, middle) <= slot ? low : high) = middle;
  }
  Chunk chunk;
  i64 offset = (slot - first_slot<C>(batch, low)) * C;
  i64 left = batch.start(low + 1) - batch.start(low) - offset;
  chunk.first = batch.start(low) + offset;
  chunk.rows = static_cast<int>(left < 0 ? 0 : left < C ? left : C);
  chunk.head = static_cast<int>(block % batch.value_heads);
  chunk.key_head = chunk.head / (batch.value_heads / batch.heads);
  chunk.slot = block;
  return chunk;
}

// What a block of a scan works on: a sequence, a head, and some value channels.
template <int C>
struct Sequence {
  Batch batch;
  int sequence, head, first_value;
  i64 first, length;

  template <int Values>
  __device__ static Sequence find(const Batch& batch, i64 block, int value_blocks) {
    Sequence s;
    s.batch = batch;
    s.first_value = static_cast<int>(block % value_blocks) * Values;
    s.head = static_cast<int>(block / value_blocks % batch.value_heads);
    s.sequence = static_cast<int>(block / value_blocks / batch.value_heads);
    s.first = batch.start(s.sequence);
    s.length = batch.start(s.sequence + 1) - s.first;
    return s;
  }
  __device__ i64 chunks() const { return (length + C - 1) / C; }
  __device__ Chunk chunk(i64 i) const {
    Chunk chunk;
    i64 left = length - i * C;
    chunk.first = first + i * C;
    chunk.rows = static_cast<int>(left < C ? left : C);
    chunk.head = head;
    chunk.key_head = head / (batch.value_heads / batch.heads);
    chunk.slot = (first_slot<C>(batch, sequence) + i) * batch.value_heads + head;
    return chunk;
  }
  // Of a tensor with one K x V state for each sequence and value head; none if there is no tensor.
  template <class T>
  __device__ T* state(T* tensor, int size) const {
    return tensor ? tensor + (static_cast<i64>(sequence) * batch.value_heads + head) * size
                  : nullptr;
  }
};

}  // namespace linnet
