"""From a drop-in's arguments to its torch op: what every function of the package shares."""

import numbers
from typing import NamedTuple

import torch
from torch._C import _functorch
from torch.autograd import forward_ad

from ._device import chosen
from ._laws import OPS
from ._torch_ops import FORWARD, INFERENCE, KERNELS

_Tensor, _strided = torch.Tensor, torch.strided
_FORMATS = (torch.float32, torch.bfloat16, torch.float16)
_LONGEST_INTERVAL = 1 << 24  # it is a number in float32 on its way


class Modes(NamedTuple):
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
        for name, x in (("A_log", A_log), ("dt_bias", dt_bias)):
            if getattr(x, "requires_grad", False):
                raise ValueError(f"{name}: expected use_gate_in_kernel=True for a tensor that requires a gradient, "
                                 "got False: it would have none")
        return {}
    check_flag("use_gate_in_kernel", use_gate_in_kernel)
    if lower_bound is None:
        if A_log is None:
            raise ValueError("A_log: expected a tensor [HV] with use_gate_in_kernel and without lower_bound, got None")
        return {"gate": "softplus", "A_log": A_log, "dt_bias": dt_bias}
    if not isinstance(lower_bound, numbers.Real):
        raise TypeError(f"lower_bound: expected a number in [-5, 0), got {type(lower_bound).__name__}")
    if not -5 <= lower_bound < 0:
        raise ValueError(f"lower_bound: expected a number in [-5, 0), got {lower_bound}")
    return {"gate": "bounded", "lower_bound": float(lower_bound), "A_log": A_log, "dt_bias": dt_bias}


def beta_mode(use_beta_sigmoid_in_kernel, allow_neg_eigval):
    """How beta becomes a strength."""
    if not use_beta_sigmoid_in_kernel and not allow_neg_eigval:
        return "plain"
    check_flag("use_beta_sigmoid_in_kernel", use_beta_sigmoid_in_kernel)
    check_flag("allow_neg_eigval", allow_neg_eigval)
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise ValueError("allow_neg_eigval: expected use_beta_sigmoid_in_kernel=True with it, got False")
    return "twice_sigmoid" if allow_neg_eigval else "sigmoid"


def refuse(name, value, unset=None):
    """For arguments of the contract that have no meaning here yet: only their default is taken."""
    if value is not unset and value != unset:
        raise ValueError(f"{name}: expected {unset} (nothing else is supported), got {value}")


def check_flag(name, value):
    """A bool of Python's or NumPy's, or the number or None that people write for one; "no" is none of them."""
    if not isinstance(value, (int, type(None))) and type(value).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{name}: expected a bool, got {type(value).__name__}")


def check_chunk(chunk_size, unset=64):
    if chunk_size not in (16, 32, 64, 128, unset):
        raise ValueError(f"chunk_size: expected 16, 32, 64 or 128, got {chunk_size}")


def interval(return_intermediate_states, chunk_size):
    """Tokens between two of the states asked for; 0: none are."""
    if isinstance(return_intermediate_states, bool):
        return chunk_size if return_intermediate_states else 0
    if not isinstance(return_intermediate_states, int) or not 1 <= return_intermediate_states <= _LONGEST_INTERVAL:
        raise ValueError("return_intermediate_states: expected False, True or a number of tokens from 1 to "
                         f"{_LONGEST_INTERVAL}, got {return_intermediate_states}")
    return return_intermediate_states


def _by_batch(states, o, every):
    """[B, NT, HV, K, V] of all states in a row, in the format of the data."""
    B, T = o.shape[:2]
    return states.detach().to(o.dtype).unflatten(0, (B, -1) if B else (0, -(-T // every)))


def as_tensor(x, name, shape):
    """A tensor, or what any array that speaks DLPack holds (NumPy, JAX)."""
    if isinstance(x, torch.Tensor):
        return x
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"{name}: expected a tensor {shape}, got {type(x).__name__}")
    strides = getattr(x, "strides", None)  # torch aborts the process on negative ones
    if isinstance(strides, tuple) and any(stride < 0 for stride in strides):
        raise ValueError(f"{name}: expected an array without negative strides, got strides {strides}; a copy has none")
    try:
        return torch.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"{name}: expected an array that torch can take, got {type(x).__name__}: {error}") from None


def checked(x, name, shape):
    """A tensor of as many axes as "[B, T, HV, V]" names."""
    x = as_tensor(x, name, shape)
    _check(x, name, shape, shape.count(",") + 1)
    return x


def _check(x, name, shape, rank):
    if x.is_nested or x.layout is not torch.strided:
        raise TypeError(f"{name}: expected a dense tensor {shape}, got a {'nested' if x.is_nested else x.layout} one")
    if x.dim() != rank:
        raise ValueError(f"{name}: expected {shape}, got {list(x.shape)}")
    if x.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name}: expected a tensor on cpu or cuda, got one on {x.device}")


def _is_plain(op, tensors, formats):
    """The common case, found quickly: torch's own tensors on the CPU, of the right ranks and formats."""
    for x, tensor in zip(op.inputs, tensors):
        if (type(tensor) is not _Tensor or tensor.ndim != x.rank or not tensor.is_cpu
                or tensor.dtype not in formats or tensor.layout is not _strided or tensor.is_nested):
            return False
    return True


def _inputs(op, tensors, formats):
    """Checked, and each in the format its kind has."""
    device = "cpu"
    if not _is_plain(op, tensors, formats):
        tensors = _checked(op, tensors, formats)
        device = tensors[0].device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        tensors = [x.to(dtype) if i.kind == "data" else x for i, x in zip(op.inputs, tensors)]
    if op.has_head_inputs:
        tensors = [x.to(formats[0]) if i.kind == "head" else x for i, x in zip(op.inputs, tensors)]
    return tensors


def _checked(op, tensors, formats):
    tensors = [as_tensor(x, i.name, i.shape) for i, x in zip(op.inputs, tensors)]
    for x, tensor in zip(op.inputs, tensors):
        _check(tensor, x.name, x.shape, x.rank)
        if tensor.dtype not in formats:
            expected = "float64 on the interpreter" if torch.float64 in formats else "float32, bfloat16 or float16"
            raise TypeError(f"{x.name}: expected {expected}, got {tensor.dtype}")
        if tensor.device != tensors[0].device:
            raise ValueError(f"{x.name}: expected a tensor on {tensors[0].device} as {op.inputs[0].name}, got one on "
                             f"{tensor.device}")
    return tensors


def _head(x, name, sizes, shape, dtype=torch.float32):
    """A trained parameter, one (or one row) a head, in float32 and of the kernel's shape."""
    x = as_tensor(x, name, shape)
    if not x.is_floating_point():
        raise TypeError(f"{name}: expected a floating tensor {shape}, got {x.dtype}")
    expected = 1
    for size in sizes:
        expected *= size
    if x.numel() != expected:
        raise ValueError(f"{name}: expected {shape} = {expected} numbers, got {list(x.shape)}")
    return x.to(dtype).reshape(sizes)


def _gate_parameters(op, tensors, modes, dtype):
    """A_log and dt_bias as the kernel takes them."""
    A_log, dt_bias = modes.A_log, modes.dt_bias
    if modes.gate == "pre":
        return None, None
    gate = tensors[op.first(lambda x: x.kind == "gate")]
    if A_log is not None:
        A_log = _head(A_log, "A_log", (gate.shape[2],), "[HV]", dtype)
    if dt_bias is None:
        dt_bias = torch.zeros(gate.shape[2:], dtype=dtype, device=gate.device)
    else:
        dt_bias = _head(dt_bias, "dt_bias", gate.shape[2:], "[HV, K]" if gate.dim() == 4 else "[HV]", dtype)
    return A_log, dt_bias


def _scale(scale):
    if isinstance(scale, torch.Tensor) and scale.requires_grad:
        raise ValueError("scale: expected a number, which has no gradient; got a tensor that requires one")
    try:
        return None if scale is None else float(scale)
    except OverflowError:
        raise ValueError("scale: expected a finite number, got one that is too large for a float") from None
    except (TypeError, ValueError):
        raise TypeError(f"scale: expected a number, got {type(scale).__name__}") from None


def refuse_tangents(name, tensors):
    """Without gradients torch would run an op on dual tensors as if they had no tangents."""
    if any(x is not None and _has_tangent(x) for x in tensors):
        raise NotImplementedError(f"{name}: derivatives in forward mode (jvp, dual tensors) are not there")


def _has_tangent(x):
    levels = {transform.level() for transform in _functorch.get_interpreter_stack() or ()
              if transform.key() == _functorch.TransformType.Jvp}
    while _functorch.is_functorch_wrapped_tensor(x):
        if _functorch.maybe_get_level(x) in levels:
            return True
        x = _functorch.get_unwrapped(x)
    return forward_ad.unpack_dual(x).tangent is not None


def _prepare(name, tensors, modes, cu_seqlens):
    op = OPS[name]
    device = chosen()
    if modes.l2norm or modes.state_v_first:
        check_flag("use_qk_l2norm_in_kernel", modes.l2norm)
        check_flag("state_v_first", modes.state_v_first)
    formats = (torch.float64,) if device == "interpreter" else _FORMATS
    tensors = _inputs(op, tensors, formats)
    A_log, dt_bias = _gate_parameters(op, tensors, modes, formats[0])
    if cu_seqlens is not None:
        cu_seqlens = as_tensor(cu_seqlens, "cu_seqlens", "[N + 1]")
        _check(cu_seqlens, "cu_seqlens", "[N + 1]", 1)
        if cu_seqlens.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"cu_seqlens: expected int32 or int64 [N + 1], got {cu_seqlens.dtype}")
        if cu_seqlens.shape[0] == 0:
            raise ValueError("cu_seqlens: expected [N + 1], one number at least, got [0]")
    return tensors, A_log, dt_bias, cu_seqlens, (modes.gate, modes.lower_bound, modes.beta, bool(modes.l2norm),
                                                 bool(modes.state_v_first), device)


def call(name, tensors, modes=Modes(), scale=None, initial_state=None, output_final_state=False, cu_seqlens=None,
         decode=False, states_every=0):
    """Runs one op of the table: (o, final state or None, [B, NT, HV, K, V] of states or None)."""
    tensors, A_log, dt_bias, cu_seqlens, flags = _prepare(name, tensors, modes, cu_seqlens)
    if initial_state is not None:
        shape = "[N, HV, V, K]" if modes.state_v_first else "[N, HV, K, V]"
        initial_state = as_tensor(initial_state, "initial_state", shape)
        _check(initial_state, "initial_state", shape, 4)
        if not initial_state.is_floating_point():
            raise TypeError(f"initial_state: expected a floating tensor, got {initial_state.dtype}")
        initial_state = initial_state.to(torch.float64 if flags[-1] == "interpreter" else torch.float32)
    if forward_ad._current_level >= 0:
        refuse_tangents(name, (*tensors, A_log, dt_bias, initial_state))
    arguments = (*tensors, A_log, dt_bias, initial_state, cu_seqlens, _scale(scale), *flags, decode,
                 bool(output_final_state))
    needs_gradient = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (*tensors, A_log, dt_bias, initial_state))
    if not needs_gradient and not states_every:
        if _is_eager(tensors):
            o, final_state = KERNELS[name].inference(*arguments)
            return o, final_state if output_final_state else None, None
        if not torch.jit.is_tracing():  # what is traced may be given tensors with gradients later
            o, final_state = INFERENCE[name](*arguments)
            return o, final_state if output_final_state else None, None
    o, final_state, states = FORWARD[name](*arguments, states_every)
    return (o, final_state if output_final_state else None,
            _by_batch(states, o, states_every) if states_every else None)


def call_named(names, *args, **options):
    """call(), where the caller knows some of the op's tensors by other names: {the op's: the caller's}."""
    try:
        return call(*args, **options)
    except (TypeError, ValueError) as error:
        name, colon, rest = str(error).partition(":")
        raise type(error)(names.get(name, name) + colon + rest) from None


def _is_eager(tensors):
    """Nothing looks on: no compiler, no tracer, no dispatch mode, no transform, no kind of tensor but torch's own. Then
    torch's dispatcher is left out, which costs a call of one token a fifth of its time."""
    return (not torch.compiler.is_compiling() and not torch._C._is_tracing() and type(tensors[0]) is torch.Tensor
            and not torch._C._len_torch_dispatch_stack() and not torch._C._are_functorch_transforms_active())
