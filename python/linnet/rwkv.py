"""RWKV-6, RWKV-7 and the diagonal-plus-low-rank delta rule it is a case of.

Shapes, everywhere in this file: r or q, k, a, b [B, T, H, K]; v [B, T, H, V]; w or gk [B, T, H, K], the logarithm of a
decay a channel; states [N, H, K, V], float32, one a sequence; cu_seqlens [N + 1] for sequences packed into B = 1.
Each function returns o [B, T, H, V] and the final state, or None without output_final_state.
"""

from ._call import Modes, call, call_named, check_chunk, checked, refuse
from ._public import public


@public
def chunk_rwkv6(r, k, v, w, u, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None,
                cu_seqlens_cpu=None, *, chunk_size=None):
    """RWKV-6: o = scale (S^T r + (r u . k) v); S <- exp(w) S + k v^T. u: [H, K], the bonus of the present token.

    chunk_size and cu_seqlens_cpu change nothing here.
    """
    check_chunk(chunk_size, None)
    return call("rwkv6", (r, k, v, w, u), Modes(), scale, initial_state, output_final_state, cu_seqlens)[:2]


@public
def fused_recurrent_rwkv6(r, k, v, w, u, scale=None, initial_state=None, output_final_state=False, reverse=False,
                          cu_seqlens=None):
    """RWKV-6, token by token."""
    refuse("reverse", reverse, False)
    return call("rwkv6", (r, k, v, w, u), Modes(), scale, initial_state, output_final_state, cu_seqlens,
                decode=True)[:2]


@public
def chunk_rwkv7(r, w, k, v, a, b, scale=1.0, initial_state=None, output_final_state=False, cu_seqlens=None,
                cu_seqlens_cpu=None, safe_gate=False, chunk_size=None, disable_recompute=False, cp_context=None,
                lower_bound=None):
    """RWKV-7: S <- exp(w) S + b (S^T a)^T + k v^T; o = scale S^T r.

    safe_gate, chunk_size, disable_recompute and lower_bound are promises and wishes that change nothing here.
    """
    refuse("cp_context", cp_context)
    return call("rwkv7", (r, k, v, a, b, w), Modes(), scale, initial_state, output_final_state, cu_seqlens)[:2]


@public
def fused_recurrent_rwkv7(r, w, k, v, a, b, scale=None, initial_state=None, output_final_state=True,
                          cu_seqlens=None):
    """RWKV-7, token by token. scale None is K**-0.5."""
    return call("rwkv7", (r, k, v, a, b, w), Modes(), scale, initial_state, output_final_state, cu_seqlens,
                decode=True)[:2]


@public
def fused_mul_recurrent_rwkv7(r, w, k, v, kk, a, scale=1.0, initial_state=None, output_final_state=False,
                              reverse=False, cu_seqlens=None):
    """RWKV-7, token by token, from the removal key kk [B, T, H, K] and its strength a: a <- -kk, b <- kk a."""
    refuse("reverse", reverse, False)
    kk, a = (checked(x, name, "[B, T, H, K]") for name, x in (("kk", kk), ("a", a)))
    if not a.is_floating_point():
        raise TypeError(f"a: expected float32, bfloat16 or float16, got {a.dtype}")
    if (a.shape, a.device) != (kk.shape, kk.device):
        name, x, other = ("kk", kk, a) if a.shape == getattr(k, "shape", None) else ("a", a, kk)
        raise ValueError(f"{name}: expected [B, T, H, K] = {list(other.shape)} on {other.device}, got {list(x.shape)} on "
                         f"{x.device}")
    return call_named({"a": "kk", "b": "a"}, "rwkv7", (r, k, v, -kk, kk * a, w), Modes(), scale, initial_state,
                      output_final_state, cu_seqlens, decode=True)[:2]


@public
def chunk_dplr_delta_rule(q, k, v, a, b, gk, scale=None, initial_state=None, output_final_state=False,
                          cu_seqlens=None, cu_seqlens_cpu=None, safe_gate=False, chunk_size=None,
                          disable_recompute=False, cp_context=None, lower_bound=None):
    """S <- exp(gk) S + b (S^T a)^T + k v^T; o = scale S^T q. scale None is K**-0.5."""
    refuse("cp_context", cp_context)
    return call("dplr_delta_rule", (q, k, v, a, b, gk), Modes(), scale, initial_state, output_final_state,
                cu_seqlens)[:2]


@public
def fused_recurrent_dplr_delta_rule(q, k, v, a, b, gk, scale=None, initial_state=None, output_final_state=False,
                                    reverse=False, cu_seqlens=None):
    """The diagonal-plus-low-rank delta rule, token by token."""
    refuse("reverse", reverse, False)
    return call("dplr_delta_rule", (q, k, v, a, b, gk), Modes(), scale, initial_state, output_final_state,
                cu_seqlens, decode=True)[:2]
