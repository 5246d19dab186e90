// linnet._C: the public C++ API for Python. Torch tensors are read through their own methods, so
// that the module is built without torch and loads beside any version of it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "linnet/device.h"
#include "python/module/names.h"
#include "python/module/tensors.h"
#include "python/module/tune.h"

namespace py = pybind11;

namespace linnet::python {

namespace {

// An op and what it takes, looked up by name when a tensor is of the wrong format.
class BoundOp {
 public:
  explicit BoundOp(Op op) : op_(std::move(op)), infos_(op_.arguments()) {}

  // Arguments by name: tensors, or numbers. The GIL is free while the kernels run.
  void run(const py::dict& given) const {
    Tensors tensors;
    std::vector<Argument> arguments;
    arguments.reserve(given.size());
    for (auto [name, value] : given) {
      std::string_view text = text_of(name);
      if (PyFloat_Check(value.ptr()))
        arguments.emplace_back(text, static_cast<float>(PyFloat_AS_DOUBLE(value.ptr())));
      else
        arguments.emplace_back(text, checked(text, tensors.read(text, value)));
    }
    py::gil_scoped_release free;
    op_.run(arguments);
  }

  std::vector<ArgumentInfo> arguments() const { return infos_; }
  const Op& op() const { return op_; }

 private:
  const Tensor& checked(std::string_view name, const Tensor& tensor) const {
    for (const ArgumentInfo& info : infos_) {
      bool integers = info.dtype == DType::i64;  // of either size
      bool fits = integers ? tensor.dtype == DType::i32 || tensor.dtype == DType::i64
                           : tensor.dtype == info.dtype;
      if (info.name == name && !fits)
        throw py::type_error(std::string(name) + ": expected " + torch_name(info.dtype) + " " +
                             info.shape + ", got " + describe(tensor));
    }
    return tensor;
  }

  Op op_;
  std::vector<ArgumentInfo> infos_;
};

BoundOp build(const Device& device, const std::string& op, int64_t key_dim, int64_t value_dim,
              const std::string& dtype, const std::string& gate_dtype,
              const std::string& state_dtype, const std::string& gate, double lower_bound,
              bool has_A_log, const std::string& beta, bool l2norm, bool state_v_first,
              const std::string& direction, int64_t chunk, const std::string& schedule) {
  Problem problem{.op = op,
                  .key_dim = key_dim,
                  .value_dim = value_dim,
                  .gate = gate_of(gate),
                  .lower_bound = static_cast<float>(lower_bound),
                  .has_A_log = has_A_log,
                  .beta = beta_of(beta),
                  .l2norm = l2norm,
                  .dtype = dtype_of("dtype", dtype),
                  .gate_dtype = dtype_of("gate_dtype", gate_dtype),
                  .state_dtype = dtype_of("state_dtype", state_dtype),
                  .state_v_first = state_v_first};
  BuildOptions options{.direction = direction_of(direction), .chunk = chunk};
  if (!schedule.empty()) options.schedule = Schedule::parse(schedule);
  py::gil_scoped_release free;
  return BoundOp(device.build(problem, options));
}

void translate_errors(py::module_& m) {
  // A RuntimeError of our own for what is not the caller's fault.
  static py::exception<Error> error(m, "Error", PyExc_RuntimeError);
  error.attr("__module__") = "linnet";
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const UserError& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    } catch (const Error& e) {
      PyErr_SetString(error.ptr(), e.what());
    }
  });
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Linnet's C++ API: devices, ops built for them, and calls on torch tensors.";
  m.attr("__version__") = LINNET_VERSION;
  translate_errors(m);
  bind_tune(m);
  py::class_<ArgumentInfo>(m, "ArgumentInfo", "What an op takes or gives.")
      .def_readonly("name", &ArgumentInfo::name)
      .def_readonly("shape", &ArgumentInfo::shape, "for example '[B, T, H, K]'")
      .def_property_readonly("dtype", [](const ArgumentInfo& a) { return torch_name(a.dtype); })
      .def_readonly("is_output", &ArgumentInfo::is_output)
      .def_readonly("is_optional", &ArgumentInfo::is_optional);
  py::class_<BoundOp>(m, "Op", "Kernels that compute one problem in one direction.")
      .def("run", &BoundOp::run, py::arg("arguments"),
           "Runs on {name: tensor or float}; outputs are written in place.")
      .def_property_readonly("arguments", &BoundOp::arguments);
  py::class_<Device>(m, "Device", "Where ops run.")
      .def(py::init([](const std::string& name, int threads) {
             return Device::open(name, {.threads = threads});
           }),
           py::arg("name") = "cpu", py::arg("threads") = 0)
      .def_property_readonly("name", &Device::name)
      .def_property_readonly("threads", &Device::threads)
      .def("build", &build, py::arg("op"), py::arg("key_dim"), py::arg("value_dim"),
           py::arg("dtype") = "float32", py::arg("gate_dtype") = "float32",
           py::arg("state_dtype") = "float32", py::arg("gate") = "pre", py::arg("lower_bound") = 0.,
           py::arg("has_A_log") = true, py::arg("beta") = "plain", py::arg("l2norm") = false,
           py::arg("state_v_first") = false, py::arg("direction") = "forward", py::arg("chunk") = 0,
           py::arg("schedule") = "", "Takes kernels from the cache, or compiles them.");
}

}  // namespace linnet::python
