"""linnet.check: an op held against the law it was made from, run token by token in float64."""

import math

import torch
import torch.nn.functional as F

from . import _C, _device
from ._call import call
from ._explain import row_of

_LIMITS = {torch.float32: (2e-6, 2e-5), torch.bfloat16: (0.005, 0.015), torch.float16: (0.002, 0.004)}
_CASES = (  # name, format, lengths, packed, key heads, value heads
    ("a batch with initial states", torch.float32, (37, 37), False, 2, 2),
    ("packed sequences, one empty, shared keys", torch.float32, (5, 0, 33, 1), True, 1, 2),
    ("bfloat16", torch.bfloat16, (70,), False, 2, 2),
)


class _State:
    """The state of one head, in numbers."""

    def __init__(self, S):
        self.S = S

    def decay(self, g):
        self.S = self.S * (torch.exp(g).reshape(-1, 1) if isinstance(g, torch.Tensor) else math.exp(g))

    def read(self, w):
        return w @ self.S

    def write(self, u, x):
        self.S = self.S + torch.outer(u, x)


def _token_loop(op, tensors, lengths, initial_state):
    """The user's function itself, on numbers, for every head, token after token."""
    constants = {"scale": initial_state.shape[2] ** -0.5}
    heads = initial_state.shape[1]

    def step(S, *values):
        given = iter(values)
        state = _State(S)
        o = op.function(state, *(constants[name] if name in constants else next(given) for name in op.kinds))
        return state.S, o

    def rows(x, kind, t):  # of every value head
        row = x if kind.scope == "head" else x.flatten(0, 1)[t]
        return row.repeat_interleave(heads // row.shape[0], 0)

    kinds = [kind for name, kind in op.kinds.items() if name not in constants]
    outputs, states, t = [], [], 0
    for n, length in enumerate(lengths):
        S = initial_state[n]
        for _ in range(length):
            S, o = torch.func.vmap(step)(S, *(rows(x, kind, t) for x, kind in zip(tensors, kinds)))
            outputs.append(o)
            t += 1
        states.append(S)
    return torch.stack(outputs), torch.stack(states)


def _interpreted(row, tensors, cu_seqlens, initial_state):
    with _device.device("interpreter"):
        o, state, _ = call(row.name, tensors, initial_state=initial_state, output_final_state=True,
                           cu_seqlens=cu_seqlens)
    return o.flatten(0, 1), state


def _make(x, sizes, dtype):
    """An input of the kind models produce."""
    shape = [sizes[axis] for axis in x.axes]
    made = torch.randn(shape)
    if x.kind == "gate" or x.axes == "U":
        return F.logsigmoid(made) / 4
    if x.kind == "strength":
        return torch.rand(shape)
    if x.kind == "head":
        return made
    return (F.normalize(made, dim=-1) if x.axes[-1] == "K" else made).to(dtype)


def _error(x, reference):
    x, reference = x.double(), reference.double()
    return ((x - reference).square().mean().sqrt() / (reference.square().mean().sqrt() + 1e-12)).item()


def check(op, device="cpu", seed=0):
    """Runs an op on random inputs and holds it against its law: outputs, final states, every gradient, decode.

    A law of your own is held against your function itself, run on numbers token by token with torch's autograd; a
    function of this package against the derived graph run in float64 by the interpreter. device: as of linnet.device.
    Returns a table of what was compared, as text; raises linnet.Error with it if something is off.
    """
    row = row_of(op)
    lines, failed = [], 0
    for name, dtype, lengths, packed, H, HV in _CASES:
        torch.manual_seed(seed)
        sizes = {"B": 1 if packed else len(lengths), "T": sum(lengths) if packed else lengths[0], "H": H, "U": HV,
                 "K": 32, "V": 16}
        tensors = [_make(x, sizes, dtype).requires_grad_() for x in row.inputs]
        state = torch.randn(len(lengths), HV, 32, 16, requires_grad=True)
        cu_seqlens = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()]) if packed else None
        wide = [x.detach().double().requires_grad_() for x in (*tensors, state)]
        truth = (_token_loop(op, wide[:-1], lengths, wide[-1]) if hasattr(op, "function")
                 else _interpreted(row, wide[:-1], cu_seqlens, wide[-1]))
        weights = [torch.randn(x.shape).to(dtype if i == 0 else torch.float32) for i, x in enumerate(truth)]
        wanted = torch.autograd.grad(truth, wide, [w.double() for w in weights], materialize_grads=True)
        options = {"initial_state": state, "output_final_state": True, "cu_seqlens": cu_seqlens}
        with _device.device(device):
            o, final, _ = call(row.name, tensors, **options)
            gradients = torch.autograd.grad((o.flatten(0, 1), final), (*tensors, state), weights)
            with torch.no_grad():
                decoded = call(row.name, tensors, decode=True, **options)
        limit, gradient_limit = _LIMITS[dtype]
        names = [x.name for x in row.inputs]
        pairs = [("o", o.flatten(0, 1), truth[0], limit), ("final state", final, truth[1], limit),
                 ("decode: o", decoded[0].flatten(0, 1), truth[0], limit),
                 ("decode: state", decoded[1], truth[1], limit),
                 *((f"d{n}", x, y, gradient_limit) for n, x, y in zip((*names, "initial_state"), gradients, wanted))]
        lines.append(f"{name}, {'+'.join(map(str, lengths))} tokens on {device}")
        for what, got, expected, most in pairs:
            error = _error(got, expected)
            passed = error < most  # false for NaN
            failed += not passed
            lines.append(f"  {'ok  ' if passed else 'FAIL'} {what}: {error:.1e}, limit {most:g}")
    table = "\n".join(lines)
    if failed:
        raise _C.Error(f"{row.law}: {failed} results differ from the law\n{table}")
    return table
