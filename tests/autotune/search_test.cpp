// The search, on times that are made up.
#include <doctest/doctest.h>

#include "autotune/search.h"
#include "linnet/error.h"
#include "tests/autotune/support.h"

using namespace linnet;
using namespace linnet::autotune;

namespace {

std::vector<Schedule> space() {
  std::vector<Schedule> all;
  for (int64_t vectors : {2, 1, 4})
    for (int64_t rows : {8, 4, 6, 12})
      for (int64_t chunk : {16, 1, 32, 64})
        all.push_back({.chunk = chunk, .register_rows = rows, .register_vectors = vectors});
  return all;
}

// A valley with its bottom at one schedule.
double valley(const Schedule& s, const Schedule& bottom) {
  auto away = [](int64_t a, int64_t b) {
    double x = std::log2(static_cast<double>(a) / static_cast<double>(b));
    return x * x;
  };
  return 1 + 0.3 * away(s.chunk, bottom.chunk) + 0.2 * away(s.register_rows, bottom.register_rows) +
         0.1 * away(s.register_vectors, bottom.register_vectors);
}

}  // namespace

TEST_CASE("search: finds the optimum, wherever it is") {
  for (const Schedule& bottom : space()) {
    CAPTURE(bottom.describe());
    MadeUp times([&](const Schedule& s) { return valley(s, bottom); });
    SearchResult result = search(space(), times, nullptr, {});
    CHECK(result.best.schedule == bottom);
    CHECK(result.complete);
    CHECK(result.best.ratio == doctest::Approx(1 / valley(space()[0], bottom)));
    CHECK(result.trials.size() == space().size());
  }
}

TEST_CASE("search: finds it in noise of five percent, whatever the noise is") {
  const Schedule bottom{.chunk = 32, .register_rows = 6};
  for (unsigned seed = 1; seed <= 50; ++seed) {
    MadeUp times([&](const Schedule& s) { return valley(s, bottom); }, 0.05, seed);
    SearchResult result = search(space(), times, nullptr, {});
    CHECK(valley(result.best.schedule, bottom) < 1.04);
  }
}

TEST_CASE("search: the same measurements give the same schedule") {
  auto run = [](unsigned seed) {
    MadeUp times([](const Schedule& s) { return valley(s, {.chunk = 64, .register_rows = 4}); },
                 0.1, seed);
    return search(space(), times, nullptr, {}).best;
  };
  for (unsigned seed : {1u, 2u, 3u}) {
    Trial a = run(seed), b = run(seed);
    CHECK(a.schedule == b.schedule);
    CHECK(a.ratio == b.ratio);
  }
}

TEST_CASE("search: of schedules within the noise, the first of the space is taken, every time") {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    MadeUp times([](const Schedule&) { return 1; }, 0.02, seed);
    CHECK(search(space(), times, nullptr, {}).best.rank == 0);
  }
  // In noise that no number of runs here averages away, luck wins now and then, not as a rule.
  int stays = 0;
  for (unsigned seed = 1; seed <= 50; ++seed) {
    MadeUp times([](const Schedule&) { return 1; }, 0.1, seed);
    stays += search(space(), times, nullptr, {}).best.rank == 0;
  }
  CHECK(stays >= 45);
  // One percent better is not better.
  MadeUp nearly([](const Schedule& s) { return s.chunk == 32 ? 0.99 : 1; });
  CHECK(search(space(), nearly, nullptr, {}).best.rank == 0);
  MadeUp better([](const Schedule& s) { return s.chunk == 32 ? 0.9 : 1; });
  CHECK(search(space(), better, nullptr, {}).best.schedule ==
        Schedule{.chunk = 32, .register_rows = 8});
}

TEST_CASE("search: any two searches in noise choose schedules within three percent") {
  // Several schedules near the best, and one that is a little more than a tie away from it.
  auto formula = [](const Schedule& s) {
    double best = s.chunk == 1 && s.register_rows == 4 && s.register_vectors == 4 ? 0.968 : 1;
    return (s.chunk == 1 ? 0.9 : 1 + 0.01 * static_cast<double>(s.chunk)) * best *
           (1 + 0.004 * static_cast<double>(s.register_rows % 5));
  };
  for (double noise : {0.02, 0.04, 0.08}) {
    double least = 1e9, most = 0;
    for (unsigned seed = 1; seed <= 100; ++seed) {
      MadeUp times(formula, noise, seed);
      double chosen = formula(search(space(), times, nullptr, {}).best.schedule);
      least = std::min(least, chosen);
      most = std::max(most, chosen);
    }
    CAPTURE(noise);
    CHECK(most < 1.03 * least);
  }
}

TEST_CASE("search: schedules that do not run are passed over, and said so") {
  MadeUp times([](const Schedule& s) { return s.register_rows == 6 ? -1 : 1 + s.chunk / 64.; });
  SearchResult result = search(space(), times, nullptr, {});
  CHECK(result.best.schedule == Schedule{.chunk = 1, .register_rows = 8});
  int failed = 0;
  for (const Trial& t : result.trials) failed += t.error == "does not run";
  CHECK(failed == 12);
  MadeUp nothing([](const Schedule&) { return -1; });
  CHECK_THROWS_WITH_AS(search(space(), nothing, nullptr, {}),
                       "the default schedule cannot be measured: does not run", Error);
  CHECK(nothing.measurements == 1);  // it ends at once
}

TEST_CASE("search: without noise it walks to better neighbours and asks about no others") {
  const Schedule bottom{.chunk = 64, .register_rows = 4, .register_vectors = 1};
  MadeUp times([&](const Schedule& s) { return valley(s, bottom); });
  times.noisy = false;
  SearchResult result = search(space(), times, nullptr, {});
  CHECK(result.best.schedule == bottom);
  CHECK(result.complete);
  CHECK(result.trials.size() < space().size() / 2);
  // What is within a tie is not walked to: of each chunk that is near, the plain one and its
  // neighbours are all that is asked.
  MadeUp flat([](const Schedule& s) { return s.chunk == 64 ? 0.99 : s.chunk == 1 ? 3 : 1; });
  flat.noisy = false;
  result = search(space(), flat, nullptr, {});
  CHECK(result.best.rank == 0);
  CHECK(result.trials.size() == 4 + 3 * (3 + 2));
  // What is best may be far from the best plain chunk.
  const Schedule away{.chunk = 32, .register_rows = 4, .register_vectors = 1};
  MadeUp two([&](const Schedule& s) {
    return s.chunk == 32 ? 0.7 + 0.2 * away.fields_apart(s) : s.chunk == 16 ? 1 : 2;
  });
  two.noisy = false;
  CHECK(search(space(), two, nullptr, {}).best.schedule == away);
}

TEST_CASE("search: a default that may not win is still what others are held against") {
  MadeUp times([](const Schedule& s) { return s.chunk == 16 ? 1 : s.chunk == 32 ? 2 : 4; });
  SearchResult result = search(space(), times, nullptr, {.default_may_win = false});
  CHECK(result.best.rank != 0);
  std::vector<Schedule> two = {space()[0], {.chunk = 64}, {.chunk = 32}};
  result = search(two, times, nullptr, {.default_may_win = false});
  CHECK(result.best.schedule == Schedule{.chunk = 32});
  CHECK(result.best.ratio == 2);
  // Also where all others are more than one field apart from it.
  const Schedule far{.chunk = 32, .warps = 4}, farther{.chunk = 32, .warps = 4, .value_block = 32};
  MadeUp exact([&](const Schedule& s) { return s == far ? 3 : s == farther ? 2 : 1; });
  exact.noisy = false;
  result = search({space()[0], far, farther}, exact, nullptr, {.default_may_win = false});
  CHECK(result.best.schedule == farther);
}

TEST_CASE("search: a budget ends it, with the plain chunks measured first") {
  const Schedule bottom{.chunk = 64, .register_rows = 8};
  MadeUp times([&](const Schedule& s) { return valley(s, bottom); });
  SearchResult result = search(space(), times, nullptr, {.budget_s = 2});
  CHECK_FALSE(result.complete);
  CHECK(times.clock_s() <= 4);
  CHECK(result.best.schedule == bottom);
  // Even with no time at all there is an answer.
  MadeUp slow([](const Schedule&) { return 1; });
  CHECK(search(space(), slow, nullptr, {.budget_s = 1e-9}).best.rank == 0);
  CHECK(slow.measurements == 1);
}

TEST_CASE("search: interrupted at any measurement, it goes on and ends as if it had not been") {
  auto formula = [](const Schedule& s) { return valley(s, {.chunk = 32, .register_rows = 12}); };
  MadeUp whole(formula);
  SearchResult expected = search(space(), whole, nullptr, {});
  for (int stop_after = 1; stop_after < whole.measurements; ++stop_after) {
    CAPTURE(stop_after);
    TempDirectory directory;
    auto path = directory.path / "journal";
    MadeUp first(formula);
    {
      Journal journal(path, "a search");
      bool stop = false;
      first.after = [&](int n) { stop = n == stop_after; };
      SearchResult partial = search(space(), first, &journal, {.stop = [&] { return stop; }});
      CHECK_FALSE(partial.complete);
      CHECK(partial.fallback.runs > 0);
    }
    Journal journal(path, "a search");
    MadeUp second(formula);
    SearchResult result = search(space(), second, &journal, {});
    CHECK(result.complete);
    CHECK(first.measurements + second.measurements == whole.measurements);
    CHECK(result.best.schedule == expected.best.schedule);
    CHECK(result.best.ratio == expected.best.ratio);
  }
}

TEST_CASE("search: a journal that ends in half a line, or of another search, does no harm") {
  auto formula = [](const Schedule& s) { return valley(s, {.chunk = 32}); };
  MadeUp whole(formula);
  Schedule expected = search(space(), whole, nullptr, {}).best.schedule;
  TempDirectory directory;
  auto path = directory.path / "journal";
  {
    Journal journal(path, "a search");
    MadeUp times(formula);
    search(space(), times, &journal, {});
  }
  std::string text = text_of(path);
  for (size_t cut = 0; cut < text.size(); cut += 97) {
    write_text(path, text.substr(0, cut));
    Journal journal(path, "a search");
    MadeUp times(formula);
    CHECK(search(space(), times, &journal, {}).best.schedule == expected);
    CHECK(times.measurements + static_cast<int>(journal.remembered()) >= whole.measurements);
  }
  write_text(path, text);
  Journal other(path, "another search");
  CHECK(other.remembered() == 0);
}
