// The arguments of a call, checked: where every tensor lies, and how long the sequences are.
#pragma once

#include <span>
#include <vector>

#include "linnet/compiler.h"
#include "linnet/device.h"
#include "linnet/tensor.h"

namespace linnet {

// What a call means for one argument of a kernel.
struct BoundTensor {
  char* data = nullptr;  // null: not given
  // Numbers between two sequences of a batch, two heads, and two rows (tokens, or rows of a state).
  int64_t batch_step = 0, head_step = 0, row_step = 0;
  float number = 0;  // of a constant
};

class Binding {
 public:
  // What an op takes, and what of memory its device can deal with.
  struct Rules {
    const std::vector<KernelArgument>& arguments;
    int64_t chunk;
    const Problem& problem;
    Direction direction;
    // A GPU: memory is not looked at, rows are aligned for wide copies, and offsets, slots and the
    // matrix of a state have no gaps.
    bool on_gpu = false;
  };
  // Checks `given` against the rules. Throws UserError that names the argument, what was expected
  // and what came.
  Binding(const Rules& rules, std::span<const Argument> given);

  int64_t tokens = 0;  // of all sequences
  int64_t heads = 1, value_heads = 1;
  int64_t sequences = 0, longest = 0;
  int64_t first_token(int64_t sequence) const { return offset(sequence); }
  int64_t length(int64_t sequence) const { return offset(sequence + 1) - offset(sequence); }
  // Which state belongs to a sequence; negative: none, the sequence is left out.
  int64_t slot(int64_t sequence) const;
  // Where a token argument's first row of a sequence is.
  const BoundTensor& operator[](size_t argument) const { return tensors_[argument]; }
  bool is_batch() const { return !cu_seqlens_.data; }
  const Tensor& cu_seqlens() const { return cu_seqlens_; }
  const Tensor& slots() const { return slots_; }
  int64_t batch_tokens() const { return batch_tokens_; }

  BoundTensor states;  // where the states between chunks go; head_step and batch_step as for others
  int64_t states_every = 0;                     // tokens between two of them
  int64_t states_count = 0;                     // of all sequences
  int64_t first_state(int64_t sequence) const;  // among all states

 private:
  friend class Binder;
  int64_t offset(int64_t sequence) const {
    return cu_seqlens_.data ? integer(cu_seqlens_, sequence) : sequence * batch_tokens_;
  }
  static int64_t integer(const Tensor& tensor, int64_t index);
  static constexpr size_t kMaxArguments = 64;
  std::array<BoundTensor, kMaxArguments> tensors_;
  Tensor cu_seqlens_, slots_;
  int64_t batch_tokens_ = 0;
};

// "[B, T, H, K]": how an argument is expected to be shaped.
std::string shape_text(const KernelArgument& argument, const Problem& problem);
bool is_optional(const KernelArgument& argument);
// What every op takes besides the arguments of its law.
std::vector<ArgumentInfo> common_arguments(const Problem& problem, Direction direction);

}  // namespace linnet
