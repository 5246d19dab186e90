// What ptxas says of every kernel at the default schedules: no warning and nothing spilled, for
// every op, gate mode, direction, format and architecture. A covering sample; everything with
// LINNET_TEST_ALL=1, which takes hours, or what a regular expression in LINNET_TEST_ONLY finds of
// it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <regex>
#include <set>
#include <thread>

#include "compiler/cuda/source.h"
#include "tests/check/check.h"
#include "tests/cuda/device_fixture.h"

using namespace linnet;
using chunk::Precision;

namespace {

constexpr const char* kArchs[] = {"sm_80", "sm_89", "sm_90", "sm_100", "sm_120"};
constexpr Direction kDirections[] = {Direction::forward, Direction::backward, Direction::decode};
constexpr Precision kFormats[] = {Precision::bf16, Precision::f32, Precision::f16, Precision::tf32};
constexpr int64_t kSizes[] = {128, 64, 256};

// Bytes of shared memory a block may have.
int most_shared(const std::string& arch) {
  if (arch == "sm_80") return 163 * 1024;
  return arch == "sm_90" || arch == "sm_100" ? 227 * 1024 : 99 * 1024;
}

struct Kernels {
  Problem problem;
  Direction direction;
  std::string arch;

  std::string name() const {
    static const char* directions[] = {"forward", "backward", "decode"};
    static const char* gates[] = {"pre", "softplus", "bounded"};
    return fmt::format("{} {}, {}, K = V = {}, gate {} {}, {}", problem.op,
                       directions[static_cast<int>(direction)],
                       stringifyPrecision(precision_of(problem)).str(), problem.key_dim,
                       gates[static_cast<int>(problem.gate)], problem.lower_bound, arch);
  }
};

std::vector<Kernels> product() {
  std::vector<Kernels> list;
  for (const ops::Entry& entry : ops::registry()) {
    std::set<std::tuple<int, float, bool>> modes;
    for (const check::Case& c : check::cases_of(entry, false)) {
      if (!modes
               .insert(
                   {static_cast<int>(c.problem.gate), c.problem.lower_bound, c.problem.has_A_log})
               .second)
        continue;
      for (Direction direction : kDirections)
        for (Precision format : kFormats)
          for (int64_t size : kSizes)
            for (const char* arch : kArchs) {
              Kernels one;
              one.direction = direction;
              one.arch = arch;
              one.problem.op = entry.name;
              one.problem.key_dim = one.problem.value_dim = size;
              one.problem.gate = c.problem.gate;
              one.problem.lower_bound = c.problem.lower_bound;
              one.problem.has_A_log = c.problem.has_A_log;
              choose_precision(one.problem, format);
              list.push_back(one);
            }
    }
  }
  return list;
}

// One for each op; what there is besides in turn, so that a dozen meet all of it.
std::vector<Kernels> sample(const std::vector<Kernels>& all) {
  std::vector<Kernels> list;
  for (size_t i = 0; i < ops::registry().size(); ++i) {
    std::vector<Kernels> own;
    for (const Kernels& one : all)
      if (one.problem.op == ops::registry()[i].name && one.direction == kDirections[i % 3] &&
          one.arch == kArchs[i % 5] && one.problem.key_dim == kSizes[i / 2 % 3] &&
          precision_of(one.problem) == kFormats[i % 4])
        own.push_back(one);
    if (!own.empty()) list.push_back(own[i % own.size()]);
  }
  return list;
}

// What is wrong with them, or nothing.
std::string complaint(const Kernels& one) {
  auto context = make_context();
  bool backward = one.direction == Direction::backward;
  auto module = derive(*context, ops::find(one.problem.op).define, one.problem,
                       {.chunk_size = one.direction == Direction::decode ? 1 : 16,
                        .direction = backward ? Direction::backward : Direction::forward});
  auto graph = graph_of(*module);
  cuda::Source source =
      cuda::emit(TileProgram(graph, cuda::default_schedule(graph)), {one.direction, false});
  for (const CudaKernel& kernel : source.kernels)
    if (kernel.shared_bytes > most_shared(one.arch))
      return fmt::format("{}: {} bytes of shared memory", kernel.name, kernel.shared_bytes);
  auto made = cuda::Nvrtc::get().compile_cubin(source.text, "kernels.cu", one.arch,
                                               embedded_templates(), {"--ptxas-options=-v"});
  if (made.log.find("warning") != std::string::npos) return made.log;
  std::regex spill("entry function '(\\w+)' for '\\w+'[^']*?(\\d+) bytes spill stores");
  size_t kernels = 0;
  std::string text;
  for (std::sregex_iterator at(made.log.begin(), made.log.end(), spill), end; at != end; ++at) {
    ++kernels;
    int bytes = std::stoi((*at)[2]), most = one.problem.key_dim > 128 ? 64 : 0;
    if (bytes > most) text += fmt::format("{}: {} bytes spilled ", (*at)[1].str(), bytes);
  }
  return kernels == source.kernels.size() ? text : "not every kernel is in the log: " + made.log;
}

}  // namespace

// Skipped in common runs, and counted as skipped: docs/cuda.md says what still spills.
TEST_CASE("cuda product: no warning and no spill, every op, gate mode, direction and format" *
          doctest::skip(!std::getenv("LINNET_TEST_ALL") && !std::getenv("LINNET_TEST_ONLY"))) {
  LINNET_NEEDS_NVRTC();
  std::vector<Kernels> list = product();
  CHECK(list.size() > 5000);
  if (!std::getenv("LINNET_TEST_ALL")) list = sample(list);
  CHECK(list.size() >= ops::registry().size());
  if (const char* only = std::getenv("LINNET_TEST_ONLY"))
    std::erase_if(list, [pattern = std::regex(only)](const Kernels& one) {
      return !std::regex_search(one.name(), pattern);
    });
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < list.size();) {
      std::string text;
      try {
        text = complaint(list[i]);
      } catch (const std::exception& error) {
        text = error.what();
      }
      std::lock_guard lock(mutex);
      CHECK_MESSAGE(text.empty(), list[i].name(), ": ", text);
    }
  };
  std::vector<std::jthread> workers;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) workers.emplace_back(work);
  work();
}
