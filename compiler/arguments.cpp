#include "compiler/arguments.h"

namespace linnet {

using namespace chunk;

DType dtype_of(Precision precision) {
  return precision == Precision::bf16  ? DType::bf16
         : precision == Precision::f16 ? DType::f16
                                       : DType::f32;
}

namespace {

std::string letters_of(Tile type) {
  std::string letters;
  for (Axis axis : axes_of(type)) {
    if (axis == Axis::key) letters += 'k';
    if (axis == Axis::value) letters += 'v';
  }
  return letters;
}

}  // namespace

std::vector<KernelArgument> arguments_of(GraphOp graph) {
  std::vector<KernelArgument> arguments;
  auto add = [&](auto op, bool is_output, Tile type) {
    DType storage = dtype_of(op.getStorage().value_or(Precision::f32));
    arguments.push_back({op.getName().str(), static_cast<ArgumentScope>(op.getScope()),
                         op.getKeyHeads(), is_output, storage, storage, letters_of(type)});
  };
  for (auto input : graph.getBody().getOps<InputOp>()) add(input, false, tile_of(input));
  for (auto output : graph.getBody().getOps<OutputOp>())
    add(output, true, tile_of(output.getValue()));
  return arguments;
}

}  // namespace linnet
