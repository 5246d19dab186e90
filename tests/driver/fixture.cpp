#include "tests/driver/fixture.h"

#include <dlfcn.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace driver_test {

using namespace linnet;

namespace {

// Of a library that is opened once and stays.
template <class F>
F* function(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW);
  void* found = handle ? dlsym(handle, name) : nullptr;
  if (!found) throw std::runtime_error(std::string(library) + ": " + name);
  return reinterpret_cast<F*>(found);
}

}  // namespace

FakeDriver::FakeDriver(FakeOptions options) {
  function<decltype(fake_reset)>(FAKE_CUDA, "fake_reset")(&options);
}
std::vector<std::string> FakeDriver::calls() const {
  std::istringstream text(function<decltype(fake_calls)>(FAKE_CUDA, "fake_calls")());
  std::vector<std::string> list;
  for (std::string line; std::getline(text, line);) list.push_back(line);
  return list;
}
void FakeDriver::forget_calls() {
  function<decltype(fake_forget_calls)>(FAKE_CUDA, "fake_forget_calls")();
}
std::string FakeDriver::problems() const {
  return function<decltype(fake_problems)>(FAKE_CUDA, "fake_problems")();
}
int FakeDriver::alive() const { return function<decltype(fake_alive)>(FAKE_CUDA, "fake_alive")(); }

int compiled_by_nvrtc() { return function<int()>(FAKE_NVRTC, "fake_nvrtc_compiled")(); }

CpuKernel FakeCompiler::compile(const CpuRequest&) { throw UserError("no kernels for the CPU"); }

CudaProgram FakeCompiler::emit(const CudaRequest& request) {
  ++asked;
  auto argument = [](const char* name, ArgumentScope scope, bool output, const char* axes) {
    return KernelArgument{name, scope, false, output, DType::f32, DType::f32, axes};
  };
  return {.name = "fake",
          .source = source,
          .headers = {{"fake.cuh", "// a template"}},
          .arguments = {argument("v", ArgumentScope::token, false, "v"),
                        argument("scale", ArgumentScope::constant, false, ""),
                        argument("o", ArgumentScope::token, true, "v")},
          .kernels = {{"fake_map", CudaGrid::chunks, 128, shared_bytes, 1, {"v", "workspace"}},
                      {"fake_scan", CudaGrid::sequences, 64, 0, 2, {"workspace", "o", "batch"}}},
          .chunk = request.schedule.chunk,
          .workspace_bytes = 512};
}

FakeCompiler& compiler() {
  static FakeCompiler compiler;
  use_compiler(&compiler);
  return compiler;
}

Directory::Directory() {
  std::string name = (fs::temp_directory_path() / "linnet-driver-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
  path = name;
}
Directory::~Directory() {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

Variable::Variable(std::string name, const std::string& value) : name_(std::move(name)) {
  const char* text = std::getenv(name_.c_str());
  was_set_ = text;
  before_ = text ? text : "";
  setenv(name_.c_str(), value.c_str(), 1);
}
Variable::~Variable() {
  if (was_set_)
    setenv(name_.c_str(), before_.c_str(), 1);
  else
    unsetenv(name_.c_str());
}

Problem problem() { return {.op = "fake", .key_dim = 16, .value_dim = 16}; }

void run(const Op& op, int64_t tokens, const RunOptions& options) {
  auto tensor = [&](uintptr_t address) {
    return Tensor::dense(reinterpret_cast<void*>(address), DType::f32, {1, tokens, 2, 16});
  };
  op.run({{"v", tensor(0x10000)}, {"scale", 1.f}, {"o", tensor(0x20000)}}, options);
}

std::string logged(const std::function<void()>& call) {
  Directory directory;
  std::string path = directory / "log";
  int before = dup(STDERR_FILENO), file = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  dup2(file, STDERR_FILENO);
  call();
  dup2(before, STDERR_FILENO);
  close(before);
  close(file);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace driver_test
