// Devices and ops as a caller opens and builds them.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "linnet/device.h"

using namespace linnet;

TEST_CASE("runtime: a device nobody knows is refused by name") {
  for (const char* name : {"", "gpu", "CPU", "cpu "})
    CHECK_THROWS_WITH_AS(Device::open(name), doctest::Contains("device: expected cpu"), UserError);
}

TEST_CASE("runtime: threads below zero, or more than a machine has sense for, are refused") {
  for (int threads : {-1, -1000, 4097, 1 << 30})
    CHECK_THROWS_WITH_AS(Device::open("cpu", {.threads = threads}),
                         doctest::Contains("threads: expected"), UserError);
  CHECK(Device::open("cpu", {.threads = 3}).threads() == 3);
}

TEST_CASE("runtime: an op nobody knows is refused with the names of those there are") {
  Device device = Device::open("cpu", {.threads = 1});
  CHECK_THROWS_WITH_AS(device.build({.op = "softmax"}), doctest::Contains("op: expected one of"),
                       UserError);
  CHECK_THROWS_WITH_AS(device.build({.op = "softmax"}), doctest::Contains("kda"), UserError);
}

TEST_CASE("runtime: buffers are aligned, and an op outlives its device") {
  std::vector<Op> ops;
  {
    Device device = Device::open("cpu", {.threads = 2});
    for (size_t bytes : {0, 1, 63, 64, 1000}) {
      Buffer buffer = device.allocate(bytes);
      CHECK(buffer.bytes() == bytes);
      CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
    }
    ops.push_back(device.build({.op = "linear_attention", .key_dim = 16, .value_dim = 16}));
  }
  std::vector<float> ones(5 * 16, 1), o(5 * 16);
  Tensor wide = Tensor::dense(ones.data(), DType::f32, {1, 5, 1, 16});
  ops[0].run({{"q", wide},
              {"k", wide},
              {"v", wide},
              {"scale", 1.f},
              {"o", Tensor::dense(o.data(), DType::f32, {1, 5, 1, 16})}});
  for (int t = 0; t < 5; ++t) CHECK(o[t * 16] == 16.f * static_cast<float>(t + 1));
}

TEST_CASE("runtime: a pool of OpenMP's threads runs every task once") {
  if (!dlopen("libgomp.so.1", RTLD_NOW)) {
    MESSAGE("no libgomp.so.1 here");
    return;
  }
  constexpr int64_t kTasks = 1000;
  struct Counts {
    std::atomic<int> done[kTasks] = {}, busy[3] = {}, wrong = 0;
  } counts;
  auto pool = openmp_pool(3);
  REQUIRE(pool);
  auto task = [](void* context, int64_t index, int worker) {
    auto& c = *static_cast<Counts*>(context);
    if (worker < 0 || worker >= 3 || c.busy[worker]++ != 0) ++c.wrong;
    ++c.done[index];
    --c.busy[worker];
  };
  for (int64_t tasks : {kTasks, int64_t{2}, int64_t{1}, int64_t{0}})
    pool->run(tasks, task, &counts);
  for (int64_t i = 0; i < kTasks; ++i) CHECK(counts.done[i] == (i == 0 ? 3 : i == 1 ? 2 : 1));
  CHECK(counts.wrong == 0);
  // In a forked process OpenMP's threads are gone.
  pid_t child = fork();
  if (child == 0) _exit(openmp_pool(3) ? 1 : 0);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("runtime: four threads call one op at a time, with its workspaces and later kernels") {
  constexpr int64_t kShort = 20, kLong = 600;  // the long one is split, which takes another kernel
  Device device = Device::open("cpu", {.threads = 2});
  Op op = device.build({.op = "linear_attention", .key_dim = 16, .value_dim = 32});
  std::atomic<int> wrong = 0;
  auto call = [&](int64_t tokens) {
    std::vector<float> ones(tokens * 32, 1), o(tokens * 32);
    Tensor key = Tensor::dense(ones.data(), DType::f32, {1, tokens, 1, 16}),
           value = Tensor::dense(ones.data(), DType::f32, {1, tokens, 1, 32});
    op.run({{"q", key},
            {"k", key},
            {"v", value},
            {"scale", 1.f},
            {"o", Tensor::dense(o.data(), DType::f32, {1, tokens, 1, 32})}});
    for (int64_t i = 0; i < tokens * 32; ++i)
      wrong += o[i] != 16.f * static_cast<float>(i / 32 + 1);
  };
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int run = 0; run < 25; ++run) call((t + run) % 3 == 0 ? kLong : kShort);
      });
  }
  CHECK(wrong == 0);
}

namespace {

constexpr size_t kMega = 1000 * 1000;

// Of 65,536 tokens of KDA.
size_t workspace_of(Direction direction, int threads, int64_t heads) {
  constexpr int64_t kTokens = 65536;
  Device device = Device::open("cpu", {.threads = threads});
  Op op = device.build({.op = "kda", .key_dim = 128, .value_dim = 128}, {.direction = direction});
  float somewhere = 0;  // nothing is read
  auto tensor = [&](std::initializer_list<int64_t> shape) {
    return Tensor::dense(&somewhere, DType::f32, shape);
  };
  Tensor rows = tensor({1, kTokens, heads, 128}), beta = tensor({1, kTokens, heads}),
         state = tensor({1, heads, 128, 128});
  std::vector<Argument> arguments = {{"q", rows}, {"k", rows},    {"v", rows},
                                     {"g", rows}, {"beta", beta}, {"scale", 1.f}};
  if (direction == Direction::forward) {
    arguments.insert(arguments.end(), {{"o", rows}, {"final_state", state}});
  } else {
    arguments.insert(arguments.end(), {{"do", rows}, {"dq", rows}, {"dk", rows}, {"dv", rows}});
    arguments.insert(arguments.end(), {{"dg", rows}, {"dbeta", beta}});
  }
  return op.workspace_bytes(arguments);
}

}  // namespace

// Whole heads in turn, or one head in parts (docs/cpu.md): neither keeps what grows with the
// length.
TEST_CASE("runtime: a forward of 65,536 tokens needs at most 64 MB beside its arguments") {
  for (int64_t heads : {8, 1}) CHECK(workspace_of(Direction::forward, 2, heads) <= 64 * kMega);
}

// A backward pass keeps what grows with the length: of the head that each thread is at, or of all
// heads that are in parts.
TEST_CASE("runtime: a backward of 65,536 tokens in parts needs little more than on one thread") {
  size_t one = workspace_of(Direction::backward, 1, 1);
  CHECK(one > 400 * kMega);
  CHECK(workspace_of(Direction::backward, 2, 1) < one + 96 * kMega);
  CHECK(workspace_of(Direction::backward, 16, 1) < one + 100 * kMega);
}
