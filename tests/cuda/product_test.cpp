// What ptxas says of every kernel at the default schedules: no warning and nothing spilled, for
// every op, gate mode, direction, format, size and architecture. A sample in which each two of
// these meet; everything with LINNET_TEST_ALL=1, or what a regular expression in LINNET_TEST_ONLY
// finds of it. Kernels that read alike are compiled once, and what was said of them is kept in the
// cache: a run that was stopped goes on where it was.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "compiler/cuda/source.h"
#include "llvm/Support/Regex.h"
#include "runtime/cache/cache.h"
#include "runtime/cuda/architectures.h"
#include "tests/check/check.h"
#include "tests/cuda/device_fixture.h"

using namespace linnet;
using chunk::Precision;

namespace {

constexpr const char* kArchs[] = {"sm_80", "sm_89", "sm_90", "sm_100", "sm_120"};
constexpr Direction kDirections[] = {Direction::forward, Direction::backward, Direction::decode};
constexpr Precision kFormats[] = {Precision::bf16, Precision::f32, Precision::f16, Precision::tf32};
constexpr int64_t kSizes[] = {128, 64, 256};

struct Kernels {
  Problem problem;
  Direction direction;
  std::string arch;
  // Its op, gate mode, direction, format, size and architecture as numbers.
  std::array<int, 6> factors;

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
  std::map<std::tuple<int, float, bool>, int> all_modes;
  int op = 0;
  for (const ops::Entry& entry : ops::registry()) {
    std::set<std::tuple<int, float, bool>> modes;
    for (const check::Case& c : check::cases_of(entry, false)) {
      std::tuple mode{static_cast<int>(c.problem.gate), c.problem.lower_bound, c.problem.has_A_log};
      if (!modes.insert(mode).second) continue;
      int mode_number = all_modes.emplace(mode, all_modes.size()).first->second;
      for (size_t d = 0; d < std::size(kDirections); ++d)
        for (size_t f = 0; f < std::size(kFormats); ++f)
          for (size_t s = 0; s < std::size(kSizes); ++s)
            for (size_t a = 0; a < std::size(kArchs); ++a) {
              Kernels one;
              one.direction = kDirections[d];
              one.arch = kArchs[a];
              one.factors = {op, mode_number, int(d), int(f), int(s), int(a)};
              one.problem.op = entry.name;
              one.problem.key_dim = one.problem.value_dim = kSizes[s];
              one.problem.gate = c.problem.gate;
              one.problem.lower_bound = c.problem.lower_bound;
              one.problem.has_A_log = c.problem.has_A_log;
              choose_precision(one.problem, kFormats[f]);
              list.push_back(one);
            }
    }
    ++op;
  }
  return list;
}

constexpr int kDirection = 2, kSize = 4;

// Each two of a case's factors, as numbers; of sizes only those with directions, the dear ones
// else.
std::vector<int> pairs_of(const Kernels& one) {
  std::vector<int> pairs;
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < i; ++j)
      if ((i != kSize && j != kSize) || j == kDirection)
        pairs.push_back(((i * 6 + j) * 64 + one.factors[i]) * 64 + one.factors[j]);
  return pairs;
}

// Until every pair of factors that is in the product was met, the case that meets most new ones for
// its price.
std::vector<Kernels> sample(const std::vector<Kernels>& all) {
  constexpr double kDirectionPrice[] = {3, 9, 1}, kFormatPrice[] = {1, 2, 1, 1.3},
                   kSizePrice[] = {1.8, 1, 3};
  std::set<int> open;
  for (const Kernels& one : all)
    for (int pair : pairs_of(one)) open.insert(pair);
  std::vector<Kernels> list;
  while (!open.empty()) {
    const Kernels* best = nullptr;
    double most = 0;
    for (const Kernels& one : all) {
      double price = kDirectionPrice[one.factors[2]] * kFormatPrice[one.factors[3]] *
                     kSizePrice[one.factors[4]];
      double met = 0;
      for (int pair : pairs_of(one)) met += open.contains(pair);
      if (met / price > most) most = met / price, best = &one;
    }
    for (int pair : pairs_of(*best)) open.erase(pair);
    list.push_back(*best);
  }
  return list;
}

// A kernel by itself, and the first case that has it.
struct One {
  std::string name, source, arch, used_by;
  int most_spilled;
};

// The kernels of a module apart, each under the same name: those of two ops may read alike.
std::vector<std::string> split(const cuda::Source& source) {
  const std::string& text = source.text;
  size_t first = text.find("\n// A block for every");
  std::string head = text.substr(text.find("#include"), first - text.find("#include"));
  std::vector<std::string> kernels;
  for (size_t at = first; at != std::string::npos;) {
    size_t next = text.find("\n// A block for every", at + 1);
    std::string own = text.substr(at, next - at);
    const std::string& name = source.kernels[kernels.size()].name;
    kernels.push_back(head + own.replace(own.find(" " + name + "(") + 1, name.size(), "kernel"));
    at = next;
  }
  return kernels;
}

// What is wrong with a case before anything is compiled; its kernels otherwise.
std::string take_apart(const Kernels& one, std::vector<One>& kernels) {
  auto context = make_context();
  bool backward = one.direction == Direction::backward;
  auto module = derive(*context, ops::find(one.problem.op).define, one.problem,
                       {.chunk_size = one.direction == Direction::decode ? 1 : 16,
                        .direction = backward ? Direction::backward : Direction::forward});
  auto graph = graph_of(*module);
  cuda::Source source =
      cuda::emit(TileProgram(graph, cuda::default_schedule(graph)), {one.direction, false});
  std::vector<std::string> texts = split(source);
  if (texts.size() != source.kernels.size()) return "kernels could not be told apart";
  int most_shared = cuda::find_architecture(one.arch).shared_per_block;
  for (size_t i = 0; i < texts.size(); ++i) {
    const CudaKernel& kernel = source.kernels[i];
    if (kernel.shared_bytes > most_shared)
      return fmt::format("{}: {} bytes of shared memory", kernel.name, kernel.shared_bytes);
    kernels.push_back(
        {kernel.name, texts[i], one.arch, one.name(), one.problem.key_dim > 128 ? 64 : 0});
  }
  return "";
}

// What the compilers have to say against a kernel, or nothing.
std::string complaint(const One& one, Cache& cache) {
  const auto& nvrtc = cuda::Nvrtc::get();
  CacheKey::Fields fields = {{"kind", "what ptxas said"},
                             {"source", one.source},
                             {"target", one.arch},
                             {"nvrtc", nvrtc.full_version()}};
  for (const auto& [name, text] : embedded_templates()) fields.emplace_back(name, text);
  Files files = cache.find_or_build(CacheKey(fields), [&]() -> Files {
    return {{"log", nvrtc
                        .compile_cubin(one.source, "kernel.cu", one.arch, embedded_templates(),
                                       {"--ptxas-options=-v"})
                        .log}};
  });
  const std::string& log = files["log"];
  if (log.find("warning") != std::string::npos) return log;
  int spilled = cuda::resources_of(log, "kernel").spilled;
  if (spilled < 0) return "not in the log: " + log;
  return spilled > one.most_spilled ? fmt::format("{} bytes spilled", spilled) : "";
}

template <class F>
void share_among_threads(size_t count, F call) {
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < count;) call(i);
  };
  std::vector<std::jthread> workers;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) workers.emplace_back(work);
  work();
}

}  // namespace

TEST_CASE("cuda product: no warning and no spill, every op, gate mode, direction and format") {
  std::vector<Kernels> list = product();
  CHECK(list.size() > 5000);
  const char* only = std::getenv("LINNET_TEST_ONLY");
  if (!std::getenv("LINNET_TEST_ALL") && !only) list = sample(list);
  if (only) {
    llvm::Regex pattern(only);
    std::erase_if(list, [&](const Kernels& one) { return !pattern.match(one.name()); });
  }
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, One> kernels;
  share_among_threads(list.size(), [&](size_t i) {
    std::string text;
    std::vector<One> own;
    try {
      text = take_apart(list[i], own);
    } catch (const std::exception& error) {
      text = error.what();
    }
    std::lock_guard lock(mutex);
    CHECK_MESSAGE(text.empty(), list[i].name(), ": ", text);
    for (One& one : own) {
      auto [known, is_new] = kernels.try_emplace({one.source, one.arch}, one);
      known->second.most_spilled = std::min(known->second.most_spilled, one.most_spilled);
    }
  });
  std::vector<const One*> todo;
  for (const auto& [key, one] : kernels) todo.push_back(&one);
  MESSAGE(list.size(), " cases, ", todo.size(), " kernels");
  Cache cache({.max_bytes = uint64_t{1} << 32, .bundles = {}});
  share_among_threads(todo.size(), [&](size_t i) {
    if (i % 500 == 0 && i > 0) fmt::print(stderr, "{} of {} kernels\n", i, todo.size());
    std::string text;
    try {
      text = complaint(*todo[i], cache);
    } catch (const std::exception& error) {
      text = error.what();
    }
    std::lock_guard lock(mutex);
    CHECK_MESSAGE(text.empty(), todo[i]->name, " (", todo[i]->used_by, "): ", text);
  });
}
