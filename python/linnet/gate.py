"""KDA's gate on its own, for code that computes it before the call; the kernels have it built in."""

import torch.nn.functional as F
from torch import float32

from ._call import _head, gate_modes


def fused_kda_gate(g, A_log=None, dt_bias=None, lower_bound=None, output_dtype=float32):
    """The logarithm of the decay from a gate's input, as chunk_kda computes it with use_gate_in_kernel.

    g: [..., HV, K]. A_log: [HV]. dt_bias: [HV * K] or None. -exp(A_log) softplus(g + dt_bias); with lower_bound in
    [-5, 0) lower_bound sigmoid(exp(A_log) (g + dt_bias)), where A_log None means no factor. Differentiable.
    """
    gate_modes(True, A_log, dt_bias, lower_bound, False)
    x = g.float()
    if dt_bias is not None:
        x = x + _head(dt_bias, "dt_bias", g.shape[-2:], "[HV, K]")
    rate = None if A_log is None else _head(A_log, "A_log", (g.shape[-2], 1), "[HV]").exp()
    if lower_bound is None:
        return (-rate * F.softplus(x)).to(output_dtype)
    return (lower_bound * (x if rate is None else rate * x).sigmoid()).to(output_dtype)
