// The same bits, however a sequence is run.
#include <doctest/doctest.h>

#include <thread>

#include "tests/conformance/suite.h"

namespace linnet::conformance {

namespace {

constexpr Direction kDirections[] = {Direction::forward, Direction::backward, Direction::decode};

// Several kinds of recurrence, in all formats.
std::vector<Problem> problems(Direction direction) {
  std::vector<Problem> list;
  auto add = [&](const char* op, int64_t value_dim, DType dtype = DType::f32,
                 Gate gate = Gate::pre) {
    list.push_back({.key_dim = 24, .value_dim = value_dim, .gate = gate, .dtype = dtype});
    list.back().op = op;
  };
  add("kda", 32);
  add("kda", 32, DType::bf16, Gate::softplus);
  add("gated_delta_rule", 20);
  add("rwkv6", 32, DType::f16);
  add("retention", 32);
  if (direction == Direction::backward) return list;  // the others take seconds to compile
  add("gated_delta_product", 20);
  add("rwkv7", 20);
  return list;
}

template <class F>
void for_each_workload(const Device& device, F body) {
  for (Direction direction : kDirections)
    for (const Problem& problem : problems(direction)) {
      if (!is_thorough(device) && (problem.op != "kda" || problem.dtype == DType::f32)) continue;
      CAPTURE(problem.op);
      CAPTURE(name_of(direction));
      // Lengths that end within chunks.
      std::vector<int64_t> lengths = {15, 130, 0, 7};
      if (direction == Direction::decode) lengths = {1, 8, 0, 3};
      body(Subject(problem), direction, Layout{1, 2, lengths});
    }
}

}  // namespace

void packing_does_not_matter(const Device& device) {
  for_each_workload(device, [&](const Subject& subject, Direction direction, const Layout& layout) {
    Op op = subject.build(device, direction);
    Tensors arguments = subject.arguments(direction, layout);
    Tensors all = check::call(op, layout, arguments);
    for (const std::vector<size_t>& some :
         {std::vector<size_t>{0}, {1}, {2}, {3}, {1, 3}, {3, 1, 0, 2}, {2, 2, 1, 1, 0, 3}}) {
      CAPTURE(some.size());
      Layout own = select(layout, some);
      Tensors results = check::call(op, own, subject.select(arguments, layout, some));
      std::vector<size_t> every(some.size());
      for (size_t i = 0; i < every.size(); ++i) every[i] = i;
      if (own.tokens() == 0) continue;  // select divides tensors by tokens
      check_same(subject.select(results, own, every), subject.select(all, layout, some));
    }
  });
}

void runs_repeat(const Device& device) { other_device_agrees(device, device); }

void other_device_agrees(const Device& device, const Device& other) {
  for_each_workload(device, [&](const Subject& subject, Direction direction, const Layout& layout) {
    Tensors arguments = subject.arguments(direction, layout);
    check_same(check::call(subject.build(device, direction), layout, arguments),
               check::call(subject.build(other, direction), layout, arguments));
  });
}

void decode_continues_prefill(const Device& device) {
  constexpr int64_t kTokens = 45, kPrefill = 40;
  for (const ops::Entry& entry : ops::registry()) {
    if (!is_thorough(device) && entry.name != std::string("kda")) continue;
    CAPTURE(entry.name);
    Subject subject({.op = entry.name, .key_dim = 24, .value_dim = 32});
    Layout layout{1, 2, {kTokens}}, prefix{1, 2, {kPrefill}}, one{1, 2, {1}};
    Op prefill = subject.build(device, Direction::forward),
       decode = subject.build(device, Direction::decode);
    Tensors arguments = subject.arguments(Direction::forward, layout);

    // Prefill, and the rest of the tokens in one call of decode.
    Tensors first = check::call(prefill, prefix, subject.tokens(arguments, layout, 0, kPrefill));
    Tensors rest = subject.tokens(arguments, layout, kPrefill, kTokens - kPrefill);
    rest["initial_state"] = first["final_state"];
    Tensors last = check::call(decode, {1, 2, {kTokens - kPrefill}}, rest);
    std::vector<double> o = first["o"];
    o.insert(o.end(), last["o"].begin(), last["o"].end());

    // Token by token.
    std::vector<double> o_by_token, state = arguments["initial_state"];
    for (int64_t t = 0; t < kTokens; ++t) {
      Tensors token = subject.tokens(arguments, layout, t, 1);
      token["initial_state"] = state;
      Tensors result = check::call(decode, one, token, {.state_pool = true});
      o_by_token.insert(o_by_token.end(), result["o"].begin(), result["o"].end());
      state = result["final_state"];
    }
    CHECK(largest_difference(o, o_by_token) < 1e-5);
    CHECK(largest_difference(last["final_state"], state) < 1e-5);
  }
}

void threads_share_an_op(const Device& device) {
  constexpr int kThreads = 4;
  const int kRuns = is_thorough(device) ? 10 : 2;
  for (Direction direction : kDirections) {
    if (direction == Direction::backward && !is_thorough(device)) continue;
    CAPTURE(name_of(direction));
    Subject subject({.op = "kda", .key_dim = 24, .value_dim = 32, .gate = Gate::softplus});
    Op op = subject.build(device, direction);
    bool decode = direction == Direction::decode;
    // Of different sizes, so that calls want memory of different sizes and other kernels.
    std::vector<Layout> layouts = {{1, 2, {decode ? 8 : 60}}, {2, 2, {3, 0, 5}}, {1, 1, {1}}};
    if (direction == Direction::forward && is_thorough(device)) layouts.push_back({1, 1, {700}});
    std::vector<Tensors> arguments, expected;
    for (const Layout& layout : layouts) {
      arguments.push_back(subject.arguments(direction, layout));
      expected.push_back(check::call(op, layout, arguments.back()));
    }
    Op fresh = subject.build(device, direction);  // has not loaded what calls may need later
    std::atomic<int> wrong = 0;
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
          for (int run = 0; run < kRuns; ++run) {
            size_t i = (t + run) % layouts.size();
            wrong += check::call(fresh, layouts[i], arguments[i]) != expected[i];
          }
        });
    }
    CHECK(wrong == 0);
  }
}

}  // namespace linnet::conformance
