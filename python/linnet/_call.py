"""From a drop-in's arguments to its torch op: what every function of the package shares."""

from dataclasses import dataclass

import torch

from ._laws import OPS
from ._torch_ops import FORWARD, INFERENCE

_FORMATS = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Modes:
    """How the tensors of a call are meant. A_log [HV] and dt_bias [HV * K] or [HV] are tensors of a gate in the kernel."""

    gate: str = "pre"
    lower_bound: float = 0.0
    beta: str = "plain"
    l2norm: bool = False
    A_log: torch.Tensor | None = None
    dt_bias: torch.Tensor | None = None
    state_v_first: bool = False


def gate_modes(use_gate_in_kernel, A_log, dt_bias, lower_bound, safe_gate):
    """What a gate computed in the kernel is: softplus, or bounded if there is a lower bound."""
    if safe_gate and use_gate_in_kernel and lower_bound is None:
        raise ValueError("lower_bound: expected a number in [-5, 0) with safe_gate and use_gate_in_kernel, got None")
    if not use_gate_in_kernel:
        return {}
    if lower_bound is None:
        if A_log is None:
            raise ValueError("A_log: expected a tensor [HV] with use_gate_in_kernel and without lower_bound, got None")
        return {"gate": "softplus", "A_log": A_log, "dt_bias": dt_bias}
    if not -5 <= lower_bound < 0:
        raise ValueError(f"lower_bound: expected a number in [-5, 0), got {lower_bound}")
    return {"gate": "bounded", "lower_bound": float(lower_bound), "A_log": A_log, "dt_bias": dt_bias}


def beta_mode(use_beta_sigmoid_in_kernel, allow_neg_eigval):
    """How beta becomes a strength."""
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise ValueError("allow_neg_eigval: expected use_beta_sigmoid_in_kernel=True with it, got False")
    return "twice_sigmoid" if allow_neg_eigval else "sigmoid" if use_beta_sigmoid_in_kernel else "plain"


def refuse(name, value, unset=None):
    """For arguments of the contract that have no meaning here yet: only their default is taken."""
    if value is not unset and value != unset:
        raise ValueError(f"{name}: expected {unset} (nothing else is supported), got {value}")


def _check(x, name, shape, rank):
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor {shape}, got {type(x).__name__}")
    if x.dim() != rank:
        raise ValueError(f"{name}: expected {shape}, got {list(x.shape)}")
    if x.device.type != "cpu":
        raise ValueError(f"{name}: expected a tensor on cpu, got one on {x.device}")


def _inputs(op, tensors):
    """Checked, and each in the format its kind has."""
    dtype = None
    for x, tensor in zip(op.inputs, tensors):
        if not isinstance(tensor, torch.Tensor) or tensor.ndim != x.rank or not tensor.is_cpu:
            _check(tensor, x.name, x.shape, x.rank)
        if tensor.dtype not in _FORMATS:
            raise TypeError(f"{x.name}: expected float32, bfloat16 or float16, got {tensor.dtype}")
        if x.kind == "data" and dtype is None:
            dtype = tensor.dtype
    autocast = torch.is_autocast_enabled("cpu")
    if autocast:
        dtype = torch.get_autocast_dtype("cpu")
    made = []
    for x, tensor in zip(op.inputs, tensors):
        # Strengths follow the call's format; keys and values of two formats are more likely a mistake.
        if x.kind == "data" and (autocast or x.axes == "BTU") and tensor.dtype != dtype:
            tensor = tensor.to(dtype)
        made.append(tensor.float() if x.kind == "head" else tensor)
    return made


def _head(x, name, sizes, shape):
    """A trained parameter, one (or one row) a head, in float32 and of the kernel's shape."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor {shape}, got {type(x).__name__}")
    expected = 1
    for size in sizes:
        expected *= size
    if x.numel() != expected:
        raise ValueError(f"{name}: expected {shape} = {expected} numbers, got {list(x.shape)}")
    return x.float().reshape(sizes)


def call(name, tensors, modes=Modes(), scale=None, initial_state=None, output_final_state=False, cu_seqlens=None,
         decode=False, states_every=0):
    """Runs one op of the table: (o, final state or None, states or None)."""
    op = OPS[name]
    tensors = _inputs(op, tensors)
    A_log, dt_bias = modes.A_log, modes.dt_bias
    if modes.gate != "pre":
        gate = tensors[op.find("g")]
        heads = gate.shape[2]
        if A_log is not None:
            A_log = _head(A_log, "A_log", (heads,), "[HV]")
        if dt_bias is None:
            dt_bias = torch.zeros(gate.shape[2:], dtype=torch.float32, device=gate.device)
        else:
            dt_bias = _head(dt_bias, "dt_bias", gate.shape[2:], "[HV, K]" if gate.dim() == 4 else "[HV]")
    if initial_state is not None:
        _check(initial_state, "initial_state", "[N, HV, V, K]" if modes.state_v_first else "[N, HV, K, V]", 4)
        initial_state = initial_state.float()
    if cu_seqlens is not None:
        _check(cu_seqlens, "cu_seqlens", "[N + 1]", 1)
    differentiable = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (*tensors, A_log, dt_bias, initial_state))
    o, final_state, states = (FORWARD if differentiable else INFERENCE)[name](
        *tensors, A_log, dt_bias, initial_state, cu_seqlens, None if scale is None else float(scale), modes.gate,
        modes.lower_bound, modes.beta, modes.l2norm, modes.state_v_first, decode, bool(output_final_state),
        states_every)
    return o, final_state if output_final_state else None, states if states_every else None
