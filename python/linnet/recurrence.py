"""@linnet.law: a recurrence of your own as an op with gradients, decode and packed sequences. docs/own-recurrence.md."""

import functools

from ._call import Modes, beta_mode, call, gate_modes, interval
from ._law import Kind, LawError, kinds_of, trace
from ._laws import Op, make_input
from ._pool import decode_in_place
from ._public import public
from ._torch_ops import register


class _Law:
    """The decorator, and the kinds of inputs a law's parameters are annotated with."""

    def __call__(self, function):
        return Recurrence(function)

    def key(self, normalised=False, per_value_head=False):
        """A vector over key channels, [B, T, H, K]. normalised: the caller may ask for its l2 norm to be taken.
        per_value_head: [B, T, HV, K]."""
        return Kind("token", "K", not per_value_head, "normalised" if normalised else "")

    def value(self):
        """A vector over value channels, [B, T, HV, V]."""
        return Kind("token", "V")

    def scalar(self):
        """A number, [B, T, HV]."""
        return Kind("token")

    def strength(self):
        """A number in [0, 1] or [0, 2], [B, T, HV]; the kernel may compute it from a logit."""
        return Kind("token", role="strength")

    def gate(self, per=None):
        """The logarithm of a decay, at most 0: one a "channel" [B, T, HV, K], a "token" [B, T, HV] or a "head" [HV].
        The kernel may compute it from a raw input."""
        if per not in ("channel", "token", "head"):
            raise ValueError(f"law.gate: expected per to be 'channel', 'token' or 'head', got {per!r}")
        return Kind("head" if per == "head" else "token", "K" if per == "channel" else "", role="gate")

    def head_key(self):
        """A trained vector over key channels, [HV, K]."""
        return Kind("head", "K")

    def scale(self):
        """The factor of the output; the caller's `scale`, or K**-0.5."""
        return Kind("constant")


law = _Law()


def _input(name, kind):
    axes = ("U" if kind.scope == "head" else "BTH" if kind.key_heads else "BTU") + kind.axes
    role = kind.role if kind.role in ("gate", "strength") else "data"
    return make_input(name, axes, "head" if kind.scope == "head" else role)


class Recurrence:
    """An op made from a law: called chunk by chunk, or with .recurrent token by token.

    Tensors come in the order of the law's parameters, without state and scale; then, by keyword, what the functions
    of this package take, such as chunk_kda.
    """

    def __init__(self, function):
        self.function, self.kinds = function, kinds_of(function)
        self.traced = trace(function, self.kinds)
        inputs = tuple(_input(name, kind) for name, kind in self.kinds.items() if kind.scope != "constant")
        name = f"law_{self.traced.name}_{self.traced.digest()}"
        self.op = Op(name, self.traced.name, inputs, self.traced.text)
        register(self.op)
        functools.update_wrapper(self, function)

    def __repr__(self):
        tensors = ", ".join(f"{x.name} {x.shape}" for x in self.op.inputs)
        return f"<linnet law {self.traced.name}({tensors})>"

    @public
    def __call__(self, *tensors, scale=None, initial_state=None, output_final_state=False,
                 use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
                 allow_neg_eigval=False, lower_bound=None, return_intermediate_states=False, state_v_first=False,
                 cu_seqlens=None, A_log=None, dt_bias=None):
        """o [B, T, HV, V] and the final state or None; with return_intermediate_states, True or a number of tokens, also
        the states at the start of every 64 or so many tokens."""
        modes = self._modes(use_qk_l2norm_in_kernel, use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval,
                            lower_bound, state_v_first, A_log, dt_bias)
        o, final_state, states = self._run(call, tensors, modes, scale, initial_state, output_final_state, cu_seqlens,
                                           states_every=interval(return_intermediate_states, 64))
        return (o, final_state) if states is None else (o, final_state, states)

    @public
    def recurrent(self, *tensors, scale=None, initial_state=None, output_final_state=False,
                  use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
                  allow_neg_eigval=False, lower_bound=None, state_v_first=False, cu_seqlens=None, A_log=None,
                  dt_bias=None, inplace_final_state=False, ssm_state_indices=None, num_accepted_tokens=None):
        """Token by token, for decoding. Pools of states as of fused_recurrent_kda."""
        modes = self._modes(use_qk_l2norm_in_kernel, use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval,
                            lower_bound, state_v_first, A_log, dt_bias)
        if inplace_final_state or ssm_state_indices is not None or num_accepted_tokens is not None:
            return self._run(decode_in_place, tensors, modes, scale, initial_state, ssm_state_indices,
                             num_accepted_tokens, cu_seqlens), initial_state
        return self._run(call, tensors, modes, scale, initial_state, output_final_state, cu_seqlens, decode=True)[:2]

    def _modes(self, l2norm, gate_in_kernel, beta_sigmoid, neg_eigval, lower_bound, state_v_first, A_log, dt_bias):
        return Modes(beta=beta_mode(beta_sigmoid, neg_eigval), l2norm=l2norm, state_v_first=state_v_first,
                     **gate_modes(gate_in_kernel, A_log, dt_bias, lower_bound, False))

    def _run(self, way, tensors, modes, scale, *args, **options):
        if len(tensors) != len(self.op.inputs):
            raise TypeError(f"{self.traced.name}: expected {len(self.op.inputs)} tensors "
                            f"({', '.join(x.name for x in self.op.inputs)}), got {len(tensors)}")
        if scale is not None and "scale" not in self.kinds:
            raise ValueError(f"scale: expected None, the law {self.traced.name} has no scale; got {scale}")
        if modes.gate != "pre" and self.op.first(lambda x: x.kind == "gate") is None:
            raise ValueError(f"use_gate_in_kernel: expected False, the law {self.traced.name} has no gate a token; got True")
        try:
            return way(self.op.name, tensors, modes, scale, *args, **options)
        except ValueError as error:
            at_users_line = self.traced.at_users_line(str(error))
            if at_users_line is None:
                raise
            raise LawError(at_users_line) from None
