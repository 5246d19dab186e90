// linnet.tune: the offline search, from Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "autotune/report.h"
#include "autotune/tuner.h"
#include "python/module/names.h"
#include "python/module/tune.h"

namespace py = pybind11;

namespace linnet::python {

namespace {

py::dict found(const autotune::Tuned& tuned) {
  const TuningEntry& entry = tuned.entry;
  py::dict d;
  d["op"] = entry.key.op;
  d["direction"] = python::name_of(entry.key.direction);
  d["gate"] = entry.key.gate;
  d["width"] = name_of(entry.shape.width);
  d["length"] = name_of(entry.shape.length);
  d["schedule"] = entry.schedule.describe();
  d["how"] = entry.how;
  d["device"] = entry.device;
  d["workload"] = entry.workload;
  d["speedup"] = 1 / tuned.result.best.ratio;
  d["candidates"] = tuned.result.trials.size();
  d["complete"] = tuned.result.complete;
  return d;
}

// Python's Ctrl-C ends the search; what it found is kept, then the exception goes on.
py::list tune(const std::vector<std::string>& ops, int64_t key_dim, int64_t value_dim,
              const std::string& dtype, const std::string& gate_dtype, const std::string& gate,
              double lower_bound, const std::string& device,
              const std::vector<std::string>& directions, const std::vector<std::string>& lengths,
              double budget, int threads, const std::string& directory, const std::string& report) {
  bool interrupted = false;
  std::vector<Problem> problems;
  for (const std::string& op : ops)
    problems.push_back({.op = op,
                        .key_dim = key_dim,
                        .value_dim = value_dim,
                        .gate = gate_of(gate),
                        .lower_bound = static_cast<float>(lower_bound),
                        .dtype = dtype_of("dtype", dtype),
                        .gate_dtype = dtype_of("gate_dtype", gate_dtype)});
  autotune::TuneOptions options{.device = device,
                                .threads = threads,
                                .directions = {},
                                .lengths = {},
                                .budget_s = budget,
                                .directory = directory,
                                .made_by = "linnet.tune"};
  for (const std::string& direction : directions)
    options.directions.push_back(direction_of(direction));
  for (Length length : {Length::long_, Length::medium, Length::short_})
    for (const std::string& name : lengths)
      if (name == name_of(length)) options.lengths.push_back(length);
  if (options.lengths.size() != lengths.size())
    throw UserError("lengths: expected short, medium or long, each once");
  options.stop = [&] {
    py::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) {
      PyErr_Clear();
      interrupted = true;
    }
    return interrupted;
  };
  std::vector<autotune::Tuned> tuned;
  {
    py::gil_scoped_release free;
    tuned = autotune::tune(problems, options);
    if (!report.empty()) autotune::write_report(report, tuned);
  }
  if (interrupted) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw py::error_already_set();
  }
  py::list list;
  for (const autotune::Tuned& one : tuned) list.append(found(one));
  return list;
}

}  // namespace

void bind_tune(py::module_& m) {
  m.def("tune", &tune, py::kw_only(), py::arg("ops"), py::arg("key_dim"), py::arg("value_dim"),
        py::arg("dtype"), py::arg("gate_dtype"), py::arg("gate"), py::arg("lower_bound"),
        py::arg("device"), py::arg("directions"), py::arg("lengths"), py::arg("budget"),
        py::arg("threads"), py::arg("directory"), py::arg("report"),
        "Finds schedules and keeps them; see linnet.tune.");
  m.def(
      "check_schedule",
      [](const std::string& text) { return Schedule::parse(text, "schedule").describe(); },
      py::arg("text"), "The schedule in the form it is known by; a ValueError if it is none.");
}

}  // namespace linnet::python
