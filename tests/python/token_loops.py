"""Every recurrence as a loop over tokens in float64, with torch's autograd: what the ops are held against.

Independent of Linnet's code and of the chunk form. Tensors as in the package: [B, T, heads, channels].
"""

import torch
import torch.nn.functional as F


def read(S, w):  # S^T w for every head
    return torch.einsum("hkv,hk->hv", S, w)


def write(u, x):  # u x^T for every head
    return torch.einsum("hk,hv->hkv", u, x)


def decay(S, g):
    return S * g.exp().reshape(*g.shape, *([1] * (3 - g.dim())))


def delta(S, k, v, beta):
    return S + write(k, beta[:, None] * (v - read(S, k)))


def kda(S, q, k, v, g, beta):
    S = delta(decay(S, g), k, v, beta)
    return S, read(S, q)


def delta_rule(S, q, k, v, beta):
    S = delta(S, k, v, beta)
    return S, read(S, q)


def gla(S, q, k, v, g):
    S = decay(S, g) + write(k, v)
    return S, read(S, q)


def linear_attn(S, q, k, v):
    S = S + write(k, v)
    return S, read(S, q)


def comba(S, q, k, v, p, g, beta):
    e = v - read(S, p)
    S = decay(S, g) + write(k, beta[:, None] * e)
    return S, read(S, q)


def gdn2(S, q, k, v, g, b, w):
    S = decay(S, g)
    S = S + write(k, w * v - read(S, b * k))
    return S, read(S, q)


def rwkv6(S, q, k, v, g, u):
    o = read(S, q) + (q * u * k).sum(-1, keepdim=True) * v
    return decay(S, g) + write(k, v), o


def rwkv7(S, q, k, v, a, b, g):
    S = decay(S, g) + write(b, read(S, a)) + write(k, v)
    return S, read(S, q)


STEPS = {"kda": kda, "gated_delta_rule": kda, "delta_rule": delta_rule, "gla": gla, "simple_gla": gla,
         "retention": gla, "lightning_attn": gla, "linear_attn": linear_attn, "comba": comba, "gdn2": gdn2,
         "rwkv6": rwkv6, "rwkv7": rwkv7, "dplr_delta_rule": rwkv7}
KEYS = ("q", "k", "p", "a", "b")  # shared by the value heads of a group, unless they have as many heads


def unit(x):
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def activate(g, A_log, dt_bias, lower_bound):
    """The gate of a raw input [B, T, HV(, K)]."""
    y = g if dt_bias is None else g + dt_bias.reshape(g.shape[2:])
    rate = 1 if A_log is None else A_log.exp().reshape(-1, *([1] * (g.dim() - 3)))
    return lower_bound * torch.sigmoid(rate * y) if lower_bound else -rate * F.softplus(y)


def run(op, tensors, scale=None, initial_state=None, lengths=None, l2norm=False):
    """tensors: {name: tensor} by the law's names. Gives o and the final states [N, HV, K, V]."""
    x = {name: t.double() for name, t in tensors.items()}
    B, T, H, K = x["q"].shape
    heads, V = x["v"].shape[2:]
    for name in KEYS:
        if name in x:
            if l2norm and not (op == "gdn2" and name == "b"):
                x[name] = unit(x[name])
            if x[name].shape[2] != heads:
                x[name] = x[name].repeat_interleave(heads // H, 2)
    spans = [(b, 0, T) for b in range(B)]
    if lengths is not None:
        ends = torch.tensor(lengths).cumsum(0).tolist()
        spans = [(0, end - length, end) for length, end in zip(lengths, ends)]
    rows, states = [], []
    for n, (b, start, end) in enumerate(spans):
        S = torch.zeros(heads, K, V, dtype=torch.float64) if initial_state is None else initial_state[n].double()
        for t in range(start, end):
            S, o = STEPS[op](S, *(y[b, t] if y.dim() > 2 else y for y in x.values()))
            rows.append(o * (K**-0.5 if scale is None else scale))
        states.append(S)
    o = torch.stack(rows) if rows else torch.zeros(0, heads, V, dtype=torch.float64)
    return o.reshape(B, T, heads, V), torch.stack(states)
