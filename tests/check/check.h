// Holds what was derived against the token-by-token reference: `linnet check` and the tests use it
// alike.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/pipeline.h"
#include "ops/registry.h"
#include "tests/check/call.h"
#include "tests/check/inputs.h"

namespace linnet::check {

struct Case {
  LawFunction law;
  Problem problem;
  PipelineOptions options;  // direction is set by the checks
  // On a device: how; its chunk and stages are the options'.
  std::optional<Schedule> schedule;
  std::string target_cpu = {};  // on `cpu`: another processor's code
  Layout layout;
  InputOptions inputs;
  std::string name() const;  // "kda: gate softplus, chunk 64, T = 130 + 0 + 15, ..."
};

struct Result {
  bool passed;
  std::string measure;  // what was held against which limit
  double error = 0, limit = 0;
};

// The staged forward and backward graphs equal the truth: the reference in tests/reference, or for
// an op it does not know the law itself, run token by token, with gradients held against central
// differences. Limits: float64 to 1e-10 and 1e-8, emulated formats by the ratio of root mean
// squares, 0.005 and 0.01 (0.015 with correlated keys). One result for each output and gradient
// that fails, or one for the worst.
std::vector<Result> compare(const Case& c, Arithmetic arithmetic);
// The same with the op run by a device, as users run it; f32 to ratios of 2e-6 and 2e-5. Decode
// starts from a given state and takes sequences of up to 8 tokens.
std::vector<Result> compare_on(const Device& device, const Case& c);
std::vector<Result> compare_decode_on(const Device& device, const Case& c);
std::vector<Result> compare_forward_on(const Device& device, const Case& c);
// No NaN or infinity in f32 emulation, forward or backward.
std::vector<Result> finite(const Case& c);
std::vector<Result> finite_on(const Device& device, const Case& c);
// Changing token t of every input leaves outputs before t the same to the bit.
std::vector<Result> causal(const Case& c, int64_t token);
std::vector<Result> causal_on(const Device& device, const Case& c, int64_t token);

// The cases of one op: a covering sample over modes, sizes and formats, or the whole product.
std::vector<Case> cases_of(const ops::Entry& op, bool exhaustive);
// The same for a device, where compiling is what takes time: fewer kernels, the sizes of models.
std::vector<Case> device_cases_of(const ops::Entry& op, bool exhaustive);
// Everything that is checked for a case, by its kind.
std::vector<Result> check(const Case& c);
std::vector<Result> check_on(const Device& device, const Case& c);

}  // namespace linnet::check
