// A problem with arguments for it, which the tests of the conformance suite cut and pack in many
// ways.
#pragma once

#include "tests/check/check.h"

namespace linnet::conformance {

class Subject {
 public:
  explicit Subject(const Problem& problem);

  const Problem problem;
  Op build(const Device& device, Direction direction) const {
    return device.build(problem, {.direction = direction});
  }
  // Random arguments: inputs, and for backward the gradients of outputs.
  Tensors arguments(Direction direction, const Layout& layout,
                    const check::InputOptions& options = {}) const;

  // Of arguments or results those that belong to sequences of a layout, in the order given. What
  // sequences share comes along if it is an argument, and is left out if it is a result.
  Tensors select(const Tensors& tensors, const Layout& layout,
                 const std::vector<size_t>& sequences) const;
  // Of a layout with one sequence: some of its tokens, everything else as it is.
  Tensors tokens(const Tensors& tensors, const Layout& layout, int64_t first, int64_t count) const;

 private:
  std::unique_ptr<mlir::MLIRContext> context_;
  mlir::OwningOpRef<mlir::ModuleOp> module_;
  std::map<std::string, chunk::Scope> scopes_;
};

// The layout of some sequences of another.
Layout select(const Layout& layout, const std::vector<size_t>& sequences);

// Both have the same names and, to the bit, the same numbers.
void check_same(const Tensors& a, const Tensors& b);
// The largest difference, in units of the largest number (at least 1).
double largest_difference(const std::vector<double>& a, const std::vector<double>& b);
std::vector<double> rounded_to_bf16(std::vector<double> values);

const char* name_of(Direction direction);

}  // namespace linnet::conformance
