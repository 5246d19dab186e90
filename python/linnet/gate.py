"""Gates on their own, for code that computes them before the call; the kernels have them built in."""

import torch.nn.functional as F
from torch import float32

from ._call import _head, as_tensor, gate_modes
from ._public import public


@public
def fused_kda_gate(g, A_log=None, dt_bias=None, lower_bound=None, output_dtype=float32):
    """The logarithm of the decay from a gate's input, as chunk_kda computes it with use_gate_in_kernel.

    g: [..., HV, K]. A_log: [HV]. dt_bias: [HV * K] or None. -exp(A_log) softplus(g + dt_bias); with lower_bound in
    [-5, 0) lower_bound sigmoid(exp(A_log) (g + dt_bias)), where A_log None means no factor. Differentiable.
    """
    gate_modes(True, A_log, dt_bias, lower_bound, False)
    x = _input(g, "[..., HV, K]", 2)
    if dt_bias is not None:
        x = x + _head(dt_bias, "dt_bias", x.shape[-2:], "[HV, K]")
    rate = None if A_log is None else _head(A_log, "A_log", (x.shape[-2], 1), "[HV]").exp()
    if lower_bound is None:
        return (-rate * F.softplus(x)).to(output_dtype)
    return (float(lower_bound) * (x if rate is None else rate * x).sigmoid()).to(output_dtype)


kda_gate = fused_kda_gate


@public
def fused_gdn_gate(g, A_log, dt_bias=None, output_dtype=float32):
    """-exp(A_log) softplus(g + dt_bias), as chunk_gated_delta_rule computes it with use_gate_in_kernel.

    g: [..., HV]. A_log: [HV]. dt_bias: [HV] or None. Differentiable.
    """
    gate_modes(True, A_log, dt_bias, None, False)
    x = _input(g, "[..., HV]", 1)
    if dt_bias is not None:
        x = x + _head(dt_bias, "dt_bias", x.shape[-1:], "[HV]")
    return (-_head(A_log, "A_log", x.shape[-1:], "[HV]").exp() * F.softplus(x)).to(output_dtype)


def _input(g, shape, least_rank):
    g = as_tensor(g, "g", shape)
    if g.dim() < least_rank:
        raise ValueError(f"g: expected {shape}, got {list(g.shape)}")
    if not g.is_floating_point():
        raise TypeError(f"g: expected a floating tensor {shape}, got {g.dtype}")
    return g.float()
