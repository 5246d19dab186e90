"""The delta rules: what the state already says about a key is taken off the value before it is written.

Shapes, everywhere in this file: q, k [B, T, H, K]; v [B, T, HV, V], HV a multiple of H; beta [B, T, HV]; states
[N, HV, K, V], float32, one a sequence; cu_seqlens [N + 1] for sequences packed into B = 1. scale None is K**-0.5.
Each function returns o [B, T, HV, V] and the final state, or None without output_final_state.
"""

import torch

from ._call import Modes, as_tensor, beta_mode, call, call_named, check_chunk, checked, gate_modes, interval, refuse
from ._pool import decode_in_place
from ._public import public


def _ones(v):
    v = as_tensor(v, "v", "[B, T, HV, V]")
    return v.new_ones(v.shape[:3])


@public
def chunk_delta_rule(q, k, v, beta, scale=None, initial_state=None, output_final_state=False,
                     use_qk_l2norm_in_kernel=False, cu_seqlens=None, cu_seqlens_cpu=None, *, chunk_size=64):
    """DeltaNet: S <- S + beta k (v - S^T k)^T; o = scale S^T q. chunk_size and cu_seqlens_cpu change nothing here."""
    check_chunk(chunk_size)
    return call("delta_rule", (q, k, v, beta), Modes(l2norm=use_qk_l2norm_in_kernel), scale, initial_state,
                output_final_state, cu_seqlens)[:2]


@public
def fused_recurrent_delta_rule(q, k, v, beta=None, scale=None, initial_state=None, output_final_state=False,
                               use_qk_l2norm_in_kernel=False, cu_seqlens=None):
    """DeltaNet, token by token. beta None is 1."""
    return call("delta_rule", (q, k, v, _ones(v) if beta is None else beta), Modes(l2norm=use_qk_l2norm_in_kernel),
                scale, initial_state, output_final_state, cu_seqlens, decode=True)[:2]


@public
def chunk_gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
                           use_qk_l2norm_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False,
                           state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None,
                           cp_context=None, *, use_gate_in_kernel=False, A_log=None, dt_bias=None, chunk_size=64):
    """Gated DeltaNet: S <- exp(g) S; S <- S + beta k (v - S^T k)^T; o = scale S^T q.

    g: [B, T, HV], the logarithm of the decay; with use_gate_in_kernel the input of -exp(A_log) softplus(g + dt_bias),
    A_log and dt_bias [HV]. state_v_first: states are [N, HV, V, K]. cu_seqlens_cpu and chunk_indices are not needed.
    """
    refuse("cp_context", cp_context)
    check_chunk(chunk_size)
    modes = Modes(beta=beta_mode(use_beta_sigmoid_in_kernel, allow_neg_eigval), l2norm=use_qk_l2norm_in_kernel,
                  state_v_first=state_v_first, **gate_modes(use_gate_in_kernel, A_log, dt_bias, None, False))
    return call("gated_delta_rule", (q, k, v, g, beta), modes, scale, initial_state, output_final_state,
                cu_seqlens)[:2]


chunk_gdn = chunk_gated_delta_rule


@public
def fused_recurrent_gated_delta_rule(q, k, v, g=None, gk=None, gv=None, beta=None, scale=None, initial_state=None,
                                     output_final_state=False, use_qk_l2norm_in_kernel=False,
                                     use_gate_in_kernel=False, A_log=None, dt_bias=None,
                                     use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, state_v_first=False,
                                     cu_seqlens=None, *, inplace_final_state=False, ssm_state_indices=None,
                                     num_accepted_tokens=None):
    """Gated DeltaNet, token by token. gk [B, T, HV, K] is a decay a channel, instead of g or beside it; beta None is 1.

    inplace_final_state, ssm_state_indices, num_accepted_tokens: states in a pool, as of fused_recurrent_kda.
    """
    refuse("gv", gv)
    modes = Modes(beta=beta_mode(use_beta_sigmoid_in_kernel, allow_neg_eigval), l2norm=use_qk_l2norm_in_kernel,
                  state_v_first=state_v_first, **gate_modes(use_gate_in_kernel, A_log, dt_bias, None, False))
    beta = _ones(v) if beta is None else beta
    names = {}
    if gk is not None:
        if use_gate_in_kernel:
            raise ValueError("gk: expected None with use_gate_in_kernel, got a tensor")
        if g is not None:
            g, gk = checked(g, "g", "[B, T, HV]"), checked(gk, "gk", "[B, T, HV, K]")
            if g.shape != gk.shape[:3]:
                raise ValueError(f"g: expected [B, T, HV] = {list(gk.shape[:3])}, got {list(g.shape)}")
            gk = gk + g.unsqueeze(-1)
        name, tensors, names = "kda", (q, k, v, gk, beta), {"g": "gk"}
    elif g is not None:
        name, tensors = "gated_delta_rule", (q, k, v, g, beta)
    elif use_gate_in_kernel:
        raise ValueError("g: expected a tensor [B, T, HV] with use_gate_in_kernel, got None")
    else:
        name, tensors = "delta_rule", (q, k, v, beta)
    if inplace_final_state or ssm_state_indices is not None or num_accepted_tokens is not None:
        return decode_in_place(name, tensors, modes, scale, initial_state, ssm_state_indices, num_accepted_tokens,
                               cu_seqlens), initial_state
    return call_named(names, name, tensors, modes, scale, initial_state, output_final_state, cu_seqlens, decode=True)[:2]


fused_recurrent_gdn = fused_recurrent_gated_delta_rule


@public
def chunk_comba(q, k, v, p, g, beta=None, scale=None, initial_state=None, output_final_state=False,
                use_qk_l2norm_in_kernel=False, cu_seqlens=None, cu_seqlens_cpu=None):
    """Comba: e = v - S^T p before the decay; S <- exp(g) S + beta k e^T; o = scale S^T q.

    p: [B, T, H, K], None: k. g: [B, T, HV], the logarithm of the decay. beta None is 1. The l2 norm is of q, k and p.
    """
    return call("comba", (q, k, v, k if p is None else p, g, _ones(v) if beta is None else beta),
                Modes(l2norm=use_qk_l2norm_in_kernel), scale, initial_state, output_final_state, cu_seqlens)[:2]


@public
def fused_recurrent_comba(q, k, p, v, g, beta=None, scale=None, initial_state=None, output_final_state=False,
                          use_qk_l2norm_in_kernel=False, cu_seqlens=None):
    """Comba, token by token. Mind the order: p comes before v here, as in FLA."""
    return call("comba", (q, k, v, k if p is None else p, g, _ones(v) if beta is None else beta),
                Modes(l2norm=use_qk_l2norm_in_kernel), scale, initial_state, output_final_state, cu_seqlens,
                decode=True)[:2]


@public
def chunk_gdn2(q, k, v, g, b, w, scale=None, initial_state=None, output_final_state=False,
               use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, cu_seqlens=None, cu_seqlens_cpu=None,
               safe_gate=False, lower_bound=None, disable_recompute=False, return_intermediate_states=False,
               state_v_first=False, cp_context=None, *, A_log=None, dt_bias=None, chunk_size=64):
    """GDN-2: S <- exp(g) S; S <- S + k (w v - S^T (b k))^T; o = scale S^T q.

    g: [B, T, HV, K], gates as chunk_kda's. b: [B, T, HV, K], how much is erased. w: [B, T, HV, V], how much is written.
    """
    refuse("cp_context", cp_context)
    check_chunk(chunk_size)
    modes = Modes(l2norm=use_qk_l2norm_in_kernel, state_v_first=state_v_first,
                  **gate_modes(use_gate_in_kernel, A_log, dt_bias, lower_bound, safe_gate))
    o, final_state, states = call("gdn2", (q, k, v, g, b, w), modes, scale, initial_state, output_final_state,
                                  cu_seqlens, states_every=interval(return_intermediate_states, chunk_size))
    return (o, final_state) if states is None else (o, final_state, states)


@public
def fused_recurrent_gdn2(q, k, v, g, b, w, A_log=None, dt_bias=None, scale=None, initial_state=None,
                         output_final_state=False, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
                         lower_bound=None, state_v_first=False, cu_seqlens=None):
    """GDN-2, token by token."""
    modes = Modes(l2norm=use_qk_l2norm_in_kernel, state_v_first=state_v_first,
                  **gate_modes(use_gate_in_kernel, A_log, dt_bias, lower_bound, False))
    return call("gdn2", (q, k, v, g, b, w), modes, scale, initial_state, output_final_state, cu_seqlens,
                decode=True)[:2]


@public
def chunk_gated_delta_product(q, k, v, g, beta, num_householder, scale=None, initial_state=None,
                              output_final_state=False, use_qk_l2norm_in_kernel=False, cu_seqlens=None,
                              cu_seqlens_cpu=None, cp_context=None):
    """Gated DeltaProduct: one decay and n = num_householder delta rule steps a token.

    q: [B, T, H, K]. k: [B, T n, H, K], v: [B, T n, HV, V], beta: [B, T n, HV], a token's steps one after the other.
    g: [B, T, HV], the logarithm of the decay, or None. cu_seqlens counts tokens.
    """
    refuse("cp_context", cp_context)
    return _delta_product(q, k, v, g, beta, num_householder, scale, initial_state, output_final_state,
                          use_qk_l2norm_in_kernel, cu_seqlens, decode=False)


@public
def fused_recurrent_gated_delta_product(q, k, v, g, beta, num_householder, scale=None, initial_state=None,
                                        output_final_state=False, use_qk_l2norm_in_kernel=False, cu_seqlens=None):
    """Gated DeltaProduct, token by token."""
    return _delta_product(q, k, v, g, beta, num_householder, scale, initial_state, output_final_state,
                          use_qk_l2norm_in_kernel, cu_seqlens, decode=True)


def _delta_product(q, k, v, g, beta, n, scale, initial_state, output_final_state, l2norm, cu_seqlens, decode):
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"num_householder: expected a whole number from 1, got {n}")
    q, k, v, beta = (checked(x, name, shape) for x, name, shape in (
        (q, "q", "[B, T, H, K]"), (k, "k", "[B, T n, H, K]"), (v, "v", "[B, T n, HV, V]"), (beta, "beta", "[B, T n, HV]")))
    for name, x in (("k", k), ("v", v), ("beta", beta)):
        if x.shape[1] != q.shape[1] * n:
            raise ValueError(f"{name}: expected T x num_householder = {q.shape[1] * n} steps on axis 1, "
                             f"got {list(x.shape)}")
    if g is None:
        g = torch.zeros(q.shape[0], q.shape[1], v.shape[2], dtype=torch.float32, device=q.device)
    g = checked(g, "g", "[B, T, HV]")
    rest = (Modes(l2norm=l2norm), scale, initial_state, output_final_state)
    if n == 1:
        return call("gated_delta_rule", (q, k, v, g, beta), *rest, cu_seqlens, decode=decode)[:2]
    if n == 2:
        first, second = (tuple(x[:, i::2] for x in (k, v, beta)) for i in (0, 1))
        names = {name + step: name for name in ("k", "v", "beta") for step in "12"}
        return call_named(names, "gated_delta_product", (q, g, *first, *second), *rest, cu_seqlens, decode=decode)[:2]
    # Steps as tokens: the decay comes with a token's first step, its result with the last.
    g = torch.nn.functional.pad(g.unsqueeze(2), (0, 0, 0, n - 1)).flatten(1, 2)
    if cu_seqlens is not None:
        cu_seqlens = as_tensor(cu_seqlens, "cu_seqlens", "[N + 1]") * n
    o, final_state, _ = call_named({"cu_seqlens": f"cu_seqlens in steps, {n} a token"}, "gated_delta_rule",
                                   (q.repeat_interleave(n, 1), k, v, g, beta), *rest, cu_seqlens, decode=decode)
    return o[:, n - 1::n], final_state
