"""The devices tensors run on, and ops built for them, each made at first use."""

import functools
import math
import os

import torch

from . import _C
from ._interpreter import Interpreter

_TORCH = os.path.dirname(torch.__file__)
_devices = {}
schedules = {}  # by direction, what linnet.schedule() insists on
_forgotten = []  # what a forked process inherits has lost its threads, and is kept from being torn down
_chosen = ""  # the device of linnet.device(), or none
_watchers = []  # lists that are told of every op that runs: linnet.explain


class device:
    """Calls inside `with linnet.device(name):` run there instead of where their tensors are.

    name: "virtual:sm_90" and other architectures, the virtual GPU, which checks what it runs; "cuda:0"; "interpreter",
    which runs the derived graphs slowly in float64, on float64 tensors; "cpu". Tensors stay where they are and are
    copied to and fro. Holds for all threads of the process.
    """

    def __init__(self, name):
        if not isinstance(name, str):
            raise TypeError(f"device: expected a name such as 'cpu' or 'virtual:sm_90', got {type(name).__name__}")
        if name != "interpreter":
            _open(name)
        self.name = name

    def __enter__(self):
        global _chosen
        self._before, _chosen = _chosen, self.name
        return self

    def __exit__(self, *_):
        global _chosen
        _chosen = self._before


def chosen():
    return _chosen


def name_for(tensor, asked):
    """Where a call runs: the device asked for, or the tensor's own."""
    return asked or ("cpu" if tensor.is_cpu else str(tensor.device))


def _open(name):
    """The device of that name; the CPU runs on torch's own threads, or on as many as LINNET_THREADS says.

    Threads of ours beside torch's would share the cores with them: torch's look for work for milliseconds after each of
    its ops.
    """
    if name not in _devices:
        own = bool(os.environ.get("LINNET_THREADS"))
        _devices[name] = _C.Device(name, 0 if own else torch.get_num_threads(), "" if own else _TORCH)
    return _devices[name]


LARGE = 1 << 20  # numbers of a tensor


def empty(shape, dtype):
    """A tensor on the CPU; a large one in memory that is kept for the next when it is gone: new memory comes page by
    page, and costs as much as filling it."""
    if math.prod(shape) < LARGE:
        return torch.empty(shape, dtype=dtype)
    return torch.utils.dlpack.from_dlpack(_open("cpu").make_result(tuple(shape), name_of(dtype)))


@functools.lru_cache(maxsize=None)
def build(device, law, text, key_dim, value_dim, dtype, gate_dtype, beta_dtype, gate, lower_bound, has_A_log, beta,
          l2norm, state_v_first, direction, chunk=0, schedule=""):
    """An op for one problem: kernels from the cache, or compiled now. Formats are torch dtypes."""
    interpreted = device == "interpreter"
    problem = _C.Problem(law, law=text, key_dim=key_dim, value_dim=value_dim, dtype=_name(dtype, interpreted),
                         gate_dtype=_name(gate_dtype, interpreted), beta_dtype=_name(beta_dtype, interpreted), gate=gate,
                         lower_bound=lower_bound, has_A_log=has_A_log, beta=beta, l2norm=l2norm,
                         state_v_first=state_v_first)
    if interpreted:
        return Interpreter(problem, direction, chunk)
    return _open(device).build(problem, direction, chunk, schedule)


def forget():
    """Devices and their ops are made anew at their next use: with the schedules there are then."""
    _devices.clear()
    build.cache_clear()


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def _name(dtype, interpreted):
    return "float32" if interpreted else name_of(dtype)


def watch(built, arguments):
    for list_of_runs in _watchers:
        list_of_runs.append((built, arguments))


def watchers():
    return _watchers


def _after_fork():
    global build
    if _devices:
        _forgotten.append((dict(_devices), build))
        _devices.clear()
        build = functools.lru_cache(maxsize=None)(build.__wrapped__)


os.register_at_fork(after_in_child=_after_fork)
