// Whole tunings of a small op, and what calls make of them.
#include <doctest/doctest.h>

#include <cstdlib>
#include <set>

#include "autotune/report.h"
#include "autotune/results.h"
#include "autotune/store.h"
#include "autotune/tuner.h"
#include "autotune/workload.h"
#include "linnet/device.h"
#include "linnet/error.h"
#include "runtime/cache/cache.h"
#include "runtime/tuning/table.h"
#include "tests/autotune/support.h"

using namespace linnet;
using namespace linnet::autotune;

namespace {

// A cache and a directory of schedules of one's own.
struct Home {
  Home() {
    use_compiler(linnet_compiler());
    setenv("LINNET_CACHE_DIR", (directory.path / "cache").c_str(), 1);
    unsetenv("LINNET_TUNING_DIR");
  }
  ~Home() { unsetenv("LINNET_JIT"); }
  TempDirectory directory;
  std::filesystem::path tuning = directory.path / "cache" / "tuning";

  void store(const std::string& architecture, const std::vector<TuningEntry>& entries) const {
    update_tuning_file(tuning_path(tuning, architecture), architecture, entries, "a test");
  }
  std::multiset<std::string> kernels() const {
    std::multiset<std::string> list;
    for (const EntryInfo& e : Cache({.root = directory.path / "cache"}).list()) {
      // A GPU's kernels are two entries: what was asked for, and the code.
      std::string text, kind;
      for (const auto& [name, value] : e.fields) {
        if (name == "kind") kind = value;
        if (name == "what" || name == "target") text += value + "; ";
      }
      if (kind == "cpu kernel" || kind == "cuda program") list.insert(text);
    }
    return list;
  }
};

const Problem kSmall{.op = "linear_attention", .key_dim = 32, .value_dim = 32};
const Problem kKda{.op = "kda", .key_dim = 32, .value_dim = 32};

std::vector<float> run(const Device& device, const Problem& problem, const BuildOptions& options,
                       const Shape& shape) {
  Op op = device.build(problem, options);
  Workload load(device, op, shape);
  load.run();
  device.synchronise();
  return load.results(1 << 20);
}

// This program again, with a test case that is left out otherwise and with variables.
int run_child(const std::string& test_case, const std::string& variables) {
  std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return std::system(
      (variables + " " + self + " --no-skip -tc='" + test_case + "' > /dev/null").c_str());
}

}  // namespace

TEST_CASE("tune: a small op on cpu, stored and then taken by calls") {
  Home home;
  TuneOptions options{.threads = 1,
                      .directions = {Direction::forward, Direction::decode},
                      .lengths = {Length::medium},
                      .budget_s = 6};
  auto tuned = tune({kSmall}, options);
  REQUIRE(tuned.size() == 2);
  auto file = read_tuning_file(tuning_path(home.tuning, cpu_architecture()));
  REQUIRE(file);
  CHECK(file->entries.size() == 2);
  for (const Tuned& t : tuned) {
    CAPTURE(t.entry.place());
    CHECK(t.entry.how == "measured");
    CHECK(t.result.trials.size() >= 2);
    CHECK(t.entry.ms > 0);
    CHECK(t.result.best.ratio <= 1);
    const Schedules found = ScheduleTable::open(DeviceKind::cpu, cpu_architecture())
                                .find(kSmall, t.entry.key.direction);
    CHECK(found.at(t.entry.shape) == t.entry.schedule);
  }
  // Nothing of the search is left.
  for (const auto& name : std::filesystem::directory_iterator(home.tuning))
    CHECK(name.path().extension() == ".json");
  // A call takes the schedule, to the bit.
  Device device = Device::open("cpu", {.threads = 1});
  Shape shape{1, 1024, 2, 2};
  CHECK(run(device, kSmall, {}, shape) ==
        run(device, kSmall, {.schedule = tuned[0].entry.schedule}, shape));

  for (const char* name : {"report.svg", "report.html"}) {
    auto path = home.directory.path / name;
    write_report(path, tuned);
    std::string text = text_of(path);
    CHECK(text.find("<svg") != std::string::npos);
    CHECK(text.find("default") != std::string::npos);
    CHECK(text.find(tuned[0].entry.schedule.describe()) != std::string::npos);
  }
  CHECK_THROWS_AS(write_report(home.directory.path / "report.png", tuned), UserError);
}

TEST_CASE("tune: stopped by a key, it keeps what it found and goes on the next time") {
  Home home;
  int asked = 0;
  TuneOptions options{
      .threads = 1, .directions = {Direction::forward}, .lengths = {Length::short_}, .stop = [&] {
        return ++asked > 3;
      }};
  auto first = tune({kSmall}, options);
  REQUIRE(first.size() == 1);
  CHECK_FALSE(first[0].result.complete);
  auto path = tuning_path(home.tuning, cpu_architecture());
  CHECK(read_tuning_file(path)->entries.size() == 1);
  options.stop = [] { return false; };
  options.budget_s = 4;
  auto second = tune({kSmall}, options);
  REQUIRE(second.size() == 1);
  CHECK(second[0].result.trials.size() >= first[0].result.trials.size());
  CHECK(read_tuning_file(path)->entries.size() == 1);
}

TEST_CASE("tune: a small op on virtual:sm_80, by the model") {
  Home home;
  TuneOptions options{.device = "virtual:sm_80",
                      .directions = {Direction::forward},
                      .lengths = {Length::long_, Length::short_},
                      .budget_s = 12};
  Problem problem = kSmall;
  problem.dtype = DType::bf16;
  auto tuned = tune({problem}, options);
  REQUIRE(tuned.size() == 4);  // two lengths, few and many heads
  for (const Tuned& t : tuned) {
    CAPTURE(t.entry.place());
    CHECK(t.entry.how == "modelled");
    CHECK(t.entry.device == "Linnet Virtual A100, 108 SMs");
    CHECK(t.entry.ms > 0);
    CHECK(t.entry.schedule.same_sums(tuned[0].entry.schedule));
    CHECK(t.result.best.ratio <= 1);
  }
  // A model has no noise: the same again.
  auto again = tune({problem}, options);
  for (size_t i = 0; i < tuned.size(); ++i) {
    if (!tuned[i].result.complete || !again[i].result.complete) continue;
    CHECK(again[i].entry.schedule == tuned[i].entry.schedule);
    CHECK(again[i].entry.ms == tuned[i].entry.ms);
  }
  auto file = read_tuning_file(tuning_path(home.tuning, "sm_80 108 SMs"));
  REQUIRE(file);
  CHECK(file->entries.size() == 4);
  // Calls take it, and give what the default gives.
  Device device = Device::open("virtual:sm_80");
  auto expected = run(device, problem, {.schedule = Schedule{}}, {1, 70, 2, 2});
  auto results = run(device, problem, {}, {1, 70, 2, 2});
  CHECK_NOTHROW(check_results(expected, results, problem));
}

TEST_CASE("tune: the measurer for GPUs runs on the virtual one: graphs, events, a cold cache") {
  Home home;
  Subject subject{kSmall, Direction::forward, {{1, 64, 2, 2}}};
  auto measurer = measure_on_cuda("virtual:sm_80", subject, 64 << 20);
  auto samples = measurer->measure({Schedule{}, Schedule{.chunk = 32}, Schedule{.chunk = 40}}, 2);
  REQUIRE(samples.size() == 3);
  CHECK(samples[0].error == "");
  CHECK(samples[0].ms.size() == 1);
  CHECK(samples[0].ratio[0] == 1);
  CHECK(samples[1].error == "");
  CHECK(samples[2].error.starts_with("chunk: expected"));
}

TEST_CASE("tune: the space of an op, and why schedules are left out") {
  Compiler& compiler = *linnet_compiler();
  Limits limits{.vector_registers = 16, .second_cache_bytes = 1 << 20};
  Problem kda{.op = "kda"};
  Space space = make_space(compiler, kda, Direction::forward, limits);
  REQUIRE(space.candidates.size() > 20);
  CHECK(space.candidates[0].schedule == default_schedule(DeviceKind::cpu, kda, Direction::forward));
  std::set<std::string> names;
  for (const Candidate& c : space.candidates) names.insert(c.schedule.describe());
  CHECK(names.size() == space.candidates.size());
  for (const char* plain : {"chunk=1", "chunk=16", "chunk=32", "chunk=64"})
    CHECK(names.contains(plain));
  bool registers = false, same = false;
  for (const auto& refused : space.refused) {
    registers |= refused.why == "69 vector registers, there are 16";
    same |= refused.why == "the same kernel as another";
  }
  CHECK(registers);
  CHECK(same);
  // What has no inverse has no choice of its form.
  Space linear = make_space(compiler, {.op = "linear_attention"}, Direction::forward, limits);
  for (const Candidate& c : linear.candidates) CHECK_FALSE(c.schedule.stages.distribute_inverse);
  CHECK(linear.candidates.size() < space.candidates.size());
  limits.second_cache_bytes = 100 << 10;
  for (const Candidate& c : make_space(compiler, kda, Direction::forward, limits).candidates)
    CHECK(c.schedule.chunk <= 16);
}

TEST_CASE("schedules: blocks in registers change no bit; chunks only rounding") {
  Home home;
  Device device = Device::open("cpu", {.threads = 1});
  for (Direction direction : {Direction::forward, Direction::backward}) {
    BuildOptions plain{.direction = direction, .schedule = Schedule{}};
    auto expected = run(device, kKda, plain, {1, 70, 2, 2});
    for (const char* text :
         {"register_rows=4", "register_rows=8", "register_rows=6 register_vectors=1",
          "register_rows=16 register_vectors=4"}) {
      CAPTURE(text);
      CHECK(run(device, kKda, {.direction = direction, .schedule = Schedule::parse(text)},
                {1, 70, 2, 2}) == expected);
    }
    for (const char* text : {"chunk=1", "chunk=32", "distribute_inverse=1", "separate_output=1"}) {
      CAPTURE(text);
      auto other = run(device, kKda, {.direction = direction, .schedule = Schedule::parse(text)},
                       {1, 70, 2, 2});
      REQUIRE(other.size() == expected.size());
      double worst = 0;
      for (size_t i = 0; i < other.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(other[i]) - expected[i]));
      CHECK(worst < 1e-4);
    }
  }
  auto refused = [&](const char* text, Direction direction) -> std::string {
    try {
      device.build(kKda, {.direction = direction, .schedule = Schedule::parse(text)});
    } catch (const UserError& error) {
      return error.what();
    }
    return "taken";
  };
  CHECK(refused("register_rows=33", Direction::forward) ==
        "register_rows: expected 0 to 32, got 33");
  CHECK(refused("chunk=16", Direction::decode) == "chunk: expected 1 for decode, got 16");
  CHECK(refused("chunk=17", Direction::forward).starts_with("chunk"));
  CHECK(refused("sink_products=1", Direction::forward).starts_with("sink_products"));
}

TEST_CASE("schedules: sequences of different classes in one batch run as they do alone") {
  Home home;
  home.store(cpu_architecture(), {entry(kKda, {.chunk = 8}, {Width::many, Length::short_}),
                                  entry(kKda, {.chunk = 32}, {Width::many, Length::medium})});
  for (int threads : {1, 3}) {
    Device device = Device::open("cpu", {.threads = threads});
    Op op = device.build(kKda);
    // Two sequences packed, 40 and 600 tokens; each alone.
    constexpr int64_t kTokens = 640, kHeads = 1, kWidth = 32;
    std::vector<float> q(kTokens * kWidth), k = q, v = q, g = q, beta(kTokens), o = q, alone = q;
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = std::sin(static_cast<float>(i));
      k[i] = 0.2f * std::cos(static_cast<float>(3 * i));
      v[i] = std::sin(static_cast<float>(5 * i));
      g[i] = -0.1f * (q[i] * q[i]);
    }
    for (size_t i = 0; i < beta.size(); ++i) beta[i] = 0.5f;
    std::vector<int64_t> offsets = {0, 40, 640};
    auto call = [&](int64_t first, int64_t tokens, std::vector<float>& out, bool packed) {
      auto tensor = [&](std::vector<float>& x) {
        return Tensor::dense(x.data() + first * kWidth, DType::f32, {1, tokens, kHeads, kWidth});
      };
      std::vector<Argument> arguments = {
          {"q", tensor(q)},
          {"k", tensor(k)},
          {"v", tensor(v)},
          {"g", tensor(g)},
          {"beta", Tensor::dense(beta.data() + first, DType::f32, {1, tokens, kHeads})},
          {"scale", 1.f},
          {"o", tensor(out)}};
      if (packed)
        arguments.emplace_back("cu_seqlens", Tensor::dense(offsets.data(), DType::i64, {3}));
      op.run(arguments);
    };
    call(0, kTokens, o, true);
    call(0, 40, alone, false);
    call(40, 600, alone, false);
    CHECK(o == alone);
  }
  CHECK(home.kernels().size() >= 2);
}

TEST_CASE(
    "schedules: a tuned one that does not fit is ignored, one that is asked for is an error") {
  Home home;
  Schedule wrong{.chunk = 40};
  home.store(cpu_architecture(), {entry(kKda, wrong)});
  Device device = Device::open("cpu", {.threads = 1});
  CHECK(run(device, kKda, {}, {1, 600, 1, 1}) ==
        run(device, kKda, {.schedule = Schedule{}}, {1, 600, 1, 1}));
  CHECK_THROWS_AS(device.build(kKda, {.schedule = wrong}), UserError);
}

TEST_CASE("schedules: a tuning file that cannot be used changes nothing") {
  Home home;
  auto path = tuning_path(home.tuning, cpu_architecture());
  std::filesystem::create_directories(home.tuning);
  TuningFile foreign{"cpu of another kind", "", {entry(kKda, {.chunk = 64})}};
  for (std::string text : {std::string("{ half a fi"), std::string(""), foreign.text()}) {
    write_text(path, text);
    auto t = ScheduleTable::open(DeviceKind::cpu, cpu_architecture());
    CHECK(t.find(kKda, Direction::forward).at({Width::many, Length::medium}).chunk ==
          ScheduleTable(DeviceKind::cpu, {*shipped_tuning(DeviceKind::cpu, cpu_architecture())})
              .find(kKda, Direction::forward)
              .at({Width::many, Length::medium})
              .chunk);
    CHECK(text_of(path) == text);
  }
}

TEST_CASE("child: builds kda in two gate modes" * doctest::skip()) {
  use_compiler(linnet_compiler());
  Device device = Device::open(std::getenv("TEST_DEVICE"), {.threads = 1});
  for (Gate gate : {Gate::pre, Gate::softplus}) {
    Problem problem = kKda;
    problem.gate = gate;
    device.build(problem);
  }
}

TEST_CASE("cache and tuning are per architecture and per gate mode") {
  Home home;
  auto build_all = [&](const std::string& device, const char* jit) {
    return run_child("child: builds kda in two gate modes",
                     "LINNET_LOG=quiet LINNET_JIT=" + std::string(jit) + " TEST_DEVICE=" + device);
  };
  for (const char* device : {"cpu", "virtual:sm_80", "virtual:sm_90"})
    REQUIRE(build_all(device, "1") == 0);
  auto kernels = home.kernels();
  CHECK(kernels.size() == 6);
  CHECK(std::set(kernels.begin(), kernels.end()).size() == 6);
  for (const char* device : {"cpu", "virtual:sm_80", "virtual:sm_90"})
    CHECK(build_all(device, "0") == 0);
  // One of the six gets a schedule of its own: it alone needs a new kernel.
  Problem softplus = kKda;
  softplus.gate = Gate::softplus;
  home.store("sm_80 108 SMs", {entry(softplus, {.chunk = 32}, {Width::many, Length::long_})});
  // (Where nothing may be compiled, its old kernel is still there to be taken.)
  CHECK(build_all("virtual:sm_80", "0") == 0);
  CHECK(build_all("virtual:sm_90", "0") == 0);
  CHECK(build_all("cpu", "0") == 0);
  REQUIRE(build_all("virtual:sm_80", "1") == 0);
  auto after = home.kernels();
  CHECK(after.size() == 7);
  CHECK(std::includes(after.begin(), after.end(), kernels.begin(), kernels.end()));
  int chunk_32 = 0;
  for (const std::string& kernel : after) {
    if (kernel.find("chunk=32") == std::string::npos) continue;
    ++chunk_32;
    CHECK(kernel.find("gate softplus") != std::string::npos);
    CHECK(kernel.find("compute_80") != std::string::npos);
  }
  CHECK(chunk_32 == 1);
}
