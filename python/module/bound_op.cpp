#include "python/module/bound_op.h"

#include <bit>

#include "python/module/names.h"

namespace py = pybind11;

namespace linnet::python {

namespace {

size_t bytes_of(const Tensor& tensor) {
  int64_t numbers = 1;
  for (int i = 0; i < tensor.rank; ++i) numbers *= tensor.shape[i];
  return numbers * size_of(tensor.dtype);
}

}  // namespace

BoundOp::BoundOp(Op op)
    : op_(std::move(op)), on_gpu_(op_.device().name() != "cpu"), infos_(op_.arguments()) {}

std::vector<Argument> BoundOp::read(const py::dict& given, Tensors& tensors) const {
  std::vector<Argument> arguments;
  arguments.reserve(given.size());
  for (auto [name, value] : given) {
    std::string_view text = text_of(name);
    if (PyFloat_Check(value.ptr())) {
      arguments.emplace_back(text, static_cast<float>(PyFloat_AS_DOUBLE(value.ptr())));
      continue;
    }
    const ArgumentInfo* info = info_of(text);
    arguments.emplace_back(text, tensors.read(text, value, info && info->is_output));
    if (info) check(text, arguments.back().tensor, *info);
  }
  return arguments;
}

void BoundOp::run(const py::dict& given, uintptr_t stream, uintptr_t workspace,
                  size_t workspace_bytes) const {
  Tensors tensors(on_gpu_);
  std::vector<Argument> arguments = read(given, tensors);
  py::gil_scoped_release free;
  if (on_gpu_ && tensors.on_cpu()) return run_staged(arguments);
  op_.run(arguments,
          {std::bit_cast<void*>(workspace), workspace_bytes, std::bit_cast<void*>(stream)});
}

size_t BoundOp::workspace_bytes(const py::dict& given) const {
  Tensors tensors(on_gpu_);
  return op_.workspace_bytes(read(given, tensors));
}

const ArgumentInfo* BoundOp::info_of(std::string_view name) const {
  for (const ArgumentInfo& info : infos_)
    if (info.name == name) return &info;
  return nullptr;
}

void BoundOp::check(std::string_view name, const Tensor& tensor, const ArgumentInfo& info) const {
  bool integers = info.dtype == DType::i64;  // of either size
  bool fits = integers ? tensor.dtype == DType::i32 || tensor.dtype == DType::i64
                       : tensor.dtype == info.dtype;
  if (!fits)
    throw py::type_error(std::string(name) + ": expected " + torch_name(info.dtype) + " " +
                         info.shape + ", got " + describe(tensor));
}

// Tensors in the CPU's memory on a device that has memory of its own: copied there, and what was
// written copied back.
void BoundOp::run_staged(std::vector<Argument>& arguments) const {
  Device device = op_.device();
  std::vector<Buffer> buffers;
  std::vector<Tensor> host;
  for (Argument& argument : arguments) {
    if (argument.is_number) continue;
    Tensor& tensor = argument.tensor;
    host.push_back(tensor);
    buffers.push_back(device.allocate(bytes_of(tensor)));
    const ArgumentInfo* info = info_of(argument.name);
    bool read = !info || !info->is_output || argument.name == "state";  // in place
    if (read) device.write(buffers.back().data(), tensor.data, bytes_of(tensor));
    tensor.data = buffers.back().data();
  }
  op_.run(arguments);
  device.synchronise();
  size_t i = 0;
  for (const Argument& argument : arguments) {
    if (argument.is_number) continue;
    const ArgumentInfo* info = info_of(argument.name);
    if (info && info->is_output) device.read(host[i].data, buffers[i].data(), bytes_of(host[i]));
    ++i;
  }
}

}  // namespace linnet::python
