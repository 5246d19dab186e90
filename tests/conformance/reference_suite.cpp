// Numbers against the reference.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "tests/conformance/suite.h"

namespace linnet::conformance {

namespace {

struct Outcome {
  std::string name;
  std::vector<check::Result> results;
};

Outcome outcome_of(const Device& device, const check::Case& c) {
  try {
    return {c.name(), check::check_on(device, c)};
  } catch (const std::exception& error) {
    return {c.name(), {{false, error.what()}}};
  }
}

}  // namespace

void meets_the_reference(const Device& device) {
  std::vector<check::Case> cases;
  for (const ops::Entry& entry : ops::registry())
    for (const check::Case& c : check::device_cases_of(entry, false)) cases.push_back(c);
  // Compiling takes longer than running: several at a time.
  std::vector<Outcome> outcomes(cases.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < cases.size();) outcomes[i] = outcome_of(device, cases[i]);
  };
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) workers.emplace_back(work);
    work();
  }
  CHECK(cases.size() > 3 * ops::registry().size());
  for (const Outcome& outcome : outcomes)
    for (const check::Result& result : outcome.results)
      CHECK_MESSAGE(result.passed, outcome.name, ": ", result.measure, ": ", result.error, " over ",
                    result.limit);
}

}  // namespace linnet::conformance
