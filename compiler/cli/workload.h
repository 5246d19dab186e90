// Tensors for a timed call of an op: random numbers of the kind models produce.
#pragma once

#include <vector>

#include "linnet/device.h"

namespace linnet::cli {

struct Shape {
  int64_t batch = 1, tokens = 4096, heads = 8, value_heads = 8;
};

class Workload {
 public:
  Workload(const Device& device, const Op& op, const Shape& shape);
  void run() const { op_.run(arguments_, {workspace_.data(), workspace_.bytes()}); }
  // Of all arguments, inputs and outputs.
  double bytes() const { return bytes_; }
  size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  Op op_;
  std::vector<Buffer> memory_;
  std::vector<std::string> names_;
  std::vector<Argument> arguments_;
  Buffer workspace_;
  double bytes_ = 0;
};

}  // namespace linnet::cli
