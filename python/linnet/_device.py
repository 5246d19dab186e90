"""The device tensors run on, and ops built for it, each made at first use."""

import functools
import os

import torch

from . import _C

_device = None
schedules = {}  # by direction, what linnet.schedule() insists on
_forgotten = []  # what a forked process inherits has lost its threads, and is kept from being torn down


def device():
    """The device `cpu`, with as many threads as torch uses; LINNET_THREADS says otherwise."""
    global _device
    if _device is None:
        _device = _C.Device("cpu", 0 if os.environ.get("LINNET_THREADS") else torch.get_num_threads())
    return _device


@functools.lru_cache(maxsize=None)
def build(law, key_dim, value_dim, dtype, gate_dtype, gate, lower_bound, has_A_log, beta, l2norm, state_v_first,
          direction, schedule=""):
    """An op for one problem: kernels from the cache, or compiled now. Formats are torch dtypes."""
    return device().build(law, key_dim, value_dim, dtype=_name(dtype), gate_dtype=_name(gate_dtype), gate=gate,
                          lower_bound=lower_bound, has_A_log=has_A_log, beta=beta, l2norm=l2norm,
                          state_v_first=state_v_first, direction=direction, schedule=schedule)


def forget():
    """The device and its ops are made anew at their next use: with the schedules there are then."""
    global _device
    _device = None
    build.cache_clear()


def _name(dtype):
    return str(dtype).removeprefix("torch.")


def _after_fork():
    global _device, build
    if _device is not None:
        _forgotten.append((_device, build))
        _device = None
        build = functools.lru_cache(maxsize=None)(build.__wrapped__)


os.register_at_fork(after_in_child=_after_fork)
