// Kernels and requests as text: what the cache keeps beside the code, and what it is found by.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "linnet/compiler.h"
#include "runtime/cache/sha256.h"

namespace linnet {

namespace {

std::string describe_argument(const KernelArgument& a) {
  return fmt::format("argument {} {} {} {} {} {} .{}\n", a.name, static_cast<int>(a.scope),
                     static_cast<int>(a.key_heads), static_cast<int>(a.is_output),
                     static_cast<int>(a.storage), static_cast<int>(a.result), a.axes);
}

// Reads "key number number text ..." line by line; what does not fit is an Error.
class Lines {
 public:
  Lines(const std::string& text, const std::string& first) : lines_(text) {
    std::getline(lines_, line_);
    require(line_ == first);
  }
  bool next(std::string& key) {
    if (!std::getline(lines_, line_)) return false;
    words_ = std::istringstream(line_);
    return static_cast<bool>(words_ >> key);
  }
  template <class T>
  Lines& operator>>(T& value) {
    words_ >> value;
    require(!words_.fail());
    return *this;
  }
  bool has_more() { return static_cast<bool>(words_ >> std::ws) && !words_.eof(); }
  void require(bool holds) const {
    if (!holds) throw Error(fmt::format("a kernel's description does not parse: '{}'", line_));
  }
  KernelArgument argument() {
    KernelArgument a;
    int scope = 0, storage = 0, result = 0;
    *this >> a.name >> scope >> a.key_heads >> a.is_output >> storage >> result >> a.axes;
    require(scope >= 0 && scope < 4 && storage >= 0 && storage < 3 && result >= 0 && result < 3);
    require(a.axes.starts_with('.'));
    a.scope = static_cast<ArgumentScope>(scope);
    a.storage = static_cast<DType>(storage);
    a.result = static_cast<DType>(result);
    a.axes.erase(0, 1);
    return a;
  }

 private:
  std::istringstream lines_, words_;
  std::string line_;
};

// What a kernel computes: a problem and its direction.
std::string describe_problem(const Problem& p, Direction direction) {
  static const char* directions[] = {"forward", "backward", "decode"};
  static const char* gates[] = {"pre", "softplus", "bounded"};
  static const char* betas[] = {"plain", "sigmoid", "2sigmoid"};
  return fmt::format(
      "{}{} {} K {} V {} gate {} lower_bound {} A_log {} beta {} l2norm {} {}{} gate {}{} state "
      "{}{}",
      p.op, p.law.empty() ? "" : " law " + sha256_hex(p.law),
      directions[static_cast<int>(direction)], p.key_dim, p.value_dim,
      gates[static_cast<int>(p.gate)], p.lower_bound, p.has_A_log, betas[static_cast<int>(p.beta)],
      p.l2norm, name_of(p.dtype), p.tf32 ? " tf32" : "", name_of(p.gate_dtype),
      p.beta_dtype ? fmt::format(" beta {}", name_of(*p.beta_dtype)) : "", name_of(p.state_dtype),
      p.state_v_first ? " v first" : "");
}

}  // namespace

std::string CpuKernel::describe() const {
  std::string text = fmt::format(
      "linnet cpu kernel 3\nchunk {}\nvalue_block {}\nmatrix_unit {}\n"
      "scratch_floats {}\nkept_floats {}\npassed_floats {}\ncarried_floats {}\n",
      chunk, value_block, static_cast<int>(uses_matrix_unit), scratch_floats, kept_floats,
      passed_floats, carried_floats);
  for (const std::string& feature : needs) text += fmt::format("needs {}\n", feature);
  for (const Entry& e : entries)
    text += fmt::format("entry {} {} {} {}\n", e.offset, static_cast<int>(e.parallel), e.pass,
                        static_cast<int>(e.backwards));
  for (const KernelArgument& a : arguments) text += describe_argument(a);
  return text;
}

CpuKernel CpuKernel::parse(const std::string& description, std::string code) {
  CpuKernel kernel;
  kernel.code = std::move(code);
  Lines lines(description, "linnet cpu kernel 3");
  for (std::string key; lines.next(key);) {
    if (key == "entry") {
      Entry entry;
      lines >> entry.offset >> entry.parallel >> entry.pass >> entry.backwards;
      lines.require(entry.offset >= 0 && entry.offset < static_cast<int64_t>(kernel.code.size()));
      kernel.entries.push_back(entry);
    } else if (key == "argument") {
      kernel.arguments.push_back(lines.argument());
    } else if (key == "needs") {
      lines >> kernel.needs.emplace_back();
    } else if (key == "matrix_unit") {
      lines >> kernel.uses_matrix_unit;
    } else {
      int64_t* number = key == "chunk"              ? &kernel.chunk
                        : key == "value_block"      ? &kernel.value_block
                        : key == "scratch_floats"   ? &kernel.scratch_floats
                        : key == "kept_floats"    ? &kernel.kept_floats
                        : key == "passed_floats"  ? &kernel.passed_floats
                        : key == "carried_floats" ? &kernel.carried_floats
                                                    : nullptr;
      lines.require(number);
      lines >> *number;
    }
  }
  lines.require(!kernel.entries.empty() && kernel.chunk > 0 && kernel.value_block > 0);
  return kernel;
}

std::string CpuRequest::describe() const {
  return fmt::format("{} {}{}", describe_problem(problem, direction), schedule.describe(),
                     grouped ? " grouped" : "");
}

std::string CudaProgram::describe() const {
  std::string text = fmt::format("linnet cuda program 1\nname {}\nchunk {}\nworkspace_bytes {}\n",
                                 name, chunk, workspace_bytes);
  if (segment) text += fmt::format("segment {}\nsegment_bytes {}\n", segment, segment_bytes);
  for (const KernelArgument& a : arguments) text += describe_argument(a);
  for (const CudaKernel& k : kernels)
    text += fmt::format("kernel {} {} {} {} {} {}\n", k.name, static_cast<int>(k.grid), k.threads,
                        k.shared_bytes, k.value_blocks, fmt::join(k.parameters, " "));
  return text;
}

CudaProgram CudaProgram::parse(const std::string& description) {
  CudaProgram program;
  Lines lines(description, "linnet cuda program 1");
  for (std::string key; lines.next(key);) {
    if (key == "argument") {
      program.arguments.push_back(lines.argument());
    } else if (key == "kernel") {
      CudaKernel k;
      int grid = 0;
      lines >> k.name >> grid >> k.threads >> k.shared_bytes >> k.value_blocks;
      lines.require(grid >= 0 && grid < 6 && k.threads > 0);
      k.grid = static_cast<CudaGrid>(grid);
      for (std::string parameter; lines.has_more(); k.parameters.push_back(parameter))
        lines >> parameter;
      program.kernels.push_back(k);
    } else if (key == "name") {
      lines >> program.name;
    } else {
      int64_t* number = key == "chunk"             ? &program.chunk
                        : key == "workspace_bytes" ? &program.workspace_bytes
                        : key == "segment"         ? &program.segment
                        : key == "segment_bytes"   ? &program.segment_bytes
                                                   : nullptr;
      lines.require(number);
      lines >> *number;
    }
  }
  lines.require(!program.kernels.empty() && program.chunk > 0);
  return program;
}

std::string CudaRequest::describe() const {
  return fmt::format("{} {}", describe_problem(problem, direction), schedule.describe());
}

}  // namespace linnet
