// The device `cpu`: the conformance suite, and what only a CPU promises.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <mutex>

#include "compiler/cpu/jit.h"
#include "tests/conformance/suite.h"

using namespace linnet;
using namespace linnet::conformance;
using chunk::GraphOp;

namespace {

// Runs tasks backwards on the caller's thread, and says they were another worker's each time.
class BackwardPool : public Pool {
 public:
  explicit BackwardPool(int workers = 3) : workers_(workers) {}
  int workers() const override { return workers_; }
  void run(int64_t tasks, Task task, void* context) override {
    std::lock_guard lock(mutex_);
    for (int64_t i = tasks; i-- > 0;) task(context, i, static_cast<int>(i * 7 % workers_));
    ++runs;
  }
  int runs = 0;

 private:
  const int workers_;
  std::mutex mutex_;
};

}  // namespace

TEST_CASE("cpu: every op, gate mode, format and direction meets the reference") {
  meets_the_reference(Device::open("cpu", {.threads = 1}));
}
TEST_CASE("cpu: states lie as [K, V] or [V, K] with the same bits") {
  state_layouts_agree(cpu_device());
}
TEST_CASE("cpu: bf16 states are what f32 states round to") {
  narrow_states_are_rounded_once(cpu_device());
}
TEST_CASE("cpu: bf16 gates give what the same numbers in f32 give") {
  narrow_gates_are_read_exactly(cpu_device());
}
TEST_CASE("cpu: states and gradients that are not given or not asked for change nothing else") {
  optional_states_may_be_absent(cpu_device());
}
TEST_CASE("cpu: states every 16, 32 or 64 tokens are the final states of prefixes") {
  states_are_those_of_prefixes(cpu_device());
}
TEST_CASE("cpu: gaps between rows change nothing and are not written") {
  gaps_between_rows_do_not_matter(cpu_device());
}
TEST_CASE("cpu: q, k and v may be views of one packed tensor") {
  packed_qkv_is_read_in_place(cpu_device());
}
TEST_CASE("cpu: a batch gives the bits of the same sequences packed, i32 and i64 offsets alike") {
  batch_equals_packing(cpu_device());
}
TEST_CASE("cpu: decode updates rows of a pool in place and leaves the others alone") {
  decode_updates_its_pool_in_place(cpu_device());
}
TEST_CASE("cpu: the workspace may be the caller's, unaligned, and no larger than said") {
  workspace_may_be_the_callers(cpu_device());
}
TEST_CASE("cpu: a sequence gives the same bits alone and in any packing") {
  packing_does_not_matter(cpu_device());
}
TEST_CASE("cpu: a run gives the same bits again") { runs_repeat(cpu_device()); }
TEST_CASE("cpu: 1, 2 and 3 threads give the same bits") {
  other_device_agrees(cpu_device(1), cpu_device(2));
  other_device_agrees(cpu_device(1), cpu_device(3));
}
TEST_CASE("cpu: the caller's pool gives the same bits") {
  auto pool = std::make_shared<BackwardPool>();
  other_device_agrees(cpu_device(1), Device::open("cpu", {.pool = pool}));
  CHECK(pool->runs > 0);
}
TEST_CASE("cpu: threads of OpenMP give the same bits") {
  if (!dlopen("libgomp.so.1", RTLD_NOW)) {
    MESSAGE("no libgomp.so.1 here");
    return;
  }
  auto pool = openmp_pool(2);
  REQUIRE(pool);
  CHECK(pool->workers() == 2);
  other_device_agrees(cpu_device(1), Device::open("cpu", {.pool = pool}));
}
TEST_CASE("cpu: prefill, then decode, equals decode token by token") {
  decode_continues_prefill(cpu_device());
}
TEST_CASE("cpu: several threads call one op at a time, and each gets its own result") {
  threads_share_an_op(cpu_device());
}

namespace {

// Recurrences whose state is cut into blocks of value channels, and some that are not.
std::vector<Problem> split_problems() {
  std::vector<Problem> list;
  auto add = [&](const char* op, int64_t value_dim, bool v_first, DType dtype = DType::f32,
                 int64_t key_dim = 24) {
    list.push_back(
        {.key_dim = key_dim, .value_dim = value_dim, .dtype = dtype, .state_v_first = v_first});
    list.back().op = op;
  };
  add("kda", 64, false);
  add("gated_delta_rule", 64, false, DType::bf16);
  add("kda", 64, false, DType::bf16, 64);
  add("rwkv7", 20, true);
  add("rwkv7", 32, false, DType::bf16, 48);
  add("rwkv6", 64, false);
  add("retention", 64, true);
  add("gated_delta_product", 32, false);
  add("kda", 48, true);
  list.back().state_dtype = DType::bf16;
  return list;
}

}  // namespace

TEST_CASE("cpu: a long sequence in parts on several threads gives the bits of one thread") {
  auto pool = std::make_shared<BackwardPool>();
  Device own = Device::open("cpu", {.pool = pool});
  for (const Problem& problem : split_problems()) {
    CAPTURE(problem.op);
    Subject subject(problem);
    for (const Layout& layout :
         {Layout{1, 1, {1100}}, Layout{1, 3, {2061}}, Layout{1, 1, {5, 1030, 0, 40}}}) {
      CAPTURE(layout.lengths.size());
      Tensors arguments = subject.arguments(Direction::forward, layout);
      check::CallOptions options{.states_every = 96};
      auto run = [&](const Device& device) {
        return check::call(subject.build(device, Direction::forward), layout, arguments, options);
      };
      Tensors expected = run(cpu_device(1));
      for (const Device& device : {cpu_device(2), cpu_device(3), own})
        check_same(run(device), expected);
      arguments.erase("initial_state");
      options = {.gap = 3, .left_out = {"final_state"}};
      expected = run(cpu_device(1));
      for (const Device& device : {cpu_device(2), cpu_device(3)}) check_same(run(device), expected);
    }
  }
  CHECK(pool->runs > 2 * 18);  // windows of parts, not one call for everything
}

TEST_CASE("cpu: gradients of a long sequence in parts have the bits of one thread") {
  auto pool = std::make_shared<BackwardPool>();
  Device own = Device::open("cpu", {.pool = pool});
  auto agree = [&](const Problem& problem, const Layout& layout) {
    CAPTURE(problem.op);
    CAPTURE(layout.lengths.size());
    Subject subject(problem);
    Tensors arguments = subject.arguments(Direction::backward, layout);
    check::CallOptions options;
    auto run = [&](const Device& device) {
      return check::call(subject.build(device, Direction::backward), layout, arguments, options);
    };
    Tensors expected = run(cpu_device(1));
    for (const Device& device : {cpu_device(2), cpu_device(3), own})
      check_same(run(device), expected);
  };
  for (const ops::Entry& entry : ops::registry())
    agree({.op = entry.name, .key_dim = 24, .value_dim = 64}, {1, 1, {1100}});
  for (const Problem& problem : split_problems()) {
    agree(problem, {1, 3, {600}});
    agree(problem, {1, 1, {5, 1030, 0, 40}});
  }
  // A_log and dt_bias are of a head: their gradients are sums over its chunks.
  agree({.op = "kda", .key_dim = 60, .value_dim = 36, .gate = Gate::softplus},
        {1, 3, {700, 0, 520}});
  agree({.op = "gated_delta_rule", .key_dim = 16, .value_dim = 256, .gate = Gate::softplus},
        {1, 1, {2000}});
  CHECK(pool->runs > 31 * 8);  // windows of parts, not one call for everything
}

// What threads share is stored in vectors that must be aligned, which are narrower there.
TEST_CASE("cpu: a long sequence in parts gives the same bits in code for narrower machines") {
  for (const char* cpu : {"x86-64", "x86-64-v3"})
    for (int64_t key_dim : {20, 60}) {
      CAPTURE(cpu);
      CAPTURE(key_dim);
      Subject subject({.op = "kda", .key_dim = key_dim, .value_dim = 36});
      Layout layout{1, 1, {1100}};
      Tensors arguments = subject.arguments(Direction::forward, layout);
      auto run = [&](const Device& device) {
        return check::call(device.build(subject.problem, {.target_cpu = cpu}), layout, arguments);
      };
      check_same(run(cpu_device(3)), run(cpu_device(1)));
    }
}

TEST_CASE("cpu: a part of a long sequence does not see the tokens after it") {
  Subject subject({.op = "kda", .key_dim = 24, .value_dim = 64});
  check::Case c{.law = ops::find("kda").define, .problem = subject.problem};
  c.options.chunk_size = 16;
  c.layout = {1, 1, {1300}};
  for (int64_t token : {1, 511, 1024, 1299})
    for (const check::Result& result : check::causal_on(cpu_device(3), c, token))
      CHECK_MESSAGE(result.passed, result.measure);
}

TEST_CASE("cpu: states come every 16 tokens, however long chunks are") {
  Subject subject({.op = "kda", .key_dim = 32, .value_dim = 32, .dtype = DType::bf16});
  Layout layout{1, 1, {40}};
  Tensors arguments = subject.arguments(Direction::forward, layout);
  Op op = subject.build(cpu_device(), Direction::forward);
  auto states = check::call(op, layout, arguments, {.states_every = 16})["states"];
  REQUIRE(states.size() == 3 * 32 * 32);
  for (int64_t first : {16, 32}) {
    Layout prefix{1, 1, {first}};
    auto expected =
        check::call(op, prefix, subject.tokens(arguments, layout, 0, first))["final_state"];
    for (size_t i = 0; i < expected.size(); ++i)
      REQUIRE(states[first / 16 * expected.size() + i] ==
              doctest::Approx(expected[i]).epsilon(0.03).scale(0.3));
  }
}

// By numbers alone: a zero of the scores' upper triangle times what is no number would be none.
TEST_CASE("cpu: what is no number is not seen by tokens before it") {
  constexpr int64_t kTokens = 70;
  for (const ops::Entry& entry : ops::registry())
    for (const char* cpu : {"", "x86-64"})
      for (int64_t chunk : {16, 64}) {
        Problem problem{.op = entry.name, .key_dim = 20, .value_dim = 24};
        auto context = make_context();
        auto module = derive(*context, entry.define, problem, {.chunk_size = 16});
        GraphOp graph = graph_of(*module);
        Layout layout{1, 1, {kTokens}};
        Tensors inputs = check::random_inputs(graph, problem, layout, {});
        BuildOptions how{.chunk = chunk, .target_cpu = cpu};
        Op op = cpu_device().build(problem, how);
        std::vector<double> expected = check::call(op, layout, inputs)["o"];
        for (auto input : graph.getBody().getOps<chunk::InputOp>()) {
          if (input.getScope() != chunk::Scope::token) continue;
          for (int64_t token : {5, 27, 64}) {
            CAPTURE(entry.name);
            CAPTURE(cpu);
            CAPTURE(chunk);
            CAPTURE(token);
            Tensors other = inputs;
            auto& values = other[input.getName().str()];
            values[token * static_cast<int64_t>(values.size()) / kTokens] = NAN;
            std::vector<double> o = check::call(op, layout, other)["o"];
            auto before = token * static_cast<int64_t>(o.size()) / kTokens;
            CHECK_MESSAGE(std::equal(o.begin(), o.begin() + before, expected.begin()),
                          input.getName().str());
            CHECK(std::any_of(o.begin() + before, o.end(), [](double x) { return std::isnan(x); }));
          }
        }
      }
}

// Sums of such gates are so large that their differences would have few digits left.
TEST_CASE("cpu: among gates of -1000 results keep the digits they have elsewhere") {
  for (const ops::Entry& entry : ops::registry())
    for (int64_t chunk : {16, 64}) {
      check::Case c{.law = entry.define, .problem = {.op = entry.name, .key_dim = 48}};
      c.options.chunk_size = chunk;
      c.layout = {1, 2, {130, 0, 15}};
      c.inputs.gates = check::Gates::mixed;
      CAPTURE(c.name());
      for (const check::Result& result : check::compare_on(cpu_device(), c))
        CHECK_MESSAGE(result.passed, result.measure, ": ", result.error, " over ", result.limit);
    }
}

// The search may choose any of them, in either direction.
TEST_CASE("cpu: every op meets the reference under schedules far from the default") {
  for (const ops::Entry& entry : ops::registry())
    for (const char* text : {"chunk=1", "chunk=32 register_vectors=1 separate_output=1"}) {
      check::Case c{.law = entry.define, .schedule = Schedule::parse(text)};
      c.problem = {.op = entry.name, .key_dim = 128, .value_dim = 20};
      c.options.chunk_size = c.schedule->chunk;
      c.options.stages = c.schedule->stages;
      c.layout = {1, 2, {70, 0, 15}};
      CAPTURE(c.name());
      for (const check::Result& result : check::compare_on(cpu_device(), c))
        CHECK_MESSAGE(result.passed, result.measure, ": ", result.error, " over ", result.limit);
    }
}

// Both in place, by blocks of value channels, and copied where channels leave vectors half empty.
TEST_CASE("cpu: decode of every op finds states as [K, V] or [V, K] with the same bits") {
  std::vector<std::pair<int64_t, int64_t>> sizes = {{32, 48}, {96, 16}, {60, 32}, {32, 36}};
  for (const ops::Entry& entry : ops::registry()) {
    CAPTURE(entry.name);
    if (entry.name == std::string("kda")) sizes.push_back({256, 256});
    for (auto [key_dim, value_dim] : sizes) {
      CAPTURE(key_dim);
      CAPTURE(value_dim);
      Problem k_first{.op = entry.name, .key_dim = key_dim, .value_dim = value_dim};
      Problem v_first = k_first;
      v_first.state_v_first = true;
      Subject one(k_first), other(v_first);
      Layout layout{1, 2, {3, 0, 1}};
      Tensors arguments = one.arguments(Direction::decode, layout);
      auto run = [&](Subject& subject) {
        Op op = subject.build(cpu_device(), Direction::decode);
        return check::call(op, layout, arguments);
      };
      check_same(run(one), run(other));
    }
    if (entry.name == std::string("kda")) sizes.pop_back();
  }
}

// A thread that has many heads of a sequence decodes some in one call; of as many threads as heads,
// each has one.
TEST_CASE("cpu: decode of many heads in one call gives the bits of a call for each") {
  Device many = Device::open("cpu", {.pool = std::make_shared<BackwardPool>(200)});
  auto agree = [&](const Problem& problem, const Layout& layout) {
    Subject subject(problem);
    Tensors arguments = subject.arguments(Direction::decode, layout);
    for (bool pool : {false, true}) {
      auto run = [&](const Device& device) {
        return check::call(subject.build(device, Direction::decode), layout, arguments,
                           {.state_pool = pool});
      };
      check_same(run(cpu_device(1)), run(many));
    }
  };
  for (const ops::Entry& entry : ops::registry()) {
    CAPTURE(entry.name);
    for (bool v_first : {false, true})
      for (DType dtype : {DType::f32, DType::bf16}) {
        CAPTURE(v_first);
        CAPTURE(dtype);
        Problem problem{.key_dim = 24, .value_dim = 32, .dtype = dtype, .state_v_first = v_first};
        problem.op = entry.name;
        agree(problem, {4, 20, {1, 0, 2, 1, 5}});  // 12 for a task, 5 for a key head
        agree(problem, {40, 40, {1, 0, 3}});
      }
  }
  // A_log and dt_bias, of which each head has its own.
  agree({.op = "kda", .key_dim = 24, .value_dim = 32, .gate = Gate::softplus}, {4, 20, {1, 2, 1}});
}
