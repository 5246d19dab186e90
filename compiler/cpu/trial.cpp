#include "compiler/cpu/trial.h"

#include <bit>
#include <cstring>
#include <thread>

namespace linnet::cpu {

using chunk::Precision;
using chunk::Scope;

namespace {

int64_t bytes_of(const Argument& a) {
  return a.storage == Precision::bf16 || a.storage == Precision::f16 ? 2 : 4;
}

// Small numbers that neither grow nor vanish: decays a little below one, strengths between 0 and 1.
float number(const std::string& name, int64_t i) {
  float x = static_cast<float>((i * 2654435761u) % 1000) / 1000;
  return name == "g" ? -0.3f * x : name.starts_with("beta") ? x : 0.2f * (x - 0.5f);
}

}  // namespace

Trial::Trial(const CompiledKernel& kernel, int64_t tokens, int64_t heads, unsigned threads)
    : kernel_(kernel), tokens_(tokens), heads_(heads) {
  const Signature& signature = kernel.signature();
  for (const Argument& a : signature.arguments) {
    int64_t rows = a.scope == Scope::token      ? tokens * heads
                   : a.scope == Scope::constant ? 1
                                                : heads;
    auto& bytes = data_.emplace_back(rows * a.row * bytes_of(a));
    for (int64_t i = 0; i < rows * a.row; ++i) {
      uint32_t bits = std::bit_cast<uint32_t>(number(a.name, i));
      if (bytes_of(a) == 2)
        bits >>= 16;  // bf16 is the upper half; its lower bytes come first in memory
      std::memcpy(bytes.data() + i * bytes_of(a), &bits, bytes_of(a));
    }
  }
  int64_t chunks = tokens / signature.chunk + 1;
  for (unsigned i = 0; i < threads; ++i)
    memory_.push_back({std::vector<float>(signature.scratch_floats),
                       std::vector<float>(chunks * signature.workspace_floats_per_chunk)});
}

void Trial::run() {
  std::vector<std::jthread> workers;
  for (unsigned i = 1; i < memory_.size(); ++i) workers.emplace_back([this, i] { run_heads(i); });
  run_heads(0);
}

void Trial::run_heads(unsigned first) {
  const Signature& signature = kernel_.signature();
  std::vector<int64_t> arguments(3 + 2 * signature.arguments.size());
  arguments[0] = tokens_;
  arguments[1] = std::bit_cast<int64_t>(memory_[first].scratch.data());
  arguments[2] = std::bit_cast<int64_t>(memory_[first].workspace.data());
  for (int64_t head = first; head < heads_; head += memory_.size()) {
    for (size_t i = 0; i < signature.arguments.size(); ++i) {
      const Argument& a = signature.arguments[i];
      int64_t offset = a.scope == Scope::constant ? 0 : head * a.row * bytes_of(a);
      arguments[3 + 2 * i] = std::bit_cast<int64_t>(data_[i].data() + offset);
      arguments[4 + 2 * i] = heads_ * a.row;
    }
    kernel_(arguments.data());
  }
}

}  // namespace linnet::cpu
