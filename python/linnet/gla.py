"""Linear attention with decays: S <- exp(g) S + k v^T; o = scale S^T q.

Shapes, everywhere in this file: q, k [B, T, H, K]; v [B, T, HV, V], HV a multiple of H; states [N, HV, K, V], float32,
one a sequence ([N, HV, V, K] with state_v_first); cu_seqlens [N + 1] for sequences packed into B = 1. scale None is
K**-0.5. Each function returns o [B, T, HV, V] and the final state, or None without output_final_state.
"""

import torch

from ._call import Modes, call, call_named, check_chunk, checked, refuse
from ._public import public


@public
def chunk_gla(q, k, v, g, scale=None, initial_state=None, output_final_state=False, state_v_first=False,
              cu_seqlens=None, cu_seqlens_cpu=None):
    """Gated Linear Attention. g: [B, T, HV, K], the logarithm of a decay a channel."""
    return call("gla", (q, k, v, g), Modes(state_v_first=state_v_first), scale, initial_state, output_final_state,
                cu_seqlens)[:2]


@public
def fused_recurrent_gla(q, k, v, gk=None, gv=None, scale=None, initial_state=None, output_final_state=False,
                        reverse=False, state_v_first=False, cu_seqlens=None):
    """Gated Linear Attention, token by token. gk: as chunk_gla's g; None: no decay."""
    refuse("gv", gv)
    refuse("reverse", reverse, False)
    name, tensors = ("linear_attn", (q, k, v)) if gk is None else ("gla", (q, k, v, gk))
    return call_named({"g": "gk"}, name, tensors, Modes(state_v_first=state_v_first), scale, initial_state,
                      output_final_state, cu_seqlens, decode=True)[:2]


def _simple(q, k, v, g, g_gamma):
    """Which op a decay a token, a decay a head, both or none of them make, after how its tensors are called here."""
    if g is None:
        return ({}, "linear_attn", (q, k, v)) if g_gamma is None else ({"g": "g_gamma"}, "retention", (q, k, v, g_gamma))
    if g_gamma is not None:
        g, g_gamma = checked(g, "g", "[B, T, HV]"), checked(g_gamma, "g_gamma", "[HV]")
        if g_gamma.shape[0] != g.shape[2]:
            raise ValueError(f"g_gamma: expected [HV] = [{g.shape[2]}], got {list(g_gamma.shape)}")
        g = g + g_gamma
    return {}, "simple_gla", (q, k, v, g)


@public
def chunk_simple_gla(q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False,
                     state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, *, chunk_size=None):
    """One decay a token and head (the form of Mamba-2). g: [B, T, HV], g_gamma: [HV], logarithms of decays.

    chunk_size and cu_seqlens_cpu change nothing here.
    """
    check_chunk(chunk_size, None)
    return call_named(*_simple(q, k, v, g, g_gamma), Modes(state_v_first=state_v_first), scale, initial_state,
                      output_final_state, cu_seqlens)[:2]


@public
def fused_recurrent_simple_gla(q, k, v, g=None, g_gamma=None, scale=None, initial_state=None,
                               output_final_state=False, reverse=False, state_v_first=False, cu_seqlens=None):
    """One decay a token and head, token by token."""
    refuse("reverse", reverse, False)
    return call_named(*_simple(q, k, v, g, g_gamma), Modes(state_v_first=state_v_first), scale, initial_state,
                      output_final_state, cu_seqlens, decode=True)[:2]


def _heads(v):
    """0, 1, ... for every value head."""
    v = checked(v, "v", "[B, T, HV, V]")
    return torch.arange(v.shape[2], dtype=torch.float32, device=v.device)


def _retention_decay(v):
    """RetNet's: head h forgets 2**(-5 - h) a token."""
    return (1 - 2.0 ** (-5.0 - _heads(v))).log()


@public
def chunk_retention(q, k, v, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None, *,
                    chunk_size=None):
    """RetNet: head h decays by 1 - 2**(-5 - h) a token. chunk_size changes nothing here."""
    check_chunk(chunk_size, None)
    return call("retention", (q, k, v, _retention_decay(v)), Modes(), scale, initial_state,
                output_final_state, cu_seqlens)[:2]


@public
def fused_recurrent_retention(q, k, v, scale=None, initial_state=None, output_final_state=False, reverse=False,
                              state_v_first=False, cu_seqlens=None):
    """RetNet, token by token."""
    refuse("reverse", reverse, False)
    return call("retention", (q, k, v, _retention_decay(v)), Modes(state_v_first=state_v_first),
                scale, initial_state, output_final_state, cu_seqlens, decode=True)[:2]


def _lightning_decay(v, layer_idx, num_layers):
    for name, number, least in (("layer_idx", layer_idx, 0), ("num_layers", num_layers, 1)):
        if not isinstance(number, int) or number < least:
            raise ValueError(f"{name}: expected a whole number from {least}, got {number}")
    if layer_idx >= num_layers:
        raise ValueError(f"layer_idx: expected a number below num_layers = {num_layers}, got {layer_idx}")
    heads = _heads(v)
    return -8 / max(1, heads.shape[0]) * (1 - layer_idx / num_layers) * heads


@public
def chunk_lightning_attn(q, k, v, layer_idx, num_layers, scale=None, initial_state=None, output_final_state=False,
                         cu_seqlens=None, *, chunk_size=None):
    """Lightning Attention: head h decays by exp(-8 h / H (1 - layer_idx / num_layers)) a token.

    chunk_size changes nothing here.
    """
    check_chunk(chunk_size, None)
    g = _lightning_decay(v, layer_idx, num_layers)
    return call("lightning_attn", (q, k, v, g), Modes(), scale, initial_state, output_final_state, cu_seqlens)[:2]


@public
def fused_recurrent_lightning_attn(q, k, v, layer_idx, num_layers, scale=None, initial_state=None,
                                   output_final_state=False, reverse=False, cu_seqlens=None):
    """Lightning Attention, token by token."""
    refuse("reverse", reverse, False)
    g = _lightning_decay(v, layer_idx, num_layers)
    return call("lightning_attn", (q, k, v, g), Modes(), scale, initial_state, output_final_state, cu_seqlens,
                decode=True)[:2]


def _linear(q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens, decode):
    if not normalize:
        return call("linear_attn", (q, k, v), Modes(), scale, initial_state, output_final_state, cu_seqlens,
                    decode=decode)[:2]
    state, keys = initial_state, None
    if isinstance(initial_state, tuple):
        if len(initial_state) != 2:
            raise ValueError(f"initial_state: expected a pair of states and sums of keys, got {len(initial_state)} tensors")
        state, keys = initial_state
    if keys is not None:
        keys = checked(keys, "initial_state[1]", "[N, 1, H, K]").squeeze(1).unsqueeze(-1)
    q, v = checked(q, "q", "[B, T, H, K]"), checked(v, "v", "[B, T, HV, V]")
    o, state, _ = call("linear_attn", (q, k, v), Modes(), scale, state, output_final_state, cu_seqlens,
                       decode=decode)
    # The sum of keys is the state of the same recurrence whose value is 1: [N, 1, H, K] outside, [N, H, K, 1] inside.
    ones = v.new_ones(()).expand(*q.shape[:3], 1)
    total, keys, _ = call("linear_attn", (q, k, ones), Modes(), scale,
                          keys, output_final_state, cu_seqlens, decode=decode)
    groups = v.shape[2] // q.shape[2]
    o = o / (total + 1e-10).repeat_interleave(groups, 2)
    return o, (state, keys.squeeze(-1).unsqueeze(1)) if output_final_state else None


@public
def chunk_linear_attn(q, k, v, scale=None, initial_state=None, output_final_state=False, normalize=True,
                      cu_seqlens=None):
    """Linear attention, no decay. normalize: o is divided by scale q times the sum of the keys so far, and states are
    pairs of [N, HV, K, V] and the sum of the keys [N, 1, H, K]."""
    return _linear(q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens, decode=False)


@public
def fused_recurrent_linear_attn(q, k, v, scale=None, initial_state=None, output_final_state=False, reverse=False,
                                normalize=False, cu_seqlens=None):
    """Linear attention, token by token."""
    refuse("reverse", reverse, False)
    return _linear(q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens, decode=True)
