#include "python/module/tensors.h"

#include "python/module/names.h"

namespace py = pybind11;

namespace linnet::python {

namespace {

// Names of methods, made once: looking a method up is most of what a call costs.
struct Names {
  PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* stride = PyUnicode_InternFromString("stride");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* contiguous = PyUnicode_InternFromString("contiguous");
  PyObject* is_cpu = PyUnicode_InternFromString("is_cpu");
  PyObject* is_cuda = PyUnicode_InternFromString("is_cuda");
  PyObject* is_neg = PyUnicode_InternFromString("is_neg");
  PyObject* resolve_neg = PyUnicode_InternFromString("resolve_neg");
};

const Names& names() {
  static const Names known;
  return known;
}

py::object get(py::handle object, PyObject* name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name);
  if (!value) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(value);
}

py::object call(py::handle object, PyObject* method) {
  PyObject* value = PyObject_CallMethodNoArgs(object.ptr(), method);
  if (!value) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(value);
}

// torch keeps one object for each format.
DType read_dtype(std::string_view name, py::handle dtype) {
  static std::vector<std::pair<PyObject*, DType>> known = [] {
    std::vector<std::pair<PyObject*, DType>> types;
    auto torch = py::module_::import("torch");
    for (DType type : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64})
      types.emplace_back(py::object(torch.attr(torch_name(type))).release().ptr(), type);
    return types;
  }();
  for (auto [object, type] : known)
    if (object == dtype.ptr()) return type;
  throw py::type_error(std::string(name) + ": expected float32, bfloat16 or float16, got " +
                       py::str(dtype).cast<std::string>());
}

void fill(Tensor& tensor, py::handle object) {
  auto shape = get(object, names().shape), strides = call(object, names().stride);
  tensor.rank = static_cast<int>(PyTuple_GET_SIZE(shape.ptr()));
  for (int i = 0; i < std::min(tensor.rank, Tensor::kMaxRank); ++i) {
    tensor.shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.ptr(), i));
    tensor.strides[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(strides.ptr(), i));
  }
  tensor.data = PyLong_AsVoidPtr(call(object, names().data_ptr).ptr());
}

// Whether the last `axes` axes have no gaps.
bool is_dense(const Tensor& t, int axes) {
  if (t.rank > Tensor::kMaxRank) return true;  // refused later
  int64_t stride = 1;
  for (int i = t.rank; i-- > std::max(0, t.rank - axes); stride *= t.shape[i])
    if (t.shape[i] > 1 && t.strides[i] != stride) return false;
  return true;
}

// Whether rows can be copied 16 bytes at a time.
bool is_aligned(const Tensor& t) {
  bool aligned = reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
  for (int i = 0; i + 1 < std::min(t.rank, Tensor::kMaxRank); ++i)
    aligned &= t.strides[i] * size_of(t.dtype) % 16 == 0;
  return aligned;
}

void log_copy(std::string_view name, const Tensor& tensor) {
  py::module_::import("logging").attr("getLogger")("linnet").attr("info")(
      std::string(name) + ": " + describe(tensor) + " is copied, it does not lie as kernels read");
}

}  // namespace

std::string_view text_of(py::handle string) {
  Py_ssize_t size;
  const char* text = PyUnicode_AsUTF8AndSize(string.ptr(), &size);
  if (!text) throw py::error_already_set();
  return {text, static_cast<size_t>(size)};
}

void Tensors::check_device(std::string_view name, py::handle object) {
  bool on_cpu = get(object, names().is_cpu).ptr() == Py_True;
  bool fine = on_cpu || (for_gpu_ && get(object, names().is_cuda).ptr() == Py_True);
  if (!fine)
    throw UserError(std::string(name) + ": expected a tensor on cpu" +
                    (for_gpu_ ? " or cuda" : "") + ", got one on " +
                    py::str(object.attr("device")).cast<std::string>());
  if (!first_ && on_cpu != on_cpu_)
    throw UserError(std::string(name) + ": expected all tensors on one device, got one on " +
                    py::str(object.attr("device")).cast<std::string>());
  on_cpu_ = on_cpu;
  first_ = false;
}

// On the CPU any tensor whose last axis is dense; on a GPU one without gaps, or with wide rows.
// What is copied to a GPU, and a state on one, has no gaps.
bool Tensors::is_fit(std::string_view name, const Tensor& tensor) const {
  if (is_dense(tensor, Tensor::kMaxRank)) return true;
  bool whole = for_gpu_ && (on_cpu_ || name.find("state") != name.npos || !is_aligned(tensor));
  return !whole && is_dense(tensor, 1);
}

Tensor Tensors::read(std::string_view name, py::handle object, bool is_output) {
  if (!PyObject_HasAttr(object.ptr(), names().data_ptr))
    throw py::type_error(std::string(name) + ": expected a torch tensor, got " +
                         Py_TYPE(object.ptr())->tp_name);
  check_device(name, object);
  Tensor tensor;
  tensor.dtype = read_dtype(name, get(object, names().dtype));
  // torch negates some views by a bit that their memory does not show.
  if (!is_output && call(object, names().is_neg).ptr() == Py_True) {
    copies_.push_back(call(object, names().resolve_neg));
    object = copies_.back();
  }
  fill(tensor, object);
  if (!is_output && !is_fit(name, tensor)) {
    log_copy(name, tensor);
    copies_.push_back(call(object, names().contiguous));
    fill(tensor, copies_.back());
  }
  return tensor;
}

}  // namespace linnet::python
