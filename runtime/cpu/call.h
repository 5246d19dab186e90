// One call of an op: how its memory is laid out, and what each thread does.
#pragma once

#include "runtime/cpu/op.h"

namespace linnet {

class CpuCall {
 public:
  CpuCall(const CpuOp& op, const Binding& binding);

  size_t workspace_bytes() const { return bytes_; }
  void run(char* workspace);

 private:
  // A part of the work: some tokens of a sequence, one head (or some), one block of value channels.
  struct Part {
    int64_t sequence, head = 0, block = 0, first = 0, tokens = 0, heads = 1;
  };
  // What loops leave for each other: tiles of a part's chunks, and what it carries on with, if not
  // from and to the caller.
  struct Tiles {
    float *kept = nullptr, *passed = nullptr, *from = nullptr, *to = nullptr;
  };
  // Where an argument of a part lies: so many bytes further for each of what tells parts apart.
  enum Index { kSequence, kSlot, kToken, kHead, kKeyHead, kChannel, kWorker, kIndices };
  struct Place {
    char* base;
    int64_t row = 0;  // numbers between two tokens, or two rows of a state
    std::array<int64_t, kIndices> steps{};
  };

  // Kernels for sequences of one class of lengths.
  struct Kernels {
    std::shared_ptr<const LoadedKernel> whole, split;
    int64_t window = 0;   // chunks of a split sequence that an entry works at at a time
    int64_t windows = 0;  // of those at most that are in work: the entries of a pass
  };

  Kernels& kernels_for(int64_t sequence) {
    return kernels_[static_cast<size_t>(length_of(binding_.length(sequence)))];
  }
  const Kernels& kernels_for(int64_t sequence) const {
    return kernels_[static_cast<size_t>(length_of(binding_.length(sequence)))];
  }
  void load(Kernels& kernels, Length length);
  void load_split(Kernels& kernels, Length length);
  bool is_split(int64_t sequence) const;
  int64_t row_of(const KernelArgument& argument) const;
  int64_t chunks_of(int64_t sequence) const;
  static int64_t tile_floats(const CpuKernel& kernel) {
    return kernel.kept_floats + kernel.passed_floats;
  }
  float* row_of_chunk(size_t argument, const Part& part) const;
  int64_t blocks(const LoadedKernel& kernel) const {
    return op_.problem.value_dim / kernel.kernel.value_block;
  }
  size_t reserve(int64_t bytes);
  void require_features() const;

  int64_t heads_together(const LoadedKernel& kernel, int64_t head) const;
  void run_whole();
  void run_split(int64_t sequence);
  void run_pass(int64_t sequence, size_t first, size_t entries);
  void sum_chunks(int64_t sequence);
  void sum_heads();
  void sum_sequences();
  void call(const LoadedKernel& kernel, size_t entry, const Part& part, const Tiles& tiles,
            int worker);
  Place place_of(size_t argument) const;
  template <class F>
  void parallel(int64_t tasks, F& task);

  const CpuOp& op_;
  const Binding& binding_;
  Pool& pool_;
  const std::vector<KernelArgument>& arguments_;
  std::array<Kernels, 3> kernels_;  // by Length; null if there is no such sequence
  int64_t group_ = 1;               // value heads of each key head
  bool grouped_ = false, any_split_ = false;
  int64_t dump_row_ = 0;  // numbers between two rows of a state nobody wants; 0: all are one row
  // Offsets in the workspace.
  size_t bytes_ = 0, zeros_ = 0, constants_ = 0, places_ = 0, dumps_ = 0, dump_bytes_ = 0,
         scratch_ = 0, scratch_bytes_ = 0, chunks_ = 0, chunks_bytes_ = 0, kept_ = 0, passed_ = 0,
         carries_ = 0;
  std::array<size_t, 64> partial_{};    // of each argument that is summed afterwards
  std::array<size_t, 64> of_chunks_{};  // of a split sequence, before
  char* memory_ = nullptr;
};

}  // namespace linnet
