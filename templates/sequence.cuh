// Which sequence, chunk and head a block works on, and where they lie in memory. Found from the
// offsets of the sequences inside the kernel: nothing is read back to the host.
#pragma once
#include "base.cuh"

namespace linnet {

// A tensor of the caller's, and the numbers between two sequences of a batch, two heads, and two
// tokens of it.
template <class T>
struct Tensor {
  T* data;
  i64 batch_step, head_step, row_step;

  __device__ T* of_head(int head) const { return data + head * head_step; }
};

// Integers of the caller's, of 32 or 64 bits.
struct Integers {
  const void* data;
  int wide;

  __device__ i64 operator[](int i) const {
    return wide ? static_cast<const i64*>(data)[i] : static_cast<const int*>(data)[i];
  }
};

// What a launch is about. Without offsets every sequence has `tokens` tokens; without slots it has
// the state of its own number.
struct Batch {
  Integers cu_seqlens, slots;
  i64 tokens;
  int sequences, heads, value_heads;

  // Whether value heads have q and k in common: what they make of their gradients is then added up.
  __device__ bool shares_heads() const { return heads != value_heads; }
  __device__ i64 start(int sequence) const {
    return cu_seqlens.data ? cu_seqlens[sequence] : sequence * tokens;
  }
};

// A chunk of one head of one sequence.
struct Chunk {
  int element;   // of the batch; packed sequences are one
  i64 first;     // its first token there
  int rows;      // its tokens, at most the chunk size
  int head;      // value head
  int key_head;  // the head of q and k that it shares
  i64 slot;      // its place in the workspace

  // The first row of a head's part of the chunk.
  template <class T>
  __device__ T* at(const Tensor<T>& tensor, int own_head) const {
    return tensor.data + element * tensor.batch_step + first * tensor.row_step +
           own_head * tensor.head_step;
  }
};

// A tile of a chunk's record in the workspace.
template <class T>
__device__ inline T* in_record(unsigned char* record, int offset) {
  return reinterpret_cast<T*>(record + offset);
}

// Sequence s owns the workspace slots from start(s) / size + s on: enough for its chunks (or
// segments) of so many tokens, and known without counting those of the sequences before it.
__device__ inline i64 first_slot(const Batch& batch, int sequence, i64 size) {
  return batch.start(sequence) / size + sequence;
}
// The last sequence whose slots begin at or before this one.
__device__ inline int owner_of(const Batch& batch, i64 slot, i64 size) {
  int low = 0, high = batch.sequences;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    (first_slot(batch, middle, size) <= slot ? low : high) = middle;
  }
  return low;
}

// The chunk a block of a map works on. No rows: the slot is not used.
template <int C>
__device__ inline Chunk find_chunk(const Batch& batch, i64 block) {
  i64 slot = block / batch.value_heads;
  int sequence = owner_of(batch, slot, C);
  Chunk chunk;
  i64 offset = (slot - first_slot(batch, sequence, C)) * C;
  i64 left = batch.start(sequence + 1) - batch.start(sequence) - offset;
  chunk.element = batch.cu_seqlens.data ? 0 : sequence;
  chunk.first = batch.cu_seqlens.data ? batch.start(sequence) + offset : offset;
  chunk.rows = static_cast<int>(left < 0 ? 0 : left < C ? left : C);
  chunk.head = static_cast<int>(block % batch.value_heads);
  chunk.key_head = chunk.head / (batch.value_heads / batch.heads);
  chunk.slot = block;
  return chunk;
}

// Where states between chunks go: one every `every` tokens of a sequence, `count` of all of them,
// those of a sequence behind those of the one before it.
struct States {
  Tensor<float> tensor;
  i64 count, every;

  __device__ i64 of_length(i64 length) const { return (length + every - 1) / every; }
};
// Those of one sequence and head.
template <int C>
struct OwnStates {
  float* first;  // null: none are wanted
  i64 step, count;
  int chunks;  // between two

  // Where the state before a chunk goes; null: nowhere.
  __device__ float* at(i64 chunk) const {
    if (!first || static_cast<int>(chunk) % chunks != 0) return nullptr;
    int index = static_cast<int>(chunk) / chunks;
    return index < count ? first + index * step : nullptr;
  }
};

// What a block of a scan works on: a sequence, a head, and some value channels.
template <int C>
struct Sequence {
  Batch batch;
  int sequence, head, first_value;
  i64 slot;  // its state's place; negative: the sequence is left out
  i64 first, length;

  template <int Values>
  __device__ static Sequence find(const Batch& batch, i64 block, int value_blocks) {
    Sequence s;
    s.batch = batch;
    s.first_value = static_cast<int>(block % value_blocks) * Values;
    s.head = static_cast<int>(block / value_blocks % batch.value_heads);
    s.take(static_cast<int>(block / value_blocks / batch.value_heads));
    return s;
  }
  __device__ void take(int own_sequence) {
    sequence = own_sequence;
    slot = batch.slots.data ? batch.slots[sequence] : sequence;
    first = batch.start(sequence);
    length = batch.start(sequence + 1) - first;
  }
  __device__ i64 chunks() const { return (length + C - 1) / C; }
  __device__ Chunk chunk(i64 i) const {
    Chunk chunk;
    i64 left = length - i * C;
    chunk.element = batch.cu_seqlens.data ? 0 : sequence;
    chunk.first = (batch.cu_seqlens.data ? first : 0) + i * C;
    chunk.rows = static_cast<int>(left < C ? left : C);
    chunk.head = head;
    chunk.key_head = head / (batch.value_heads / batch.heads);
    chunk.slot = (first_slot(batch, sequence, C) + i) * batch.value_heads + head;
    return chunk;
  }
  // Of a tensor with one state for each slot and value head; none if there is no tensor.
  template <class T>
  __device__ T* state(const Tensor<T>& tensor) const {
    return tensor.data ? tensor.data + slot * tensor.batch_step + head * tensor.head_step : nullptr;
  }
  // Which of the states between chunks are its own: it counts those of the sequences before it.
  __device__ OwnStates<C> own(const States& states) const {
    OwnStates<C> own{nullptr, states.tensor.batch_step, 0, 1};
    if (!states.tensor.data) return own;
    i64 before = 0;
    if (batch.cu_seqlens.data) {
      for (int s = lane(); s < sequence; s += 32)
        before += states.of_length(batch.start(s + 1) - batch.start(s));
#pragma unroll
      for (int far = 16; far > 0; far /= 2) before += __shfl_xor_sync(0xffffffffu, before, far);
    } else {
      before = sequence * states.of_length(batch.tokens);
    }
    own.first = states.tensor.data + before * own.step + head * states.tensor.head_step;
    own.count = states.count - before;
    own.chunks = static_cast<int>(states.every / C);
    return own;
  }
};

}  // namespace linnet
