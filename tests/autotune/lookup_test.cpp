// Which schedule a call takes.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>

#include "autotune/store.h"
#include "linnet/device.h"
#include "linnet/error.h"
#include "runtime/tuning/table.h"
#include "tests/autotune/support.h"

using namespace linnet;
using namespace linnet::autotune;

namespace {

const Problem kKda{.op = "kda"};
constexpr ShapeClass kShort{Width::many, Length::short_}, kMedium{Width::many, Length::medium},
    kLong{Width::many, Length::long_}, kFewLong{Width::few, Length::long_};

Problem with_gate(Gate gate) {
  Problem problem = kKda;
  problem.gate = gate;
  if (gate == Gate::bounded) problem.lower_bound = -5;
  return problem;
}

ScheduleTable table(std::vector<std::vector<TuningEntry>> files,
                    DeviceKind kind = DeviceKind::cpu) {
  std::vector<TuningFile> list;
  for (auto& entries : files) list.push_back({"", "", std::move(entries)});
  return ScheduleTable(kind, list);
}

}  // namespace

TEST_CASE("lookup: lengths have classes, never values") {
  CHECK(length_of(0) == Length::short_);
  CHECK(length_of(511) == Length::short_);
  CHECK(length_of(512) == Length::medium);
  CHECK(length_of(4095) == Length::medium);
  CHECK(length_of(4096) == Length::long_);
  CHECK(length_of(1 << 30) == Length::long_);
}

TEST_CASE("lookup: a shape's own entry, else the nearest, else the default") {
  auto t = table({{entry(kKda, {.chunk = 32}, kShort), entry(kKda, {.chunk = 64}, kLong)}});
  Schedules found = t.find(kKda, Direction::forward);
  CHECK(found.at(kShort).chunk == 32);
  CHECK(found.at(kLong).chunk == 64);
  CHECK(found.at(kMedium).chunk == 32);
  CHECK(found.at(kFewLong).chunk == 64);
  CHECK(t.find(kKda, Direction::backward).at(kShort).chunk == 16);
  CHECK(t.find(kKda, Direction::decode).at(kShort).chunk == 1);
  Problem other = kKda;
  other.value_dim = 64;
  CHECK(t.find(other, Direction::forward).at(kShort).chunk == 16);
  other = kKda;
  other.dtype = DType::f16;
  CHECK(t.find(other, Direction::forward).at(kShort).chunk == 16);
  other = kKda;
  other.op = "gla";
  CHECK(t.find(other, Direction::forward).at(kShort).chunk == 16);
}

TEST_CASE("lookup: two gate modes of an op hold schedules of their own; others are as they were") {
  auto t = table({{entry(with_gate(Gate::pre), {.chunk = 32}),
                   entry(with_gate(Gate::softplus), {.chunk = 64})}});
  CHECK(t.find(with_gate(Gate::pre), Direction::forward).at(kMedium).chunk == 32);
  CHECK(t.find(with_gate(Gate::softplus), Direction::forward).at(kMedium).chunk == 64);
  CHECK(t.find(with_gate(Gate::bounded), Direction::forward).at(kMedium).chunk == 16);
}

TEST_CASE("lookup: the user's file overrides the shipped one, shape by shape") {
  auto t = table({{entry(kKda, {.chunk = 64}, kLong)},
                  {entry(kKda, {.chunk = 32}, kLong), entry(kKda, {.chunk = 8}, kShort)}});
  Schedules found = t.find(kKda, Direction::forward);
  CHECK(found.at(kLong).chunk == 64);
  CHECK(found.at(kShort).chunk == 8);
}

TEST_CASE("lookup: on a GPU all shapes add their sums in one order") {
  auto t = table({{entry(kKda, {.chunk = 16}, kLong), entry(kKda, {.chunk = 64}, kShort),
                   entry(kKda, {.chunk = 16, .value_block = 16}, kFewLong)}},
                 DeviceKind::gpu);
  Schedules found = t.find(kKda, Direction::forward);
  CHECK(found.at(kShort) == found.at(kLong));
  CHECK(found.at(kFewLong).value_block == 16);
}

TEST_CASE("lookup: on a GPU the user's order of sums holds for shapes only the shipped file has") {
  Schedule cut{.chunk = 16, .segment = 1024}, shipped{.chunk = 16, .value_block = 32};
  auto found = table({{entry(kKda, cut, kFewLong)}, {entry(kKda, shipped, kLong)}}, DeviceKind::gpu)
                   .find(kKda, Direction::forward);
  for (ShapeClass shape : {kFewLong, kLong, kShort}) CHECK(found.at(shape).segment == 1024);
  CHECK(found.at(kLong) == cut);
  // One that agrees stays.
  Schedule agrees = cut;
  agrees.value_block = 32;
  auto both = table({{entry(kKda, cut, kFewLong)}, {entry(kKda, agrees, kLong)}}, DeviceKind::gpu)
                  .find(kKda, Direction::forward);
  CHECK(both.at(kLong) == agrees);
  CHECK(both.at(kFewLong) == cut);
}

TEST_CASE("lookup: costs at most 5 microseconds, with a thousand entries too") {
  std::vector<TuningEntry> entries;
  for (int i = 0; i < 1000; ++i)
    entries.push_back(entry({.op = "op" + std::to_string(i)}, {.chunk = 32}));
  auto t = table({entries});
  constexpr int kTimes = 20000;
  Problem last{.op = "op999"}, missing{.op = "none"};
  int64_t sum = 0;
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimes; ++i)
    sum += t.find(i % 2 ? last : missing, Direction::forward).at(kMedium).chunk;
  std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  CHECK(sum == kTimes / 2 * (32 + 16));
  MESSAGE("microseconds a lookup: ", (taken.count() / kTimes));
  CHECK(taken.count() / kTimes < 5);
}

TEST_CASE("lookup: what is shipped is found by architecture, the nearest older GPU included") {
  auto cpu = shipped_tuning(DeviceKind::cpu, cpu_architecture());
  REQUIRE(cpu);
  CHECK(cpu->architecture == "cpu");
  CHECK(cpu->made_by.starts_with("linnet tune"));
  for (auto [arch, expected] : {std::pair{"sm_80 108 SMs", "sm_80"},
                                {"sm_86 84 SMs", "sm_80"},
                                {"sm_89 142 SMs", "sm_89"},
                                {"sm_90 78 SMs", "sm_90"},
                                {"sm_103 148 SMs", "sm_100"},
                                {"sm_121 48 SMs", "sm_120"}}) {
    CAPTURE(arch);
    auto file = shipped_tuning(DeviceKind::gpu, arch);
    REQUIRE(file);
    CHECK(file->architecture.starts_with(expected));
    CHECK_FALSE(file->entries.empty());
    CHECK(file->made_by.starts_with("linnet tune "));
    for (const TuningEntry& e : file->entries) CHECK(e.how == "modelled");
    // What it says is what a call takes.
    Problem kda{.op = "kda", .dtype = DType::bf16};
    for (const TuningEntry& e : file->entries)
      if (e.key == TuningKey(kda, Direction::forward))
        CHECK(ScheduleTable(DeviceKind::gpu, {*file}).find(kda, Direction::forward).at(e.shape) ==
              e.schedule);
  }
  CHECK_FALSE(shipped_tuning(DeviceKind::gpu, "sm_70 80 SMs"));
}
