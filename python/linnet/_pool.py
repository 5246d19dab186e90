"""Decoding on a pool of states that stays where it is: rows chosen by slot, drafts of which some tokens were accepted."""

import torch
from torch.autograd import forward_ad

from ._call import Modes, _check, _is_eager, _prepare, _scale, as_tensor, refuse_tangents
from ._torch_ops import DECODE, FORWARD, KERNELS


def decode_in_place(name, tensors, modes=Modes(), scale=None, pool=None, slots=None, accepted=None, cu_seqlens=None):
    """o; the states of `pool` [P, HV, K, V] have gone on.

    slots None: row n of the pool is sequence n's. slots [N]: row slots[n] is; -1 leaves a sequence out (its o is 0).
    slots [N, S]: the state after a sequence's token t goes to row slots[n, t], and it starts from row
    slots[n, accepted[n] - 1] (accepted None: slots[n, 0]): the last call's tokens after the accepted ones are undone.
    """
    shape = "[P, HV, V, K]" if modes.state_v_first else "[P, HV, K, V]"
    if not isinstance(pool, torch.Tensor):
        raise TypeError(f"initial_state: expected a tensor {shape} with inplace_final_state, got {type(pool).__name__}")
    _check(pool, "initial_state", shape, 4)
    if pool.dtype != torch.float32:
        raise TypeError(f"initial_state: expected float32 {shape} with inplace_final_state, got {pool.dtype}")
    if pool.is_neg():
        raise ValueError("initial_state: expected memory to write to, got a negated view")
    tensors, A_log, dt_bias, cu_seqlens, flags = _prepare(name, tensors, modes, cu_seqlens)
    if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in (*tensors, A_log, dt_bias, pool)):
        raise ValueError("inplace_final_state: expected tensors without requires_grad, or torch.no_grad(); states in "
                         "place have no gradient")
    if forward_ad._current_level >= 0:
        refuse_tangents(name, (*tensors, A_log, dt_bias, pool))
    count = tensors[0].shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    scale = _scale(scale)
    if slots is not None:
        slots = _whole("ssm_state_indices", slots, "[N] or [N, S]", count)
    if slots is None or slots.dim() == 1:
        if accepted is not None:
            raise ValueError("num_accepted_tokens: expected ssm_state_indices [N, S] with it, got "
                             f"{None if slots is None else list(slots.shape)}")
        return (KERNELS[name].decode if _is_eager(tensors) else DECODE[name])(*tensors, A_log, dt_bias, pool, slots, cu_seqlens, scale, *flags)
    _check_range("ssm_state_indices", slots, -1, pool.shape[0] - 1)
    starts = slots[:, 0]
    if accepted is not None:
        accepted = _whole("num_accepted_tokens", accepted, "[N]", count)
        _check_range("num_accepted_tokens", accepted, 1, slots.shape[1])
        starts = slots.gather(1, accepted.long().unsqueeze(1) - 1).squeeze(1)
    used = starts >= 0
    first = pool[starts.clamp(min=0)] if pool.shape[0] else pool.new_zeros((count, *pool.shape[1:]))
    o, final, states = FORWARD[name](*tensors, A_log, dt_bias, first, cu_seqlens, scale, *flags,
                                       False, True, 1)
    _store(pool, slots, used, final, states, tensors[0].shape[1], cu_seqlens)
    tokens = used.view(-1, 1) if cu_seqlens is None else used.repeat_interleave(cu_seqlens.diff()).view(1, -1)
    return o.masked_fill(~tokens[:, :, None, None], 0)


def _store(pool, slots, used, final, states, T, cu_seqlens):
    """The state after every token to its row."""
    count = slots.shape[0]
    ends = (torch.arange(count + 1) * T if cu_seqlens is None else cu_seqlens).tolist()
    lengths = [end - start for start, end in zip(ends, ends[1:])]
    if max(lengths, default=0) > slots.shape[1]:
        raise ValueError(f"ssm_state_indices: expected a row for each of {max(lengths)} tokens, got {list(slots.shape)}")
    if not any(lengths):
        return
    after = torch.cat((states[1:], final[:1]))  # the state at the start of a token is that after the one before it
    filled = [n for n in range(count) if lengths[n]]
    after[[ends[n + 1] - 1 for n in filled]] = final[filled]
    rows = torch.cat([slots[n, :lengths[n]].masked_fill(~used[n], -1) for n in range(count)])
    kept = rows >= 0
    if rows[kept].unique().numel() != int(kept.sum()):
        raise ValueError("ssm_state_indices: expected a row for each token of its own, got one twice")
    pool[rows[kept]] = after[kept]


def _whole(name, x, shape, count):
    x = as_tensor(x, name, shape)
    if x.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: expected int32 or int64 {shape}, got {x.dtype}")
    if x.dim() not in ((1, 2) if "or" in shape else (1,)) or x.shape[0] != count:
        raise ValueError(f"{name}: expected {shape} with N = {count}, got {list(x.shape)}")
    if x.dim() == 2 and x.shape[1] == 0:
        raise ValueError(f"{name}: expected [N, S] with S at least 1, got {list(x.shape)}")
    return x


def _check_range(name, x, least, most):
    if x.numel() and not least <= int(x.min()) <= int(x.max()) <= most:
        raise ValueError(f"{name}: expected numbers from {least} to {most}, got {int(x.min())} to {int(x.max())}")
