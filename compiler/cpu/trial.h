// One sequence of made-up numbers run again and again through a kernel, to time it.
#pragma once

#include <vector>

#include "compiler/cpu/jit.h"

namespace linnet::cpu {

class Trial {
 public:
  Trial(const CompiledKernel& kernel, int64_t tokens, int64_t heads, unsigned threads);
  // All heads once, dealt over the threads.
  void run();

 private:
  void run_heads(unsigned first);

  struct Memory {
    std::vector<float> scratch, workspace;
  };
  const CompiledKernel& kernel_;
  int64_t tokens_, heads_;
  std::vector<std::vector<std::byte>> data_;  // one for each argument
  std::vector<Memory> memory_;                // one for each thread
};

}  // namespace linnet::cpu
