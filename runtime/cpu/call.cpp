#include "runtime/cpu/call.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "linnet/error.h"

namespace linnet {

namespace {

// A split sequence is in work a window of chunks at a time: at most so many of all heads together,
// at least so many of each. Where cores share no cache 512 are 8 % faster than 64.
constexpr int64_t kWindowChunks = 512, kLeastWindow = 16;
constexpr int64_t kWindows = 8;    // of a sequence at least, so that maps fill threads beside scans
constexpr int64_t kMapChunks = 4;  // of a window, what one task of a parallel loop takes
constexpr int64_t kMostEntries = 8;    // of a kernel
constexpr int64_t kTasks = 8;          // for each thread, if there is enough to do
constexpr int64_t kSplitTokens = 512;  // a shorter sequence is not worth splitting

void store(float x, char* to, DType type) {
  if (type == DType::f32) {
    *reinterpret_cast<float*>(to) = x;
  } else if (type == DType::f16) {
    *reinterpret_cast<_Float16*>(to) = static_cast<_Float16>(x);
  } else {
    uint32_t bits = std::bit_cast<uint32_t>(x);
    bool nan = (bits & 0x7fffffff) > 0x7f800000;
    bits = nan ? 0x7fc00000 : bits + 0x7fff + (bits >> 16 & 1);
    *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(bits >> 16);
  }
}

bool has_values(const KernelArgument& a) { return a.axes.find('v') != std::string::npos; }

// The first of some tasks are long: they come at equal distances, so that every worker's share
// starts with some of them. If that is one each, every second worker comes to its own last: the
// others use more memory, and less of it at a time if not all workers are at them.
int64_t spread(int64_t index, int64_t first, int64_t tasks, int64_t workers) {
  if (first == 0) return index;
  auto start = [&](int64_t share) { return (share * tasks + first - 1) / first; };
  int64_t before = index * first / tasks;
  if (first == workers && before % 2 == 1)
    index = index + 1 < start(before + 1) ? index + 1 : start(before);
  bool is_first = index == start(before);
  return is_first ? before : first + index - before - 1;
}

}  // namespace

size_t CpuCall::reserve(int64_t bytes) {
  size_t at = bytes_;
  bytes_ += (bytes + 63) / 64 * 64;
  return at;
}

int64_t CpuCall::row_of(const KernelArgument& argument) const {
  int64_t numbers = 1;
  for (char axis : argument.axes)
    numbers *= axis == 'k' ? op_.problem.key_dim : op_.problem.value_dim;
  return numbers;
}

int64_t CpuCall::chunks_of(int64_t sequence) const {
  int64_t chunk = kernels_for(sequence).whole->kernel.chunk;
  return (binding_.length(sequence) + chunk - 1) / chunk;
}

CpuCall::CpuCall(const CpuOp& op, const Binding& binding)
    : op_(op), binding_(binding), pool_(*op.pool_), arguments_(op.main_->kernel.arguments) {
  group_ = binding.value_heads / binding.heads;
  grouped_ = op.has_grouped_outputs_ && group_ != 1;
  for (int64_t s = 0; s < binding.sequences; ++s) {
    Kernels& kernels = kernels_for(s);
    if (!kernels.whole) load(kernels, length_of(binding.length(s)));
    if (!kernels.split && is_split(s)) load_split(kernels, length_of(binding.length(s)));
  }

  const Problem& problem = op.problem;
  int64_t workers = pool_.workers(), widest = std::max(problem.key_dim, problem.value_dim) + 64;
  int64_t dump = 0, scratch = 0, chunks = 0;
  for (const Kernels& kernels : kernels_) {
    if (!kernels.whole) continue;
    const CpuKernel& whole = kernels.whole->kernel;
    // The plain recurrence works where the final state goes, so that needs a place even if nobody
    // wants it.
    if (whole.chunk == 1) {
      dump = problem.key_dim * problem.value_dim;
      dump_row_ = problem.state_v_first ? problem.key_dim : problem.value_dim;
    }
    scratch = std::max(scratch, whole.scratch_floats);
    if (kernels.split) scratch = std::max(scratch, kernels.split->kernel.scratch_floats);
  }
  int64_t kept = 0, passed = 0, carried = 0, most_chunks = 0;  // of split sequences, of one head
  for (int64_t s = 0; s < binding.sequences; ++s) {
    const Kernels& kernels = kernels_for(s);
    if (!is_split(s)) {
      chunks = std::max(chunks, chunks_of(s) * tile_floats(kernels.whole->kernel));
      continue;
    }
    const CpuKernel& split = kernels.split->kernel;
    any_split_ = true;
    most_chunks = std::max(most_chunks, chunks_of(s));
    kept = std::max(kept, chunks_of(s) * split.kept_floats);
    passed = std::max(passed, kernels.windows * kernels.window * split.passed_floats);
    carried = std::max(carried, std::ssize(split.entries) * split.carried_floats);
  }
  zeros_ = reserve(widest * 4);
  constants_ = reserve(arguments_.size() * 4);
  places_ = reserve(arguments_.size() * sizeof(Place));
  dump_bytes_ = (std::max(widest, dump) * 4 + 63) / 64 * 64;
  dumps_ = reserve(workers * dump_bytes_);
  scratch_bytes_ = (scratch * 4 + 127) / 64 * 64;
  scratch_ = reserve(workers * scratch_bytes_);
  chunks_bytes_ = (chunks * 4 + 63) / 64 * 64;
  chunks_ = reserve(workers * chunks_bytes_);
  if (any_split_) {
    kept_ = reserve(binding.value_heads * kept * 4);
    passed_ = reserve(binding.value_heads * passed * 4);
    carries_ = reserve(binding.value_heads * carried * 4);
  }
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const KernelArgument& a = arguments_[i];
    if (!a.is_output) continue;
    if (a.scope == ArgumentScope::head)
      of_chunks_[i] = reserve(most_chunks * binding.value_heads * row_of(a) * 4);
    if (!binding[i].data) continue;
    if (a.scope == ArgumentScope::head)
      partial_[i] = reserve(binding.sequences * binding.value_heads * row_of(a) * 4);
    if (a.scope == ArgumentScope::token && a.key_heads && grouped_)
      partial_[i] = reserve(binding.tokens * binding.value_heads * row_of(a) * 4);
  }
}

void CpuCall::load(Kernels& kernels, Length length) {
  CpuRequest request = op_.request_;
  request.schedule = op_.schedule_for(length, binding_.states_every);
  request.grouped = grouped_;
  kernels.whole = op_.variant(request);
}

void CpuCall::load_split(Kernels& kernels, Length length) {
  CpuRequest request = op_.request_;
  request.schedule = op_.schedule_for(length, binding_.states_every);
  request.schedule.fuse_stages = false;
  request.schedule.sink_products = true;
  request.grouped = grouped_;
  int64_t block = op_.problem.value_dim;
  while (block % 32 == 0 && op_.problem.value_dim / block * binding_.value_heads < pool_.workers())
    block /= 2;
  request.schedule.value_block = block;
  kernels.split = op_.variant(request);
  if (kernels.split->functions.size() > kMostEntries)
    throw InternalError(fmt::format("cpu: {} entries", kernels.split->functions.size()));
  for (const auto& entry : kernels.split->kernel.entries)
    kernels.windows = std::max(
        kernels.windows,
        std::ranges::count(kernels.split->kernel.entries, entry.pass, &CpuKernel::Entry::pass));
  int64_t chunks = binding_.longest / kernels.split->kernel.chunk;
  int64_t window = std::min(chunks / kWindows, kWindowChunks / binding_.value_heads);
  kernels.window = std::max(window, kLeastWindow);
  // States leave in step with the windows.
  if (int64_t every = binding_.states_every / kernels.split->kernel.chunk)
    kernels.window = (kernels.window + every - 1) / every * every;
}

// A sequence whose heads alone would keep too few threads busy. Splitting changes no bit, so it may
// depend on the other sequences and the threads.
bool CpuCall::is_split(int64_t sequence) const {
  int64_t threads = pool_.workers(), length = binding_.length(sequence);
  if (op_.direction == Direction::decode || threads == 1 || length < kSplitTokens) return false;
  // The plain recurrence has no maps, and blocks of value channels already.
  if (kernels_for(sequence).whole->kernel.chunk == 1) return false;
  bool even = binding_.sequences == 1 && binding_.value_heads % threads == 0;
  return !even && 2 * length * threads > binding_.tokens * binding_.value_heads;
}

template <class F>
void CpuCall::parallel(int64_t tasks, F& task) {
  pool_.run(
      tasks,
      [](void* context, int64_t index, int worker) { (*static_cast<F*>(context))(index, worker); },
      &task);
}

// Code for another processor may be compiled here, and kept in the cache, but not run.
void CpuCall::require_features() const {
  const std::string& target = op_.request_.target_cpu;
  for (const Kernels& kernels : kernels_)
    for (const LoadedKernel* kernel : {kernels.whole.get(), kernels.split.get()})
      if (kernel && !kernel->lacking.empty())
        throw DeviceError(
            fmt::format("cpu: code for {} needs {}, which this processor does not have",
                        target.empty() ? "this machine" : target, kernel->lacking));
}

void CpuCall::run(char* workspace) {
  require_features();
  memory_ = workspace;
  std::memset(memory_ + zeros_, 0, constants_ - zeros_);
  for (size_t i = 0; i < arguments_.size(); ++i)
    reinterpret_cast<float*>(memory_ + constants_)[i] = binding_[i].number;
  for (size_t i = 0; i < arguments_.size(); ++i)
    std::construct_at(reinterpret_cast<Place*>(memory_ + places_) + i, place_of(i));
  run_whole();
  if (any_split_)
    for (int64_t s = 0; s < binding_.sequences; ++s)
      if (is_split(s)) run_split(s);
  if (grouped_) sum_heads();
  sum_sequences();
}

// How many heads from this one on a single call of a kernel may take: those whose arguments lie at
// equal steps.
int64_t CpuCall::heads_together(const LoadedKernel& kernel, int64_t head) const {
  if (kernel.kernel.chunk > 1 || kernel.functions.size() > 1 || binding_.states.data) return 1;
  return group_ > 1 ? group_ - head % group_ : binding_.value_heads - head;
}

void CpuCall::run_whole() {
  int64_t heads = binding_.value_heads, count = 1;
  for (const Kernels& kernels : kernels_)
    if (kernels.whole) count = std::max(count, blocks(*kernels.whole));
  // One task takes all blocks of a head, unless there are too few heads; and neighbours, which lie
  // beside each other in memory, if there are many.
  int64_t items = binding_.sequences * heads;
  int64_t apart = items < 2 * pool_.workers() ? count : 1;
  int64_t together = std::max<int64_t>(1, items / (kTasks * pool_.workers()));
  // Returns how many items it took, at most `most`.
  auto item = [&](int64_t index, int64_t most, int worker) -> int64_t {
    int64_t sequence = index / apart / heads;
    if ((any_split_ && is_split(sequence)) || binding_.slot(sequence) < 0) return 1;
    Part part{sequence, index / apart % heads, 0, 0, binding_.length(sequence)};
    const LoadedKernel& kernel = *kernels_for(sequence).whole;
    auto* kept = reinterpret_cast<float*>(memory_ + chunks_ + worker * chunks_bytes_);
    Tiles tiles{kept, kept + chunks_of(sequence) * kernel.kernel.kept_floats};
    int64_t first = apart == 1 ? 0 : index % apart, own = blocks(kernel);
    if (apart == 1 && own == 1) part.heads = std::min(most, heads_together(kernel, part.head));
    for (part.block = first; part.block < std::min(own, apart == 1 ? own : first + 1); ++part.block)
      for (size_t entry = 0; entry < kernel.functions.size(); ++entry)
        call(kernel, entry, part, tiles, worker);
    return part.heads;
  };
  int64_t all = items * apart;
  auto task = [&](int64_t index, int worker) {
    int64_t end = std::min(all, (index + 1) * together);
    for (int64_t i = index * together; i < end;) i += item(i, end - i, worker);
  };
  parallel((all + together - 1) / together, task);
}

// Pass after pass; and what the chunks' results are summed to.
void CpuCall::run_split(int64_t sequence) {
  const auto& entries = kernels_for(sequence).split->kernel.entries;
  for (size_t first = 0, next; first < entries.size(); first = next) {
    for (next = first; next < entries.size() && entries[next].pass == entries[first].pass;) ++next;
    run_pass(sequence, first, next - first);
  }
  sum_chunks(sequence);
}

// Window after window, each entry one window behind the one before it: what goes from chunk to
// chunk, by heads and blocks of value channels; and beside it what the chunks of the next window
// need for themselves, or those of the last left, by chunks, which fills the time of threads that
// are done.
void CpuCall::run_pass(int64_t sequence, size_t first_entry, size_t entries) {
  const Kernels& kernels = kernels_for(sequence);
  const LoadedKernel& loaded = *kernels.split;
  const CpuKernel& kernel = loaded.kernel;
  int64_t heads = binding_.value_heads, all = binding_.length(sequence),
          tokens = kernels.window * kernel.chunk, count = static_cast<int64_t>(entries);
  int64_t kept = chunks_of(sequence) * kernel.kept_floats,
          passed = kernels.window * kernel.passed_floats;
  auto floats = [&](size_t at) { return reinterpret_cast<float*>(memory_ + at); };

  struct Work {
    size_t entry;
    int64_t first, length, parts, step, pieces, tasks;
    bool begins, ends;  // the sequence, for what is carried
    float* passed;
  };
  std::array<Work, kMostEntries> works;
  int64_t windows = (all + tokens - 1) / tokens;
  for (int64_t tick = 0; tick < windows + count - 1; ++tick) {
    int64_t used = 0, tasks = 0, serial = 0;
    auto add = [&](int64_t number, bool by_chunks) {
      int64_t turn = tick - number;
      const auto& entry = kernel.entries[first_entry + number];
      if (turn < 0 || turn >= windows || entry.parallel != by_chunks) return;
      int64_t first = (entry.backwards ? windows - 1 - turn : turn) * tokens;
      Work work{.entry = first_entry + number,
                .first = first,
                .length = std::min(tokens, all - first),
                .parts = by_chunks ? 1 : blocks(loaded),
                .begins = turn == 0,
                .ends = turn == windows - 1,
                .passed = floats(passed_) + turn % count * heads * passed};
      work.step = by_chunks ? kMapChunks * kernel.chunk : work.length;
      work.pieces = (work.length + work.step - 1) / work.step;
      tasks += work.tasks = heads * work.parts * work.pieces;
      if (!by_chunks) serial = tasks;
      works[used++] = work;
    };
    for (bool by_chunks : {false, true})
      for (int64_t number = count; number-- > 0;) add(number, by_chunks);
    auto task = [&](int64_t index, int worker) {
      index = spread(index, serial, tasks, pool_.workers());
      const Work* work = works.data();
      for (; index >= work->tasks; ++work) index -= work->tasks;
      int64_t piece = index % work->pieces, block = index / work->pieces % work->parts,
              head = index / work->pieces / work->parts;
      int64_t start = piece * work->step, first = work->first + start;
      Part part{sequence, head, block, first, std::min(work->step, work->length - start)};
      float* carry = floats(carries_) +
                     (static_cast<int64_t>(work->entry) * heads + head) * kernel.carried_floats;
      Tiles tiles{
          .kept = floats(kept_) + head * kept + first / kernel.chunk * kernel.kept_floats,
          .passed = work->passed + head * passed + start / kernel.chunk * kernel.passed_floats,
          .from = work->begins ? nullptr : carry,
          .to = work->ends ? nullptr : carry};
      call(loaded, work->entry, part, tiles, worker);
    };
    parallel(tasks, task);
  }
}

CpuCall::Place CpuCall::place_of(size_t i) const {
  const KernelArgument& a = arguments_[i];
  const BoundTensor& tensor = binding_[i];
  int64_t size = size_of(a.storage), numbers = row_of(a);
  Place place{.base = tensor.data};
  auto step = [&](Index index) -> int64_t& { return place.steps[index]; };
  if (a.scope == ArgumentScope::constant) {
    place.base = memory_ + constants_ + 4 * i;
  } else if (a.is_output && !tensor.data) {  // nobody wants it
    place.base = memory_ + dumps_;
    step(kWorker) = dump_bytes_;
    if (a.scope == ArgumentScope::sequence) place.row = dump_row_;
    if (a.scope == ArgumentScope::head) place.row = numbers;
  } else if (!tensor.data) {  // starts from zero
    place.base = memory_ + zeros_;
  } else if (a.scope == ArgumentScope::head && a.is_output) {  // summed over sequences later
    place = {memory_ + partial_[i], numbers};
    step(kHead) = numbers * 4;
    step(kSequence) = binding_.value_heads * numbers * 4;
  } else if (a.scope == ArgumentScope::token && a.is_output && a.key_heads && grouped_) {
    place = {memory_ + partial_[i], binding_.value_heads * numbers};  // summed over heads later
    step(kHead) = numbers * 4;
    step(kToken) = place.row * 4;
    if (binding_.is_batch()) step(kSequence) = binding_.batch_tokens() * place.row * 4;
  } else {
    bool is_token = a.scope == ArgumentScope::token, is_state = a.scope == ArgumentScope::sequence;
    place.row = a.scope == ArgumentScope::head ? numbers : tensor.row_step;
    step(is_token && a.key_heads ? kKeyHead : kHead) = tensor.head_step * size;
    if (has_values(a))
      step(kChannel) = (is_state && op_.problem.state_v_first ? tensor.row_step : 1) * size;
    if (is_token) step(kToken) = tensor.row_step * size;
    if (is_token && binding_.is_batch()) step(kSequence) = tensor.batch_step * size;
    if (is_state) step(kSlot) = tensor.batch_step * size;
  }
  return place;
}

void CpuCall::call(const LoadedKernel& kernel, size_t entry, const Part& part, const Tiles& tiles,
                   int worker) {
  std::array<int64_t, CpuKernel::kFirstArgument + 64 * CpuKernel::kArgumentSlots> slots;
  int64_t channel = part.block * kernel.kernel.value_block;
  slots[0] = part.tokens;
  slots[1] = std::bit_cast<int64_t>(memory_ + scratch_ + worker * scratch_bytes_);
  slots[2] = std::bit_cast<int64_t>(tiles.kept);
  slots[3] = slots[4] = slots[6] = 0;
  slots[5] = 1;
  slots[7] = part.heads;
  slots[8] = std::bit_cast<int64_t>(tiles.passed);
  slots[9] = std::bit_cast<int64_t>(tiles.from);
  slots[10] = std::bit_cast<int64_t>(tiles.to);
  slots[11] = channel;
  bool v_first = op_.problem.state_v_first;
  if (binding_.states.data) {
    const BoundTensor& states = binding_.states;
    int64_t at = binding_.first_state(part.sequence) + part.first / binding_.states_every;
    at = at * states.batch_step + part.head * states.head_step +
         channel * (v_first ? states.row_step : 1);
    slots[3] = std::bit_cast<int64_t>(states.data + at * 4);
    slots[4] = states.batch_step;
    slots[5] = binding_.states_every / kernel.kernel.chunk;
    slots[6] = states.row_step;
  }

  std::array<int64_t, kIndices> at;
  at[kSequence] = part.sequence;
  at[kSlot] = binding_.slot(part.sequence);
  at[kToken] = part.first + (binding_.is_batch() ? 0 : binding_.first_token(part.sequence));
  at[kHead] = part.head;
  at[kKeyHead] = group_ > 1 ? part.head / group_ : part.head;
  at[kChannel] = channel;
  at[kWorker] = worker;
  auto* places = reinterpret_cast<const Place*>(memory_ + places_);
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Place& place = places[i];
    int64_t* slot = &slots[CpuKernel::kFirstArgument + CpuKernel::kArgumentSlots * i];
    int64_t address = std::bit_cast<int64_t>(place.base);
    for (int index = 0; index < kIndices; ++index) address += at[index] * place.steps[index];
    slot[0] = address;
    slot[1] = place.row;
    slot[2] = place.steps[kHead] + (group_ > 1 ? 0 : place.steps[kKeyHead]);
    const KernelArgument& a = arguments_[i];
    if (kernel.functions.size() > 1 && a.scope == ArgumentScope::head && a.is_output)
      slot[0] = std::bit_cast<int64_t>(row_of_chunk(i, part));
  }
  kernel.functions[entry](slots.data());
}

float* CpuCall::row_of_chunk(size_t argument, const Part& part) const {
  const CpuKernel& kernel = kernels_for(part.sequence).split->kernel;
  int64_t chunk = part.head * chunks_of(part.sequence) + part.first / kernel.chunk;
  return reinterpret_cast<float*>(memory_ + of_chunks_[argument]) +
         chunk * row_of(arguments_[argument]);
}

// Gradients of what all tokens of a head share, from the last chunk back, as one loop adds them.
void CpuCall::sum_chunks(int64_t sequence) {
  int64_t chunks = chunks_of(sequence), heads = binding_.value_heads;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const KernelArgument& a = arguments_[i];
    if (!a.is_output || a.scope != ArgumentScope::head || !binding_[i].data) continue;
    int64_t row = row_of(a);
    for (int64_t head = 0; head < heads; ++head) {
      const float* from = row_of_chunk(i, {.sequence = sequence, .head = head});
      float* to = reinterpret_cast<float*>(memory_ + partial_[i]) + (sequence * heads + head) * row;
      std::fill_n(to, row, 0.f);
      for (int64_t chunk = chunks; chunk-- > 0;)
        for (int64_t n = 0; n < row; ++n) to[n] += from[chunk * row + n];
    }
  }
}

// Gradients of what several value heads share, always added in the same order.
void CpuCall::sum_heads() {
  constexpr int64_t kTokens = 64;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const KernelArgument& a = arguments_[i];
    const BoundTensor& to = binding_[i];
    if (!a.is_output || !a.key_heads || a.scope != ArgumentScope::token || !to.data) continue;
    int64_t row = row_of(a), per_sequence = binding_.sequences ? binding_.length(0) : 0;
    auto* partial = reinterpret_cast<const float*>(memory_ + partial_[i]);
    auto task = [&](int64_t index, int) {
      for (int64_t t = index * kTokens; t < std::min(binding_.tokens, (index + 1) * kTokens); ++t)
        for (int64_t h = 0; h < binding_.heads; ++h) {
          int64_t at = binding_.is_batch()
                           ? t / per_sequence * to.batch_step + t % per_sequence * to.row_step
                           : t * to.row_step;
          char* out = to.data + (at + h * to.head_step) * size_of(a.result);
          const float* from = partial + (t * binding_.value_heads + h * group_) * row;
          for (int64_t d = 0; d < row; ++d) {
            float sum = from[d];
            for (int64_t g = 1; g < group_; ++g) sum += from[g * row + d];
            store(sum, out + d * size_of(a.result), a.result);
          }
        }
    };
    parallel((binding_.tokens + kTokens - 1) / kTokens, task);
  }
}

// Gradients of what all sequences share.
void CpuCall::sum_sequences() {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const KernelArgument& a = arguments_[i];
    const BoundTensor& to = binding_[i];
    if (!a.is_output || a.scope != ArgumentScope::head || !to.data) continue;
    int64_t row = row_of(a), all = binding_.value_heads * row;
    auto* partial = reinterpret_cast<const float*>(memory_ + partial_[i]);
    for (int64_t n = 0; n < all; ++n) {
      float sum = 0;
      for (int64_t s = 0; s < binding_.sequences; ++s) sum += partial[s * all + n];
      store(sum, to.data + (n / row * to.head_step + n % row) * size_of(a.result), a.result);
    }
  }
}

}  // namespace linnet
