// What the tests of the driver layer share: the fakes, a compiler of two small kernels, and a call.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "linnet/bundle.h"
#include "linnet/compiler.h"
#include "tests/driver/fake_cuda.h"

namespace driver_test {

namespace fs = std::filesystem;

// The fake driver, as the runtime has loaded it, from a clean start.
class FakeDriver {
 public:
  explicit FakeDriver(FakeOptions options = {
                          .fail_at = -1, .major = 8, .minor = 0, .shared_bytes = 160 * 1024});
  std::vector<std::string> calls() const;
  void forget_calls();
  std::string problems() const;
  int alive() const;
};

// Kernels whose NVRTC was called so far.
int compiled_by_nvrtc();

// Emits two kernels; counts how often it is asked.
struct FakeCompiler : linnet::Compiler {
  linnet::CpuKernel compile(const linnet::CpuRequest&) override;
  linnet::CudaProgram emit(const linnet::CudaRequest& request) override;
  std::string outline(const linnet::CpuRequest&) override { return {}; }
  std::string show(const linnet::ShowRequest&) override { return {}; }
  linnet::Numbers interpret(const linnet::InterpretRequest&, const linnet::Numbers&) override {
    return {};
  }
  int asked = 0;
  std::string source = "// some text\n__global__ void fake_map() {}\n";
  int shared_bytes = 1000;
};
FakeCompiler& compiler();

// A new directory, removed with the object.
struct Directory {
  Directory();
  ~Directory();
  Directory(const Directory&) = delete;
  std::string operator/(const std::string& name) const { return (path / name).string(); }
  fs::path path;
};

// An environment variable for as long as the object lives.
class Variable {
 public:
  Variable(std::string name, const std::string& value);
  ~Variable();

 private:
  std::string name_, before_;
  bool was_set_;
};

linnet::Problem problem();
// Runs the op on `tokens` tokens of addresses nobody looks at.
void run(const linnet::Op& op, int64_t tokens, const linnet::RunOptions& options = {});

// What goes to stderr while `call` runs; the log among it.
std::string logged(const std::function<void()>& call);

// The message of what is thrown.
template <class E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace driver_test
