// Random argument sets, valid ones and spoilt ones: a call works within its memory, or is refused
// with a message that names the argument.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "linnet/device.h"
#include "tests/runtime/guarded_memory.h"

using namespace linnet;

namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t count) { return static_cast<int64_t>(engine_() % count); }
  bool one_in(int64_t count) { return below(count) == 0; }
  float uniform() { return static_cast<float>(engine_() >> 40) * 0x1p-24f; }
  template <class T>
  T of(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<int64_t>(list.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

void put(void* data, DType type, int64_t index, float x) {
  if (type == DType::f32) static_cast<float*>(data)[index] = x;
  if (type == DType::f16) static_cast<_Float16*>(data)[index] = static_cast<_Float16>(x);
  if (type == DType::bf16)
    static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
}

float get(const void* data, DType type, int64_t index) {
  if (type == DType::f32) return static_cast<const float*>(data)[index];
  if (type == DType::f16) return static_cast<float>(static_cast<const _Float16*>(data)[index]);
  return std::bit_cast<float>(static_cast<uint32_t>(static_cast<const uint16_t*>(data)[index])
                              << 16);
}

// One set of arguments in guarded memory.
class ArgumentSet {
 public:
  ArgumentSet(const Op& op, Random& random, std::deque<GuardedMemory>& memory)
      : op_(op), random_(random), memory_(memory) {
    heads_ = 1 + random.below(2);
    value_heads_ = random.one_in(12) ? 3 : heads_ * (1 + random.below(2));
    packed_ = random.one_in(2);
    batch_ = packed_ ? 1 : random.below(3);
    tokens_ = random.one_in(8) ? 0 : 1 + random.below(35);
    sequences_ = packed_ ? (tokens_ == 0 ? random.below(3) : 1 + random.below(4)) : batch_;
    pool_ = op.direction() == Direction::decode && random.one_in(2);
    keeps_states_ = op.direction() == Direction::forward && random.one_in(3);
    if (packed_) add_offsets();
    for (const ArgumentInfo& info : op.arguments()) add(info);
  }

  std::vector<Argument> arguments;
  RunOptions options;
  std::deque<std::string> names;  // of arguments
  bool renamed = false;           // an output, full of NaN, may have become an input

  // What the call was to write and is not finite.
  std::string not_finite() const {
    for (const Argument& a : arguments) {
      if (!outputs_.contains(std::string(a.name)) || a.is_number) continue;
      const Tensor& t = a.tensor;
      int64_t count = 1;
      for (int i = 0; i < t.rank; ++i) count *= t.shape[i];
      for (int64_t n = 0; n < count; ++n) {
        int64_t at = 0, rest = n;
        for (int i = t.rank; i-- > 0; rest /= t.shape[i]) at += rest % t.shape[i] * t.strides[i];
        if (!std::isfinite(get(t.data, t.dtype, at))) return std::string(a.name);
      }
    }
    return "";
  }

  Argument& any() { return arguments[random_.below(static_cast<int64_t>(arguments.size()))]; }
  Argument* find(std::string_view name) {
    for (Argument& a : arguments)
      if (a.name == name) return &a;
    return nullptr;
  }

 private:
  int64_t size_of_axis(const std::string& axis) const {
    const Problem& p = op_.problem();
    if (axis == "N" && pool_) return sequences_ + 2;
    return axis == "B"    ? batch_
           : axis == "T"  ? tokens_
           : axis == "H"  ? heads_
           : axis == "HV" ? value_heads_
           : axis == "N"  ? sequences_
           : axis == "S"  ? states_
           : axis == "K"  ? p.key_dim
                          : p.value_dim;
  }

  void* place(int64_t bytes) {
    if (next_ == memory_.size()) memory_.emplace_back(1 << 17);
    return memory_[next_++].place(bytes, random_.one_in(2));
  }

  Tensor make(const std::string& shape, DType dtype) {
    Tensor t{.dtype = dtype};
    std::string word;
    for (char letter : shape) {
      if (std::isalpha(letter)) word += letter;
      if ((letter != ',' && letter != ']') || word.empty()) continue;
      t.shape[t.rank++] = size_of_axis(word);
      word.clear();
    }
    int64_t count = 1;
    for (int i = t.rank; i-- > 0; count *= t.shape[i]) t.strides[i] = count;
    t.data = place(count * size_of(dtype));
    return t;
  }

  void fill(const std::string& name, const Tensor& t, bool is_output) {
    int64_t count = 1;
    for (int i = 0; i < t.rank; ++i) count *= t.shape[i];
    bool gate = name == "g" || name == "A_log";
    for (int64_t i = 0; i < count; ++i)
      put(t.data, t.dtype, i,
          is_output ? (pool_ ? 0.f : NAN)
                    : (gate ? -1.f : 1.f) * 0.3f * (random_.uniform() - (gate ? 0.f : 0.5f)));
  }

  void add(const ArgumentInfo& info) {
    const std::string& name = info.name;
    if (name == "cu_seqlens") return;
    if (name == "scale") return void(arguments.emplace_back("scale", 0.25f));
    if (name == "slots") return pool_ ? add_slots() : void();
    if (name == "states_every") return;
    if (name == "states") return keeps_states_ ? add_states(info) : void();
    bool state = name == "initial_state" || name == "final_state";
    if (name == "state" ? !pool_ : (pool_ && state)) return;
    if (info.is_optional && random_.one_in(3) && name != "state") return;
    Tensor t = make(info.shape, info.dtype);
    bool is_output = info.is_output && name != "state";
    fill(name, t, is_output);
    names.push_back(name);
    if (is_output) outputs_.insert(name);
    arguments.emplace_back(names.back(), t);
  }

  void add_offsets() {
    auto* offsets = static_cast<int32_t*>(place(4 * (sequences_ + 1)));
    offsets[0] = 0;
    for (int64_t s = 1; s <= sequences_; ++s)
      offsets[s] =
          s == sequences_
              ? static_cast<int32_t>(tokens_)
              : offsets[s - 1] + static_cast<int32_t>(random_.below(tokens_ - offsets[s - 1] + 1));
    arguments.emplace_back("cu_seqlens", Tensor::dense(offsets, DType::i32, {sequences_ + 1}));
    offsets_ = offsets;
  }

  void add_slots() {
    auto* slots = static_cast<int64_t*>(place(8 * sequences_));
    for (int64_t s = 0; s < sequences_; ++s) slots[s] = sequences_ - s;  // each once, 0 left over
    arguments.emplace_back("slots", Tensor::dense(slots, DType::i64, {sequences_}));
  }

  void add_states(const ArgumentInfo& info) {
    for (int64_t s = 0; s < sequences_; ++s)
      states_ += ((packed_ ? offsets_[s + 1] - offsets_[s] : tokens_) + 15) / 16;
    Tensor t = make(info.shape, info.dtype);
    fill("states", t, true);
    outputs_.insert("states");
    arguments.emplace_back("states", t);
    arguments.emplace_back("states_every", 16.f);
  }

  const Op& op_;
  Random& random_;
  std::deque<GuardedMemory>& memory_;
  size_t next_ = 0;
  int64_t heads_, value_heads_, batch_, tokens_, sequences_, states_ = 0;
  const int32_t* offsets_ = nullptr;
  bool packed_, pool_, keeps_states_;
  std::set<std::string> outputs_;
};

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(),
                  kMost = std::numeric_limits<int64_t>::max();

void spoil_rank(ArgumentSet& set, Random& random) {
  set.any().tensor.rank = static_cast<int>(random.of<int64_t>({-1, 0, 1, 2, 3, 4, 5, 100}));
}
void spoil_dtype(ArgumentSet& set, Random& random) {
  DType& dtype = set.any().tensor.dtype;
  if (dtype != DType::i32) dtype = static_cast<DType>(random.below(7));  // the last two are none
}
// Strides that reach memory no tensor can have, or none at all. Others are for the caller to know.
void spoil_stride(ArgumentSet& set, Random& random) {
  Tensor& t = set.any().tensor;
  if (t.rank < 1 || t.rank > 4 || t.dtype == DType::i32 || t.dtype == DType::i64) return;
  int64_t axis = random.below(t.rank);
  t.strides[axis] = random.of({kLeast, kMost, int64_t{1} << 61, int64_t{0}, -(int64_t{1} << 60)});
}
void spoil_row(ArgumentSet& set, Random& random) {
  Tensor& t = set.any().tensor;
  if (t.rank == 4) t.strides[3] = random.of<int64_t>({0, 2, -1, 16});
}
void spoil_size(ArgumentSet& set, Random& random) {
  Tensor& t = set.any().tensor;
  if (t.rank < 1 || t.rank > 4 || t.dtype == DType::i32 || t.dtype == DType::i64) return;
  int64_t& size = t.shape[random.below(t.rank)];
  size = random.of({size + 1, size - 1, int64_t{0}, int64_t{-1}, kLeast, kMost, int64_t{1} << 40});
}
void swap_axes(ArgumentSet& set, Random& random) {
  Tensor& t = set.any().tensor;
  if (t.rank == 4) std::swap(t.shape[2], t.shape[3]);
}
void spoil_pointer(ArgumentSet& set, Random& random) {
  Tensor& t = set.any().tensor;
  t.data = random.one_in(2) ? nullptr : static_cast<char*>(t.data) + 1;
}
void spoil_integers(ArgumentSet& set, Random& random) {
  for (const char* name : {"cu_seqlens", "slots"}) {
    Argument* a = set.find(name);
    if (!a || a->is_number || !a->tensor.data || a->tensor.rank != 1 || a->tensor.shape[0] < 1)
      continue;
    if (reinterpret_cast<uintptr_t>(a->tensor.data) % 8 % (a->name == "slots" ? 8 : 4)) continue;
    int64_t at = random.below(a->tensor.shape[0]);
    int64_t value = random.of<int64_t>({-1, -2, 1, 2, 1000, 1 << 30, -(1 << 30)});
    if (a->name == "slots")
      static_cast<int64_t*>(a->tensor.data)[at] = value;
    else
      static_cast<int32_t*>(a->tensor.data)[at] = static_cast<int32_t>(value);
  }
}
void shorten_integers(ArgumentSet& set, Random& random) {
  for (const char* name : {"cu_seqlens", "slots"})
    if (Argument* a = set.find(name)) a->tensor.shape[0] = random.below(a->tensor.shape[0] + 1);
}
void drop(ArgumentSet& set, Random& random) {
  set.arguments.erase(set.arguments.begin() +
                      random.below(static_cast<int64_t>(set.arguments.size())));
}
void rename(ArgumentSet& set, Random& random) {
  set.names.push_back(random.of<const char*>(
      {"qq", "", "Q", "state", "slots", "states", "states_every", "do", "q", "initial_state"}));
  set.any().name = set.names.back();
  set.renamed = true;
}
void repeat(ArgumentSet& set, Random&) {
  Argument again = set.any();
  set.arguments.push_back(again);
}
void spoil_number(ArgumentSet& set, Random& random) {
  Argument& a = random.one_in(2) && set.find("scale") ? *set.find("scale") : set.any();
  a.is_number = !random.one_in(3);
  a.number = random.of({NAN, INFINITY, -INFINITY, 0.f, -1.f, 7.f, 48.f, 1e30f});
}
void spoil_workspace(ArgumentSet& set, Random& random) {
  static char memory[64];
  set.options = {.workspace = memory, .workspace_bytes = static_cast<size_t>(random.below(64))};
}

using Spoil = void (*)(ArgumentSet&, Random&);
const Spoil kSpoils[] = {spoil_rank, spoil_dtype,   spoil_stride,   spoil_row,        spoil_size,
                         swap_axes,  spoil_pointer, spoil_integers, shorten_integers, drop,
                         rename,     repeat,        spoil_number,   spoil_workspace};

// The part before the first colon is an argument's name, and "expected" follows.
bool is_clear(const std::string& message, const Op& op, const ArgumentSet& set) {
  std::set<std::string> names = {"workspace"};
  for (const ArgumentInfo& info : op.arguments()) names.insert(info.name);
  for (const Argument& a : set.arguments) names.insert(std::string(a.name));
  size_t colon = message.find(':');
  return colon != std::string::npos && names.contains(message.substr(0, colon)) &&
         message.find("expected", colon) != std::string::npos;
}

struct Tally {
  int succeeded = 0, refused = 0;
};

void run_one(const Op& op, uint64_t seed, std::deque<GuardedMemory>& memory, Tally& tally) {
  Random random(seed);
  ArgumentSet set(op, random, memory);
  int64_t spoils = random.below(4);
  for (int64_t i = 0; i < spoils && !set.arguments.empty(); ++i)
    kSpoils[random.below(std::size(kSpoils))](set, random);
  CAPTURE(seed);
  CAPTURE(op.problem().op);
  try {
    if (random.one_in(4)) op.workspace_bytes(set.arguments);
    op.run(set.arguments, set.options);
    ++tally.succeeded;
    if (!set.renamed) CHECK(set.not_finite() == "");
  } catch (const UserError& error) {
    ++tally.refused;
    CHECK_MESSAGE(is_clear(error.what(), op, set), std::string(error.what()));
  } catch (const std::exception& error) {
    FAIL_CHECK("neither a result nor a UserError: ", std::string(error.what()));
  }
}

std::vector<Op> fuzzed_ops(const Device& device) {
  std::vector<Op> ops;
  auto add = [&](const Problem& problem, Direction direction) {
    ops.push_back(device.build(problem, {.direction = direction}));
  };
  add({.op = "kda", .key_dim = 16, .value_dim = 16}, Direction::forward);
  add({.op = "gated_delta_rule", .key_dim = 12, .value_dim = 20, .dtype = DType::bf16},
      Direction::forward);
  add({.op = "kda", .key_dim = 12, .value_dim = 20, .gate = Gate::softplus}, Direction::backward);
  add({.op = "rwkv6", .key_dim = 16, .value_dim = 16, .state_v_first = true}, Direction::backward);
  add({.op = "gated_delta_rule", .key_dim = 12, .value_dim = 16}, Direction::decode);
  add({.op = "kda", .key_dim = 12, .value_dim = 20, .state_dtype = DType::bf16}, Direction::decode);
  return ops;
}

}  // namespace

TEST_CASE("cpu: 12,000 random argument sets each work within their memory or are refused clearly") {
  constexpr uint64_t kSets = 12'000;
  Device device = Device::open("cpu", {.threads = 2});
  std::vector<Op> ops = fuzzed_ops(device);
  std::deque<GuardedMemory> memory;
  Tally tally;
  for (uint64_t seed = 0; seed < kSets; ++seed)
    run_one(ops[seed % ops.size()], seed, memory, tally);
  // Neither kind is rare.
  CHECK(tally.succeeded > static_cast<int>(kSets) / 4);
  CHECK(tally.refused > static_cast<int>(kSets) / 4);
  MESSAGE(tally.succeeded, " ran, ", tally.refused, " were refused");
}

TEST_CASE("build: problems that cannot be are refused by name, before anything is compiled") {
  struct Wrong {
    std::string name;
    std::function<void(Problem&, BuildOptions&)> spoil;
  };
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<Wrong> wrongs = {
      {"op", [](Problem& p, BuildOptions&) { p.op = "attention"; }},
      {"op", [](Problem& p, BuildOptions&) { p.op = ""; }},
      {"gate", [](Problem& p, BuildOptions&) { p.op = "delta_rule", p.gate = Gate::softplus; }},
      {"beta", [](Problem& p, BuildOptions&) { p.op = "gla", p.beta = Beta::sigmoid; }},
      {"chunk", [](Problem&, BuildOptions& o) { o.direction = Direction::decode, o.chunk = 16; }},
  };
  for (int64_t size : {int64_t{0}, int64_t{-1}, int64_t{1025}, kLeast, kMost}) {
    wrongs.push_back({"key_dim", [=](Problem& p, BuildOptions&) { p.key_dim = size; }});
    wrongs.push_back({"value_dim", [=](Problem& p, BuildOptions&) { p.value_dim = size; }});
  }
  for (float bound : {0.f, -5.01f, 1.f, nan, INFINITY, -INFINITY})
    wrongs.push_back({"lower_bound", [=](Problem& p, BuildOptions&) {
                        p.gate = Gate::bounded, p.lower_bound = bound;
                      }});
  for (float bound : {-5.01f, 1.f, nan, -INFINITY})
    wrongs.push_back({"lower_bound", [=](Problem& p, BuildOptions&) { p.lower_bound = bound; }});
  for (int64_t chunk : {int64_t{-1}, int64_t{17}, int64_t{40}, int64_t{512}, kLeast, kMost})
    wrongs.push_back({"chunk", [=](Problem&, BuildOptions& o) { o.chunk = chunk; }});
  for (DType type : {DType::i32, DType::i64, static_cast<DType>(9)}) {
    wrongs.push_back({"dtype", [=](Problem& p, BuildOptions&) { p.dtype = type; }});
    wrongs.push_back({"gate_dtype", [=](Problem& p, BuildOptions&) { p.gate_dtype = type; }});
    wrongs.push_back({"state_dtype", [=](Problem& p, BuildOptions&) { p.state_dtype = type; }});
  }
  wrongs.push_back({"target_cpu", [](Problem&, BuildOptions& o) { o.target_cpu = "pentagon"; }});

  Device device = Device::open("cpu", {.threads = 1});
  for (Direction direction : {Direction::forward, Direction::backward, Direction::decode})
    for (const Wrong& wrong : wrongs) {
      Problem problem{.op = "kda", .key_dim = 16, .value_dim = 16};
      BuildOptions options{.direction = direction};
      wrong.spoil(problem, options);
      CAPTURE(wrong.name);
      std::string message = "nothing thrown";
      try {
        device.build(problem, options);
      } catch (const UserError& error) {
        message = error.what();
      }
      CAPTURE(message);
      CHECK(message.starts_with(wrong.name + ":"));
      CHECK(message.find("expected") != std::string::npos);
    }
}
