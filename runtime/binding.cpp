#include "runtime/binding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace linnet {

namespace {

[[noreturn]] void refuse(std::string_view name, const std::string& expected,
                         const std::string& given) {
  throw UserError(fmt::format("{}: expected {}, got {}", name, expected, given));
}

const char* state_axes(const Problem& problem) { return problem.state_v_first ? "VK" : "KV"; }

// The axes of an argument as letters: B batch, T tokens, H heads, U value heads (HV), N sequences,
// K and V channels. Short enough that no string of them needs memory.
std::string axes_of(const KernelArgument& a, const Problem& problem) {
  std::string axes;
  if (a.scope == ArgumentScope::token) axes = a.key_heads ? "BTH" : "BTU";
  if (a.scope == ArgumentScope::sequence) axes = "NU";
  if (a.scope == ArgumentScope::head) axes = "U";
  if (a.axes == "kv") return axes + state_axes(problem);
  for (char letter : a.axes) axes += letter == 'k' ? 'K' : 'V';
  return axes;
}

std::string letters(const std::string& axes) {
  std::vector<std::string> names;
  for (char axis : axes) names.push_back(axis == 'U' ? "HV" : std::string(1, axis));
  return fmt::format("[{}]", fmt::join(names, ", "));
}

}  // namespace

// Optional: states that start from zero or are not asked for, and gradients nobody wants.
bool is_optional(const KernelArgument& a) {
  return a.scope == ArgumentScope::sequence || a.scope == ArgumentScope::constant ||
         (a.is_output && a.name.starts_with("d"));
}

std::string shape_text(const KernelArgument& argument, const Problem& problem) {
  return letters(axes_of(argument, problem));
}

std::vector<ArgumentInfo> common_arguments(const Problem& problem, Direction direction) {
  auto state_shape = [&](const char* axes) {
    return letters(axes + std::string(state_axes(problem)));
  };
  std::vector<ArgumentInfo> infos = {{"cu_seqlens", "[N + 1]", DType::i64, false, true}};
  if (direction == Direction::decode) {
    infos.push_back({"state", state_shape("NU"), problem.state_dtype, true, true});
    infos.push_back({"slots", "[N]", DType::i64, false, true});
  }
  if (direction == Direction::forward) {
    infos.push_back({"states", state_shape("SU"), DType::f32, true, true});
    infos.push_back({"states_every", "[]", DType::f32, false, true});
  }
  return infos;
}

// Checks one call; sizes are fixed by the first argument that has them.
class Binder {
 public:
  Binder(Binding& binding, const Binding::Rules& rules, std::span<const Argument> given)
      : b_(binding), rules_(rules), problem_(rules.problem), given_(given) {}

  void bind() {
    if (rules_.arguments.size() > Binding::kMaxArguments)
      throw UserError(fmt::format("{}: expected at most {} arguments, got {}", problem_.op,
                                  Binding::kMaxArguments, rules_.arguments.size()));
    check_names();
    sizes_.fill(kUnknown);
    sizes_['K' - 'A'] = problem_.key_dim;
    sizes_['V' - 'A'] = problem_.value_dim;
    for (size_t i = 0; i < rules_.arguments.size(); ++i)
      if (rules_.arguments[i].scope == ArgumentScope::token) bind_tensor(i);
    bind_sequences();
    for (size_t i = 0; i < rules_.arguments.size(); ++i)
      if (rules_.arguments[i].scope != ArgumentScope::token) bind_tensor(i);
    bind_pool();
    bind_states();
  }

 private:
  const Argument* find(std::string_view name) const {
    for (const Argument& a : given_)
      if (a.name == name) return &a;
    return nullptr;
  }

  bool takes(std::string_view name) const {
    if (name == "cu_seqlens") return true;
    if (name == "state" || name == "slots") return rules_.direction == Direction::decode;
    if (name == "states" || name == "states_every") return rules_.direction == Direction::forward;
    return std::any_of(rules_.arguments.begin(), rules_.arguments.end(),
                       [&](const KernelArgument& a) { return a.name == name; });
  }

  void check_names() const {
    for (const Argument& a : given_) {
      if (!takes(a.name)) {
        std::string known = "cu_seqlens";
        for (const KernelArgument& k : rules_.arguments) known += ", " + k.name;
        refuse(a.name, "one of " + known, "an argument of another name");
      }
      if (&a != find(a.name)) refuse(a.name, "each argument once", "it twice");
    }
  }

  // The size an axis has in this call, or the one it gets now.
  bool fits(char axis, int64_t size) {
    int64_t& known = sizes_[axis - 'A'];
    if (known == kUnknown) known = size;
    return known == size;
  }
  std::string expected(DType dtype, const std::string& axes) const {
    std::vector<std::string> sizes;
    for (char axis : axes) {
      int64_t known = sizes_[axis - 'A'];
      sizes.push_back(known != kUnknown ? std::to_string(known)
                      : axis == 'U'     ? "HV"
                                        : std::string(1, axis));
    }
    return fmt::format("{} {} = [{}]", name_of(dtype), letters(axes), fmt::join(sizes, ", "));
  }

  static void check_address(std::string_view name, const Tensor& t) {
    if (!t.data) refuse(name, "a pointer", "null");
    if (reinterpret_cast<uintptr_t>(t.data) % size_of(t.dtype) != 0)
      refuse(name, fmt::format("an address that is a multiple of {}", size_of(t.dtype)),
             fmt::format("{}", t.data));
  }

  // Rank, format, sizes, strides and address of one tensor.
  void check(std::string_view name, const Tensor& t, DType dtype, const std::string& axes,
             bool dense_row, bool is_output) {
    if (t.rank < 0 || t.rank > Tensor::kMaxRank)
      refuse(name, fmt::format("a rank from 0 to {}", Tensor::kMaxRank), std::to_string(t.rank));
    bool fine = t.dtype == dtype && t.rank == static_cast<int>(axes.size());
    for (int i = 0; fine && i < t.rank; ++i) fine = t.shape[i] >= 0;
    for (int i = 0; fine && i < t.rank; ++i) fine = fits(axes[i], t.shape[i]);
    if (!fine) refuse(name, expected(dtype, axes), t.describe());
    int64_t numbers = 1, reach = 0;
    bool bounded = true;
    for (int i = 0; i < t.rank; ++i) {
      bounded &= !__builtin_mul_overflow(numbers, t.shape[i], &numbers);
      int64_t last;
      bounded &=
          !__builtin_mul_overflow(std::max<int64_t>(0, t.shape[i] - 1), t.strides[i], &last) &&
          last != std::numeric_limits<int64_t>::min() &&  // has no absolute value
          !__builtin_add_overflow(reach, std::abs(last), &reach);
      if (is_output && t.shape[i] > 1 && t.strides[i] == 0)
        refuse(name, "an output whose elements lie apart", fmt::format("stride 0 on axis {}", i));
    }
    if (!bounded || reach > std::numeric_limits<int64_t>::max() / 16)
      refuse(name, "a tensor that fits in memory", t.describe());
    if (dense_row && t.rank > 0 && t.shape[t.rank - 1] > 1 && t.strides[t.rank - 1] != 1)
      refuse(name, "the last axis to be dense (stride 1)",
             fmt::format("stride {}", t.strides[t.rank - 1]));
    if (numbers == 0) return;
    check_address(name, t);
    if (rules_.on_gpu) check_alignment(name, t, axes);
  }

  // Rows are copied in pieces of up to 16 bytes, as wide as whole rows allow; a state is copied as
  // one matrix.
  static void check_alignment(std::string_view name, const Tensor& t, const std::string& axes) {
    bool is_state = t.rank == 4 && axes[3] != 'U' && axes[2] != 'H' && axes[2] != 'U';
    if (is_state && t.shape[2] > 1 && t.strides[2] != t.shape[3])
      refuse(name, "the matrix of a state without gaps on this device",
             fmt::format("stride {} on axis 2", t.strides[2]));
    auto width = static_cast<int64_t>(size_of(t.dtype));
    if (t.rank == 4 && !is_state) width = std::gcd<int64_t>(t.shape[3] * width, 16);
    if (reinterpret_cast<uintptr_t>(t.data) % width != 0)
      refuse(name, fmt::format("an address that is a multiple of {} on this device", width),
             fmt::format("{}", t.data));
    auto size = static_cast<int64_t>(size_of(t.dtype));
    for (int i = 0; i + 1 < t.rank && !is_state; ++i)
      if (t.shape[i] > 1 && t.strides[i] * size % width != 0)
        refuse(name,
               fmt::format("strides of a multiple of {} numbers on this device", width / size),
               fmt::format("stride {} on axis {}", t.strides[i], i));
  }

  void bind_tensor(size_t i) {
    const KernelArgument& a = rules_.arguments[i];
    BoundTensor& to = b_.tensors_[i];
    const Argument* given = find(a.name);
    if (!given) {
      if (a.name == "scale") to.number = 1 / std::sqrt(static_cast<float>(problem_.key_dim));
      if (!is_optional(a) || (a.scope == ArgumentScope::constant && a.name != "scale"))
        refuse(a.name, expected(a.result, axes_of(a, problem_)), "nothing");
      return;
    }
    if (a.scope == ArgumentScope::constant) return bind_number(*given, to);
    if (given->is_number) refuse(a.name, "a tensor", fmt::format("the number {}", given->number));
    const Tensor& t = given->tensor;
    std::string axes = axes_of(a, problem_);
    check(a.name, t, a.result, axes, !a.axes.empty(), a.is_output);
    to.data = static_cast<char*>(t.data);
    if (a.scope == ArgumentScope::token)
      to.batch_step = t.strides[0], to.row_step = t.strides[1], to.head_step = t.strides[2];
    if (a.scope == ArgumentScope::sequence)
      to.batch_step = t.strides[0], to.head_step = t.strides[1], to.row_step = t.strides[2];
    if (a.scope == ArgumentScope::head) to.head_step = t.strides[0], to.row_step = t.strides[0];
  }

  static void bind_number(const Argument& given, BoundTensor& to) {
    to.number = given.number;
    if (!given.is_number) {
      if (given.tensor.rank != 0 || given.tensor.dtype != DType::f32)
        refuse(given.name, "a number, or an f32 tensor of rank 0", given.tensor.describe());
      check_address(given.name, given.tensor);
      to.number = *static_cast<const float*>(given.tensor.data);
    }
    if (!std::isfinite(to.number))
      refuse(given.name, "a finite number", fmt::format("{}", to.number));
  }

  int64_t size(char axis, int64_t otherwise) const {
    int64_t known = sizes_[axis - 'A'];
    return known == kUnknown ? otherwise : known;
  }

  void bind_sequences() {
    int64_t batch = size('B', 0);
    b_.batch_tokens_ = size('T', 0);
    b_.value_heads = size('U', size('H', 1));
    b_.heads = size('H', b_.value_heads);
    fits('U', b_.value_heads);
    if (b_.heads < 1 || b_.value_heads < 1 || b_.value_heads % b_.heads != 0)
      refuse("v", "value heads HV to be a multiple of the heads H of q and k, both at least 1",
             fmt::format("HV = {}, H = {}", b_.value_heads, b_.heads));
    if (__builtin_mul_overflow(batch, b_.batch_tokens_, &b_.tokens))
      refuse("q", "B x T to fit in 64 bits", fmt::format("{} x {}", batch, b_.batch_tokens_));
    b_.sequences = batch;
    if (const Argument* given = find("cu_seqlens")) bind_offsets(*given, batch);
    fits('N', b_.sequences);
    for (int64_t s = 0; s < b_.sequences && !rules_.on_gpu; ++s) {
      b_.longest = std::max(b_.longest, b_.length(s));
      if (b_.is_batch()) break;
    }
  }

  const Tensor& integers(const Argument& given, int64_t least) const {
    const Tensor& t = given.tensor;
    bool fine = !given.is_number && t.rank == 1 && (t.dtype == DType::i32 || t.dtype == DType::i64);
    if (!fine || t.shape[0] < least)
      refuse(given.name, fmt::format("i32 or i64 [n], n >= {}", least),
             given.is_number ? "a number" : t.describe());
    if (t.shape[0] > 0) check_address(given.name, t);
    if (rules_.on_gpu && t.shape[0] > 1 && t.strides[0] != 1)
      refuse(given.name, "integers without gaps on this device",
             fmt::format("stride {}", t.strides[0]));
    return t;
  }

  void bind_offsets(const Argument& given, int64_t batch) {
    const Tensor& t = integers(given, 1);
    if (batch != 1)
      refuse("cu_seqlens", "B = 1, all sequences packed into one row",
             fmt::format("B = {}", batch));
    int64_t count = t.shape[0] - 1;
    b_.cu_seqlens_ = t;
    b_.sequences = count;
    if (rules_.on_gpu) return;  // its numbers are on the device
    if (Binding::integer(t, 0) != 0)
      refuse("cu_seqlens", "0 first", std::to_string(Binding::integer(t, 0)));
    for (int64_t s = 0; s < count; ++s)
      if (Binding::integer(t, s + 1) < Binding::integer(t, s))
        refuse("cu_seqlens", "numbers that do not fall",
               fmt::format("{} after {} at position {}", Binding::integer(t, s + 1),
                           Binding::integer(t, s), s + 1));
    if (Binding::integer(t, count) != b_.batch_tokens_)
      refuse("cu_seqlens", fmt::format("the last to be T = {}", b_.batch_tokens_),
             std::to_string(Binding::integer(t, count)));
  }

  // Decode: one tensor of states that is read and written, rows chosen by slot.
  void bind_pool() {
    const Argument* state = find("state");
    const Argument* slots = find("slots");
    if (!state && slots) refuse("slots", "the argument state with it", "slots alone");
    if (!state) return;
    if (find("initial_state") || find("final_state"))
      refuse("state", "it alone, or initial_state and final_state", "both");
    if (state->is_number) refuse("state", "a tensor", "a number");
    std::string axes = std::string(slots ? "PU" : "NU") + state_axes(problem_);
    check("state", state->tensor, problem_.state_dtype, axes, true, true);
    for (size_t i = 0; i < rules_.arguments.size(); ++i) {
      if (rules_.arguments[i].scope != ArgumentScope::sequence) continue;
      const Tensor& t = state->tensor;
      b_.tensors_[i] = {static_cast<char*>(t.data), t.strides[0], t.strides[1], t.strides[2]};
    }
    if (slots) bind_slots(*slots, state->tensor.shape[0]);
  }

  void bind_slots(const Argument& given, int64_t rows) {
    const Tensor& t = integers(given, 0);
    if (t.shape[0] != b_.sequences)
      refuse("slots", fmt::format("one for each of {} sequences", b_.sequences), t.describe());
    b_.slots_ = t;
    for (int64_t s = 0; s < b_.sequences && !rules_.on_gpu; ++s) {
      int64_t slot = Binding::integer(t, s);
      if (slot >= rows || slot < -1)
        refuse("slots", fmt::format("-1 (left out) or a row of state, below {}", rows),
               fmt::format("{} at position {}", slot, s));
      for (int64_t other = 0; slot >= 0 && other < s; ++other)
        if (Binding::integer(t, other) == slot)
          refuse("slots", "a row for each sequence of its own",
                 fmt::format("{} at positions {} and {}", slot, other, s));
    }
  }

  void bind_states() {
    const Argument* states = find("states");
    const Argument* every = find("states_every");
    if (!states) {
      if (every) refuse("states_every", "the argument states with it", "states_every alone");
      return;
    }
    if (every && !every->is_number) refuse("states_every", "a number", "a tensor");
    float wish = every ? every->number : 64;
    if (!(wish >= 1 && wish < 1e9f) || std::fmod(wish, static_cast<float>(rules_.chunk)) != 0)
      refuse("states_every", fmt::format("a multiple of the chunk, {} tokens", rules_.chunk),
             fmt::format("{}", wish));
    b_.states_every = static_cast<int64_t>(wish);
    if (states->is_number) refuse("states", "a tensor", "a number");
    // Lengths that are on the device are not known here: the caller knows how many states there
    // are.
    if (!rules_.on_gpu || b_.is_batch()) fits('S', b_.first_state(b_.sequences));
    check("states", states->tensor, DType::f32, std::string("SU") + state_axes(problem_), true,
          true);
    const Tensor& t = states->tensor;
    b_.states_count = t.shape[0];
    b_.states = {static_cast<char*>(t.data), t.strides[0], t.strides[1], t.strides[2]};
  }

  Binding& b_;
  const Binding::Rules& rules_;
  const Problem& problem_;
  std::span<const Argument> given_;
  static constexpr int64_t kUnknown = -1;
  std::array<int64_t, 26> sizes_;  // by letter
};

Binding::Binding(const Rules& rules, std::span<const Argument> given) {
  Binder(*this, rules, given).bind();
}

int64_t Binding::integer(const Tensor& t, int64_t index) {
  index *= t.strides[0];
  return t.dtype == DType::i32 ? static_cast<const int32_t*>(t.data)[index]
                               : static_cast<const int64_t*>(t.data)[index];
}

int64_t Binding::slot(int64_t sequence) const {
  return slots_.data ? integer(slots_, sequence) : sequence;
}

int64_t Binding::first_state(int64_t sequence) const {
  int64_t count = 0;
  for (int64_t s = 0; s < sequence; ++s) count += (length(s) + states_every - 1) / states_every;
  return count;
}

}  // namespace linnet
