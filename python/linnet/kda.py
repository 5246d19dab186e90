"""Kimi Delta Attention: S <- exp(g) S; S <- S + beta k (v - S^T k)^T; o = scale S^T q."""

from ._call import Modes, beta_mode, call, check_chunk, gate_modes, interval, refuse
from ._pool import decode_in_place
from ._public import public


@public
def chunk_kda(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
              use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
              allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False,
              return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None,
              cp_context=None, use_graph=False, max_num_seqs=None, A_log=None, dt_bias=None, chunk_size=64):
    """Kimi Delta Attention, chunk by chunk. Differentiable in every tensor.

    q, k: [B, T, H, K]. v: [B, T, HV, V], HV a multiple of H. beta: [B, T, HV], or its logit with
        use_beta_sigmoid_in_kernel (twice its sigmoid with allow_neg_eigval).
    g: [B, T, HV, K], the logarithm of the decay; with use_gate_in_kernel the input of the gate
        -exp(A_log) softplus(g + dt_bias), or with lower_bound in [-5, 0) of lower_bound sigmoid(exp(A_log) (g + dt_bias)).
    A_log: [HV]. dt_bias: [HV * K] or None.
    scale: of the output; None: K**-0.5.
    initial_state: [N, HV, K, V], one a sequence; [N, HV, V, K] with state_v_first. None: zero.
    use_qk_l2norm_in_kernel: q and k are divided by their l2 norm first.
    cu_seqlens: [N + 1], where sequences packed into B = 1 begin and end.
    return_intermediate_states: also the states at the start of every chunk_size tokens, [B, NT, HV, K, V], without
        gradient; a number instead of True: of every so many tokens.
    disable_recompute, safe_gate and lower_bound without use_gate_in_kernel, cu_seqlens_cpu, use_graph and max_num_seqs
        change nothing here: a backward always computes what it needs from the inputs, and kernels find sequences on
        the device.

    Returns o [B, T, HV, V] and the final state, float32 as initial_state's shape, or None.
    """
    refuse("cp_context", cp_context)
    if not isinstance(use_graph, bool):
        raise TypeError(f"use_graph: expected True or False, got {type(use_graph).__name__}")
    check_chunk(chunk_size)
    modes = Modes(beta=beta_mode(use_beta_sigmoid_in_kernel, allow_neg_eigval), l2norm=use_qk_l2norm_in_kernel,
                  state_v_first=state_v_first,
                  **gate_modes(use_gate_in_kernel, A_log, dt_bias, lower_bound, safe_gate))
    o, final_state, states = call("kda", (q, k, v, g, beta), modes, scale, initial_state, output_final_state,
                                  cu_seqlens, states_every=interval(return_intermediate_states, chunk_size))
    return (o, final_state) if states is None else (o, final_state, states)


@public
def fused_recurrent_kda(q, k, v, g, beta, A_log=None, dt_bias=None, scale=None, initial_state=None,
                        output_final_state=False, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
                        use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, lower_bound=None,
                        state_v_first=False, cu_seqlens=None, *, inplace_final_state=False, ssm_state_indices=None,
                        num_accepted_tokens=None):
    """Kimi Delta Attention, token by token: for decoding. Arguments and results as of chunk_kda, and

    inplace_final_state: initial_state is a pool [P, HV, K, V] that is read and written in place, and returned.
    ssm_state_indices: [N], the pool's row of each sequence, -1 leaving one out; or for drafts [N, S], the row the state
        after each token goes to. num_accepted_tokens: [N], how many tokens of the last draft hold: a sequence starts
        from row ssm_state_indices[n, num_accepted_tokens[n] - 1].
    """
    modes = Modes(beta=beta_mode(use_beta_sigmoid_in_kernel, allow_neg_eigval), l2norm=use_qk_l2norm_in_kernel,
                  state_v_first=state_v_first, **gate_modes(use_gate_in_kernel, A_log, dt_bias, lower_bound, False))
    if inplace_final_state or ssm_state_indices is not None or num_accepted_tokens is not None:
        return decode_in_place("kda", (q, k, v, g, beta), modes, scale, initial_state, ssm_state_indices,
                               num_accepted_tokens, cu_seqlens), initial_state
    return call("kda", (q, k, v, g, beta), modes, scale, initial_state, output_final_state, cu_seqlens,
                decode=True)[:2]
