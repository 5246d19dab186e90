// Kernels and requests as text: what the cache keeps beside the code, and what it is found by.
#include <fmt/format.h>

#include <sstream>

#include "linnet/compiler.h"

namespace linnet {

std::string CpuKernel::describe() const {
  std::string text = fmt::format(
      "linnet cpu kernel 1\nchunk {}\nvalue_block {}\nshared_first {}\nscratch_floats {}\n"
      "workspace_floats {}\n",
      chunk, value_block, static_cast<int>(shared_first), scratch_floats, workspace_floats);
  for (const Entry& e : entries)
    text += fmt::format("entry {} {}\n", e.offset, static_cast<int>(e.parallel));
  for (const KernelArgument& a : arguments)
    text += fmt::format("argument {} {} {} {} {} {} .{}\n", a.name, static_cast<int>(a.scope),
                        static_cast<int>(a.key_heads), static_cast<int>(a.is_output),
                        static_cast<int>(a.storage), static_cast<int>(a.result), a.axes);
  return text;
}

CpuKernel CpuKernel::parse(const std::string& description, std::string code) {
  CpuKernel kernel;
  kernel.code = std::move(code);
  std::istringstream lines(description);
  std::string line;
  auto require = [&](bool holds) {
    if (!holds) throw Error(fmt::format("a kernel's description does not parse: '{}'", line));
  };
  std::getline(lines, line);
  require(line == "linnet cpu kernel 1");
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "entry") {
      Entry entry;
      words >> entry.offset >> entry.parallel;
      require(entry.offset >= 0 && entry.offset < static_cast<int64_t>(kernel.code.size()));
      kernel.entries.push_back(entry);
    } else if (word == "argument") {
      KernelArgument a;
      int scope = 0, storage = 0, result = 0;
      words >> a.name >> scope >> a.key_heads >> a.is_output >> storage >> result >> a.axes;
      require(scope >= 0 && scope < 4 && storage >= 0 && storage < 3 && result >= 0 && result < 3);
      a.scope = static_cast<ArgumentScope>(scope);
      a.storage = static_cast<DType>(storage);
      a.result = static_cast<DType>(result);
      require(a.axes.starts_with('.'));
      a.axes.erase(0, 1);
      kernel.arguments.push_back(a);
    } else {
      int64_t number = 0;
      words >> number;
      if (word == "shared_first")
        kernel.shared_first = number != 0;
      else if (word == "chunk")
        kernel.chunk = number;
      else if (word == "value_block")
        kernel.value_block = number;
      else if (word == "scratch_floats")
        kernel.scratch_floats = number;
      else if (word == "workspace_floats")
        kernel.workspace_floats = number;
      else
        require(false);
    }
    require(!words.fail());
  }
  require(!kernel.entries.empty() && kernel.chunk > 0 && kernel.value_block > 0);
  return kernel;
}

std::string CpuRequest::describe() const {
  const Problem& p = problem;
  static const char* directions[] = {"forward", "backward", "decode"};
  static const char* gates[] = {"pre", "softplus", "bounded"};
  static const char* betas[] = {"plain", "sigmoid", "2sigmoid"};
  return fmt::format(
      "{} {} K {} V {} gate {} lower_bound {} A_log {} beta {} l2norm {} {}{} gate {} state {}{} "
      "chunk {} value block {}{}{}",
      p.op, directions[static_cast<int>(direction)], p.key_dim, p.value_dim,
      gates[static_cast<int>(p.gate)], p.lower_bound, p.has_A_log, betas[static_cast<int>(p.beta)],
      p.l2norm, name_of(p.dtype), p.tf32 ? " tf32" : "", name_of(p.gate_dtype),
      name_of(p.state_dtype), p.state_v_first ? " v first" : "", chunk, value_block,
      split ? " split" : "", grouped ? " grouped" : "");
}

}  // namespace linnet
