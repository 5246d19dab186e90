// How arguments lie in memory.
#include <doctest/doctest.h>

#include "tests/conformance/suite.h"

namespace linnet::conformance {

namespace {

constexpr Direction kDirections[] = {Direction::forward, Direction::backward, Direction::decode};

// A gate per channel and whole vectors; a gate per token and a tail; a trained vector of a head.
std::vector<Problem> few_problems(const Device& device) {
  std::vector<Problem> list;
  for (auto [op, value_dim] : {std::pair{"kda", 32}, {"gated_delta_rule", 20}, {"rwkv6", 20}}) {
    if (!list.empty() && !is_thorough(device)) break;
    list.push_back({.key_dim = 24, .value_dim = value_dim});
    list.back().op = op;
  }
  return list;
}

Layout layout_for(Direction direction) {
  return direction == Direction::decode ? Layout{1, 2, {8, 0, 1, 3}} : Layout{1, 2, {15, 0, 40}};
}

// Calls of one subject on one device.
struct Calls {
  const Device& device;
  Subject subject;
  Tensors run(Direction direction, const Layout& layout, const Tensors& arguments,
              const check::CallOptions& options = {}) const {
    return check::call(subject.build(device, direction), layout, arguments, options);
  }
};

// A change of a problem that shall change nothing but the memory's layout.
void check_agree(const Device& device, const Problem& a, const Problem& b) {
  Calls one{device, Subject(a)}, other{device, Subject(b)};
  for (Direction direction : kDirections) {
    CAPTURE(a.op);
    CAPTURE(name_of(direction));
    Layout layout = layout_for(direction);
    Tensors arguments = one.subject.arguments(direction, layout);
    check_same(one.run(direction, layout, arguments), other.run(direction, layout, arguments));
  }
}

std::vector<float> floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

void state_layouts_agree(const Device& device) {
  for (Problem k_first : few_problems(device)) {
    Problem v_first = k_first;
    v_first.state_v_first = true;
    check_agree(device, k_first, v_first);
  }
}

void narrow_states_are_rounded_once(const Device& device) {
  for (const Problem& wide : few_problems(device)) {
    Problem narrow = wide;
    narrow.state_dtype = DType::bf16;
    Calls exact{device, Subject(wide)}, rounded{device, Subject(narrow)};
    for (Direction direction : kDirections) {
      CAPTURE(wide.op);
      CAPTURE(name_of(direction));
      Layout layout = layout_for(direction);
      Tensors arguments = rounded.subject.arguments(direction, layout);
      Tensors expected = exact.run(direction, layout, arguments);
      for (const char* name : {"final_state", "dinitial_state"})
        if (expected.contains(name)) expected[name] = rounded_to_bf16(expected[name]);
      check_same(rounded.run(direction, layout, arguments), expected);
    }
  }
}

void narrow_gates_are_read_exactly(const Device& device) {
  for (Gate gate : {Gate::pre, Gate::softplus}) {
    if (gate == Gate::pre && !is_thorough(device)) continue;
    Problem wide{.op = "kda", .key_dim = 24, .value_dim = 32, .gate = gate}, narrow = wide;
    narrow.gate_dtype = DType::bf16;
    Calls exact{device, Subject(wide)}, rounded{device, Subject(narrow)};
    for (Direction direction : kDirections) {
      CAPTURE(name_of(direction));
      Layout layout = layout_for(direction);
      Tensors arguments = rounded.subject.arguments(direction, layout);
      Tensors expected = exact.run(direction, layout, arguments);
      if (expected.contains("dg")) expected["dg"] = rounded_to_bf16(expected["dg"]);
      check_same(rounded.run(direction, layout, arguments), expected);
    }
  }
}

void optional_states_may_be_absent(const Device& device) {
  for (const Problem& problem : few_problems(device)) {
    Calls calls{device, Subject(problem)};
    for (Direction direction : kDirections) {
      CAPTURE(problem.op);
      CAPTURE(name_of(direction));
      Layout layout = layout_for(direction);
      Tensors arguments = calls.subject.arguments(direction, layout);
      for (const char* name : {"initial_state", "dfinal_state"})
        if (arguments.contains(name)) arguments[name].assign(arguments[name].size(), 0);
      Tensors expected = calls.run(direction, layout, arguments);
      arguments.erase("initial_state");
      arguments.erase("dfinal_state");
      check_same(calls.run(direction, layout, arguments), expected);

      // Whatever is not asked for changes nothing else.
      for (const ArgumentInfo& info : calls.subject.build(device, direction).arguments()) {
        if (!info.is_output || !info.is_optional || !expected.contains(info.name)) continue;
        CAPTURE(info.name);
        Tensors fewer = expected;
        fewer.erase(info.name);
        check_same(calls.run(direction, layout, arguments, {.left_out = {info.name}}), fewer);
      }
    }
  }
}

void states_are_those_of_prefixes(const Device& device) {
  for (bool v_first : {false, true}) {
    Calls calls{
        device,
        Subject(
            {.op = "gated_delta_rule", .key_dim = 24, .value_dim = 20, .state_v_first = v_first})};
    Layout layout{1, 2, {130, 0, 64, 7}};
    Tensors arguments = calls.subject.arguments(Direction::forward, layout);
    for (int64_t every : {16, 32, 64}) {
      CAPTURE(every);
      auto states = calls.run(Direction::forward, layout, arguments,
                              {.states_every = every, .gap = 3})["states"];
      std::vector<double> expected;
      for (size_t s = 0; s < layout.lengths.size(); ++s)
        for (int64_t first = 0; first < layout.lengths[s]; first += every) {
          Layout own = select(layout, {s}), prefix{1, 2, {first}};
          Tensors some =
              calls.subject.tokens(calls.subject.select(arguments, layout, {s}), own, 0, first);
          auto state = calls.run(Direction::forward, prefix, some)["final_state"];
          expected.insert(expected.end(), state.begin(), state.end());
        }
      check_same({{"states", states}}, {{"states", expected}});
    }
  }
}

void gaps_between_rows_do_not_matter(const Device& device) {
  for (const Problem& problem : few_problems(device)) {
    Calls calls{device, Subject(problem)};
    for (Direction direction : kDirections) {
      CAPTURE(problem.op);
      CAPTURE(name_of(direction));
      Layout layout = layout_for(direction);
      Tensors arguments = calls.subject.arguments(direction, layout);
      Tensors dense = calls.run(direction, layout, arguments);
      check_same(calls.run(direction, layout, arguments, {.gap = 5}), dense);
    }
  }
}

void packed_qkv_is_read_in_place(const Device& device) {
  constexpr int64_t B = 3, T = 21, H = 2, D = 24;
  Calls calls{device, Subject({.op = "linear_attention", .key_dim = D, .value_dim = D})};
  Layout layout{H, H, {T, T, T}};
  Tensors arguments = calls.subject.arguments(Direction::forward, layout);
  arguments.erase("initial_state");
  Tensors expected = calls.run(Direction::forward, layout, arguments);

  std::vector<float> packed(B * T * 3 * H * D), o(B * T * H * D), state(B * H * D * D);
  const char* names[] = {"q", "k", "v"};
  for (int64_t which = 0; which < 3; ++which) {
    const auto& values = arguments.at(names[which]);
    for (int64_t i = 0; i < B * T * H * D; ++i)
      packed[i / (H * D) * 3 * H * D + which * H * D + i % (H * D)] = static_cast<float>(values[i]);
  }
  Arrays arrays(device);
  float *there = arrays.send(packed), *o_there = arrays.send(o), *state_there = arrays.send(state);
  std::vector<Argument> given;
  for (int64_t which = 0; which < 3; ++which) {
    Tensor view = Tensor::dense(there + which * H * D, DType::f32, {B, T, H, D});
    view.strides = {T * 3 * H * D, 3 * H * D, D, 1};
    given.emplace_back(names[which], view);
  }
  given.emplace_back("scale", static_cast<float>(arguments.at("scale")[0]));
  given.emplace_back("o", Tensor::dense(o_there, DType::f32, {B, T, H, D}));
  given.emplace_back("final_state", Tensor::dense(state_there, DType::f32, {B, H, D, D}));
  calls.subject.build(device, Direction::forward).run(given);
  arrays.receive(o, o_there);
  arrays.receive(state, state_there);
  CHECK(o == floats(expected["o"]));
  CHECK(state == floats(expected["final_state"]));
}

void batch_equals_packing(const Device& device) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    if (dtype == DType::bf16 && !is_thorough(device)) continue;
    Calls calls{device, Subject({.op = "kda", .key_dim = 24, .value_dim = 32, .dtype = dtype})};
    for (Direction direction : kDirections) {
      CAPTURE(name_of(direction));
      int64_t length = direction == Direction::decode ? 2 : 37;
      Layout layout{1, 2, {length, length, length}};
      Tensors arguments = calls.subject.arguments(direction, layout);
      Tensors packed = calls.run(direction, layout, arguments);
      check_same(calls.run(direction, layout, arguments, {.batch = true}), packed);
      check_same(calls.run(direction, layout, arguments, {.batch = true, .gap = 3}), packed);
      check_same(calls.run(direction, layout, arguments, {.int32_offsets = true}), packed);
    }
  }
}

namespace {

// Decode of 4 sequences whose states are rows of a pool of 6; the second is left out.
void check_pool(const Device& device, const Subject& subject, bool wide_slots) {
  const Problem& p = subject.problem;
  Layout layout{2, 2, {2, 2, 2, 2}};
  Tensors arguments = subject.arguments(Direction::decode, layout);
  Op op = subject.build(device, Direction::decode);
  Tensors expected = check::call(op, layout, arguments);

  const std::vector<int64_t> slots = {4, -1, 0, 2};
  const std::vector<int32_t> narrow_slots(slots.begin(), slots.end());
  const int64_t state = layout.value_heads * p.key_dim * p.value_dim,
                row = 2 * layout.value_heads * p.value_dim;
  std::vector<float> pool(6 * state, 77), o(4 * row, 55);
  auto initial = floats(arguments.at("initial_state")), final = floats(expected.at("final_state")),
       outputs = floats(expected.at("o"));
  std::vector<float> pool_after = pool, o_after = o;
  for (int64_t s = 0; s < 4; ++s) {
    if (slots[s] < 0) continue;
    std::copy_n(initial.begin() + s * state, state, pool.begin() + slots[s] * state);
    std::copy_n(final.begin() + s * state, state, pool_after.begin() + slots[s] * state);
    std::copy_n(outputs.begin() + s * row, row, o_after.begin() + s * row);
  }
  Arrays arrays(device);
  std::vector<ArgumentInfo> infos = op.arguments();
  std::vector<Argument> given;
  for (const ArgumentInfo& info : infos) {
    if (!arguments.contains(info.name) || info.name == "initial_state") continue;
    auto values = floats(arguments.at(info.name));
    if (info.name == "scale")
      given.emplace_back("scale", values[0]);
    else if (info.shape == "[B, T, HV]")
      given.emplace_back(info.name, Tensor::dense(arrays.send(values), DType::f32, {4, 2, 2}));
    else
      given.emplace_back(info.name,
                         Tensor::dense(arrays.send(values), DType::f32,
                                       {4, 2, 2, static_cast<int64_t>(values.size()) / 16}));
  }
  float *o_there = arrays.send(o), *pool_there = arrays.send(pool);
  given.emplace_back("o", Tensor::dense(o_there, DType::f32, {4, 2, 2, p.value_dim}));
  given.emplace_back("state",
                     Tensor::dense(pool_there, DType::f32, {6, 2, p.key_dim, p.value_dim}));
  given.emplace_back("slots", wide_slots
                                  ? Tensor::dense(arrays.send(slots), DType::i64, {4})
                                  : Tensor::dense(arrays.send(narrow_slots), DType::i32, {4}));
  op.run(given);
  arrays.receive(o, o_there);
  arrays.receive(pool, pool_there);
  CHECK(o == o_after);
  CHECK(pool == pool_after);
}

}  // namespace

void decode_updates_its_pool_in_place(const Device& device) {
  for (const char* op : {"kda", "gated_delta_rule"})
    for (int64_t value_dim : {20, 32}) {
      if (!is_thorough(device) && value_dim == (op == std::string("kda") ? 20 : 32)) continue;
      CAPTURE(op);
      CAPTURE(value_dim);
      Subject subject({.op = op, .key_dim = 24, .value_dim = value_dim});
      check_pool(device, subject, true);
      check_pool(device, subject, false);
    }
  // Without slots row n is sequence n's, in every layout and format of states.
  for (bool v_first : {false, true})
    for (DType dtype : {DType::f32, DType::bf16}) {
      if (!is_thorough(device) && v_first != (dtype == DType::bf16)) continue;
      Calls calls{device, Subject({.op = "kda",
                                   .key_dim = 24,
                                   .value_dim = 32,
                                   .state_dtype = dtype,
                                   .state_v_first = v_first})};
      Layout layout = layout_for(Direction::decode);
      Tensors arguments = calls.subject.arguments(Direction::decode, layout);
      check_same(calls.run(Direction::decode, layout, arguments, {.state_pool = true}),
                 calls.run(Direction::decode, layout, arguments));
    }
}

void workspace_may_be_the_callers(const Device& device) {
  Subject subject({.op = "simple_gla", .key_dim = 16, .value_dim = 16});
  Op op = subject.build(device, Direction::forward);
  std::vector<float> x(10 * 16), g(10), o(10 * 16, 9), again(10 * 16, 8);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * static_cast<float>(i % 17);
  Arrays arrays(device);
  Tensor wide = Tensor::dense(arrays.send(x), DType::f32, {1, 10, 1, 16});
  float *g_there = arrays.send(g), *o_there = arrays.send(o), *again_there = arrays.send(again);
  auto arguments = [&](float* to) {
    return std::vector<Argument>{{"q", wide},
                                 {"k", wide},
                                 {"v", wide},
                                 {"g", Tensor::dense(g_there, DType::f32, {1, 10, 1})},
                                 {"o", Tensor::dense(to, DType::f32, {1, 10, 1, 16})}};
  };
  op.run(arguments(o_there));
  size_t bytes = op.workspace_bytes(arguments(again_there));
  std::vector<char> workspace(bytes + 64, 0x5a);
  char* workspace_there = arrays.send(workspace);
  op.run(arguments(again_there), {.workspace = workspace_there + 1, .workspace_bytes = bytes});
  arrays.receive(o, o_there);
  arrays.receive(again, again_there);
  arrays.receive(workspace, workspace_there);
  CHECK(o == again);
  CHECK(workspace[0] == 0x5a);
  for (size_t i = bytes + 1; i < workspace.size(); ++i) REQUIRE(workspace[i] == 0x5a);
  CHECK_THROWS_WITH_AS(
      op.run(arguments(o_there), {.workspace = workspace_there, .workspace_bytes = bytes - 1}),
      doctest::Contains("workspace: expected at least"), UserError);
}

}  // namespace linnet::conformance
