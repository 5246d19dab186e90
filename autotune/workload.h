// Tensors for a timed call of an op: random numbers of the kind models produce.
#pragma once

#include <vector>

#include "linnet/device.h"

namespace linnet {

struct Shape {
  int64_t batch = 1, tokens = 4096, heads = 8, value_heads = 8;
};

class Workload {
 public:
  Workload(const Device& device, const Op& op, const Shape& shape);
  void run() const { run(op_, nullptr); }
  // The same numbers through another op that takes the same arguments, on a stream if there is one.
  void run(const Op& op, void* stream) const {
    op.run(arguments_, {workspace_.data(), workspace_.bytes(), stream});
  }
  // Makes room for what another op needs beside the arguments.
  void make_room_for(const Op& op);
  // States that are read and written are as at first.
  void reset() const;
  // What the last run gave: the first `most` numbers of every output, one after another.
  std::vector<float> results(size_t most) const;
  // Of all arguments, inputs and outputs.
  double bytes() const { return bytes_; }
  void* workspace() const { return workspace_.data(); }
  size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  Device device_;
  Op op_;
  std::vector<Buffer> memory_;
  std::vector<std::string> names_;
  std::vector<Argument> arguments_;
  std::vector<bool> is_output_;
  std::vector<std::byte> state_;  // at first, of the argument "state"
  Buffer workspace_;
  double bytes_ = 0;
};

}  // namespace linnet
