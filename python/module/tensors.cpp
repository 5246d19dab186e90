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

bool is_dense(const Tensor& t) {
  return t.rank < 1 || t.rank > Tensor::kMaxRank || t.shape[t.rank - 1] <= 1 ||
         t.strides[t.rank - 1] == 1;
}

}  // namespace

std::string_view text_of(py::handle string) {
  Py_ssize_t size;
  const char* text = PyUnicode_AsUTF8AndSize(string.ptr(), &size);
  if (!text) throw py::error_already_set();
  return {text, static_cast<size_t>(size)};
}

Tensor Tensors::read(std::string_view name, py::handle object) {
  if (!PyObject_HasAttr(object.ptr(), names().data_ptr))
    throw py::type_error(std::string(name) + ": expected a torch tensor, got " +
                         Py_TYPE(object.ptr())->tp_name);
  if (get(object, names().is_cpu).ptr() != Py_True)
    throw UserError(std::string(name) + ": expected a tensor on cpu, got one on " +
                    py::str(object.attr("device")).cast<std::string>());
  Tensor tensor;
  tensor.dtype = read_dtype(name, get(object, names().dtype));
  fill(tensor, object);
  if (!is_dense(tensor)) {
    copies_.push_back(call(object, names().contiguous));
    fill(tensor, copies_.back());
  }
  return tensor;
}

}  // namespace linnet::python
