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

// Arrays in a device's memory.
class Arrays {
 public:
  explicit Arrays(const Device& device) : device_(device) {}
  template <class T>
  T* send(const std::vector<T>& from) {
    buffers_.push_back(device_.allocate(from.size() * sizeof(T)));
    device_.write(buffers_.back().data(), from.data(), from.size() * sizeof(T));
    return static_cast<T*>(buffers_.back().data());
  }
  template <class T>
  void receive(std::vector<T>& to, const T* from) const {
    device_.synchronise();
    device_.read(to.data(), from, to.size() * sizeof(T));
  }

 private:
  Device device_;
  std::vector<Buffer> buffers_;
};

// The device `cpu`, opened once for each number of threads.
const Device& cpu_device(int threads = 2);

// Whether a device runs everything; one whose kernels take seconds to compile takes fewer, unless
// LINNET_TEST_ALL=1.
bool is_thorough(const Device& device);

// The layout of some sequences of another.
Layout select(const Layout& layout, const std::vector<size_t>& sequences);

// Both have the same names and, to the bit, the same numbers.
void check_same(const Tensors& a, const Tensors& b);
// The largest difference, in units of the largest number (at least 1).
double largest_difference(const std::vector<double>& a, const std::vector<double>& b);
std::vector<double> rounded_to_bf16(std::vector<double> values);

const char* name_of(Direction direction);

}  // namespace linnet::conformance
