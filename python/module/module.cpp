// linnet._C: the public C++ API for Python. Torch tensors are read through their own methods, so
// that the module is built without torch and loads beside any version of it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <bit>

#include "linnet/compiler.h"
#include "python/module/bound_op.h"
#include "python/module/names.h"
#include "python/module/results.h"
#include "python/module/tune.h"

namespace py = pybind11;

namespace linnet::python {

namespace {

Problem make_problem(const std::string& op, const std::string& law, int64_t key_dim,
                     int64_t value_dim, const std::string& dtype, const std::string& gate_dtype,
                     const std::optional<std::string>& beta_dtype, const std::string& state_dtype,
                     const std::string& gate, double lower_bound, bool has_A_log,
                     const std::string& beta, bool l2norm, bool state_v_first) {
  Problem problem{.op = op,
                  .law = law,
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
  if (beta_dtype && *beta_dtype != dtype) problem.beta_dtype = dtype_of("beta_dtype", *beta_dtype);
  return problem;
}

BoundOp build(const Device& device, const Problem& problem, const std::string& direction,
              int64_t chunk, const std::string& schedule) {
  BuildOptions options{.direction = direction_of(direction), .chunk = chunk};
  if (!schedule.empty()) options.schedule = Schedule::parse(schedule);
  py::gil_scoped_release free;
  return BoundOp(device.build(problem, options));
}

std::string show(const Problem& problem, const std::string& stage, const std::string& direction,
                 int64_t chunk) {
  return open_compiler().show({problem, direction_of(direction), chunk, stage});
}

Numbers interpret(const Problem& problem, const std::string& direction, int64_t chunk,
                  int64_t heads, int64_t value_heads, const std::vector<int64_t>& lengths,
                  const Numbers& inputs) {
  InterpretRequest request{problem, direction_of(direction), chunk, heads, value_heads, lengths};
  py::gil_scoped_release free;
  return open_compiler().interpret(request, inputs);
}

void translate_errors(py::module_& m) {
  // A RuntimeError of our own for what is not the caller's fault.
  static py::exception<Error> error(m, "Error", PyExc_RuntimeError);
  error.attr("__module__") = "linnet";
  error.attr("__doc__") = "What is not the caller's fault: the machine's, or a bug in Linnet.";
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

void bind_problem(py::module_& m) {
  py::class_<Problem>(m, "Problem", "What is asked for: an op with its sizes and modes.")
      .def(py::init(&make_problem), py::arg("op"), py::kw_only(), py::arg("law") = "",
           py::arg("key_dim") = 128, py::arg("value_dim") = 128, py::arg("dtype") = "float32",
           py::arg("gate_dtype") = "float32", py::arg("beta_dtype") = py::none(),
           py::arg("state_dtype") = "float32", py::arg("gate") = "pre", py::arg("lower_bound") = 0.,
           py::arg("has_A_log") = true, py::arg("beta") = "plain", py::arg("l2norm") = false,
           py::arg("state_v_first") = false)
      .def_readonly("op", &Problem::op)
      .def_readonly("key_dim", &Problem::key_dim)
      .def_readonly("value_dim", &Problem::value_dim)
      .def_readonly("state_v_first", &Problem::state_v_first);
}

void bind_op(py::module_& m) {
  py::class_<ArgumentInfo>(m, "ArgumentInfo", "What an op takes or gives.")
      .def_readonly("name", &ArgumentInfo::name)
      .def_readonly("shape", &ArgumentInfo::shape, "for example '[B, T, H, K]'")
      .def_property_readonly("dtype", [](const ArgumentInfo& a) { return torch_name(a.dtype); })
      .def_readonly("is_output", &ArgumentInfo::is_output)
      .def_readonly("is_optional", &ArgumentInfo::is_optional);
  py::class_<KernelInfo>(m, "KernelInfo", "A kernel of an op.")
      .def_readonly("what", &KernelInfo::what)
      .def_readonly("key", &KernelInfo::key, "of its entry in the cache")
      .def_readonly("from_cache", &KernelInfo::from_cache)
      .def_readonly("chunk", &KernelInfo::chunk)
      .def_readonly("value_block", &KernelInfo::value_block)
      .def_readonly("loops", &KernelInfo::loops)
      .def_readonly("bytes", &KernelInfo::bytes)
      .def_readonly("workspace", &KernelInfo::workspace);
  py::class_<BoundOp>(m, "Op", "Kernels that compute one problem in one direction.")
      .def("run", &BoundOp::run, py::arg("arguments"), py::arg("stream") = 0,
           py::arg("workspace") = 0, py::arg("workspace_bytes") = 0,
           "Runs on {name: tensor or float}; outputs are written in place.")
      .def("workspace_bytes", &BoundOp::workspace_bytes, py::arg("arguments"))
      .def_property_readonly("arguments", &BoundOp::arguments)
      .def("takes", &BoundOp::takes, py::arg("name"), "Whether there is an argument of that name.")
      .def_property_readonly("kernels", [](const BoundOp& op) { return op.op().kernels(); })
      .def_property_readonly("problem", [](const BoundOp& op) { return op.op().problem(); })
      .def_property_readonly("direction",
                             [](const BoundOp& op) { return name_of(op.op().direction()); })
      .def_property_readonly("on_cpu", [](const BoundOp& op) { return !op.on_gpu(); })
      .def_property_readonly("device", [](const BoundOp& op) { return op.op().device(); });
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Linnet's C++ API: devices, ops built for them, and calls on torch tensors.";
  m.attr("__version__") = LINNET_VERSION;
  translate_errors(m);
  bind_problem(m);
  bind_op(m);
  bind_tune(m);
  py::class_<Buffer>(m, "Buffer", "Memory of a device.")
      .def_property_readonly("address",
                             [](const Buffer& b) { return std::bit_cast<uintptr_t>(b.data()); })
      .def_property_readonly("bytes", &Buffer::bytes);
  py::class_<Device>(m, "Device", "Where ops run.")
      .def(py::init([](const std::string& name, int threads, const std::string& openmp) {
             auto pool = openmp.empty() ? nullptr : openmp_pool(threads, openmp);
             return Device::open(name, {.threads = threads, .pool = pool});
           }),
           py::arg("name") = "cpu", py::arg("threads") = 0, py::arg("openmp") = "",
           "openmp: run on the threads of the OpenMP runtime with this in its path, if it is "
           "loaded.")
      .def_property_readonly("name", &Device::name)
      .def_property_readonly("threads", &Device::threads)
      .def("allocate", &Device::allocate, py::arg("bytes"))
      .def(
          "write",
          [](const Device& device, const Buffer& to, uintptr_t from) {
            device.write(to.data(), std::bit_cast<void*>(from), to.bytes());
          },
          "Fills a buffer from an address of this process.")
      .def(
          "read",
          [](const Device& device, uintptr_t to, const Buffer& from) {
            device.read(std::bit_cast<void*>(to), from.data(), from.bytes());
          },
          "Copies a buffer to an address of this process.")
      .def("synchronise", &Device::synchronise)
      .def(
          "make_result",
          [](const Device& device, const py::tuple& sizes, const std::string& dtype) {
            return make_result(device, sizes, dtype_of("dtype", dtype));
          },
          py::arg("sizes"), py::arg("dtype"),
          "cpu: a large tensor as a DLPack capsule, in memory that is kept for the next one when "
          "it is given back.")
      .def("build", &build, py::arg("problem"), py::arg("direction") = "forward",
           py::arg("chunk") = 0, py::arg("schedule") = "",
           "Takes kernels from the cache, or compiles them.");
  m.def("kept_bytes", &kept_bytes, "Memory of large results that is kept for the next ones.");
  m.def("show", &show, py::arg("problem"), py::arg("stage") = "graph",
        py::arg("direction") = "forward", py::arg("chunk") = 64,
        "What becomes of a law on its way to a kernel, as text. Opens the compiler.");
  m.def("interpret", &interpret, py::arg("problem"), py::arg("direction"), py::arg("chunk"),
        py::arg("heads"), py::arg("value_heads"), py::arg("lengths"), py::arg("inputs"),
        "Runs the derived graph in float64 on {name: numbers}. Opens the compiler.");
}

}  // namespace linnet::python
