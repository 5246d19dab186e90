"""Hugging Face models that have these layers (Qwen3-Next, Kimi Linear and their kin) run on Linnet.

    import linnet.integrations.transformers as linnet_transformers
    linnet_transformers.enable()    # models loaded before and after
    linnet_transformers.disable()

transformers' modeling files hold each operation as a function of their own and call it by name. enable() puts a switch
in its place: tensors Linnet can take go to Linnet, all others where they went before.
The short convolution in front is switched too: transformers' turns its input round to channels by tokens and back, which
on a CPU costs more than the recurrence; ours leaves it as tokens by channels, which is how Linnet reads.
"""

import functools
import inspect
import sys

import torch

from .. import chunk_gated_delta_rule, chunk_kda, fused_recurrent_gated_delta_rule, fused_recurrent_kda
from .._device import empty

_OURS = {  # what transformers looks up -> what it gets
    "chunk_kda": chunk_kda,
    "fused_recurrent_kda": fused_recurrent_kda,
    "chunk_gated_delta_rule": chunk_gated_delta_rule,
    "fused_recurrent_gated_delta_rule": fused_recurrent_gated_delta_rule,
}
_NAMES = {  # of the functions in its modeling files -> what they look up
    "chunk_kimi_delta_attention": "chunk_kda",
    "recurrent_kimi_delta_attention": "fused_recurrent_kda",
    "torch_chunk_gated_delta_rule": "chunk_gated_delta_rule",
    "torch_recurrent_gated_delta_rule": "fused_recurrent_gated_delta_rule",
    "causal_conv1d_fn": "causal_conv1d_fn",
}
_FACTORY = "use_kernel_func_from_hub_with_fallback"  # the decorator those functions have
_FORMATS = (torch.float32, torch.bfloat16, torch.float16)


def enable():
    """Models use Linnet from now on, those already made too. Does nothing the second time."""
    hub = _hub()
    if not hasattr(getattr(hub, _FACTORY), "linnet_original"):
        _set_factory(_with_switches(getattr(hub, _FACTORY)))
    for module, name in _functions():
        if not hasattr(getattr(module, name), "linnet_original"):
            setattr(module, name, _switch_for(_NAMES[name], getattr(module, name)))


def disable():
    """Everything is as it was before enable()."""
    factory = getattr(_hub(), _FACTORY)
    if hasattr(factory, "linnet_original"):
        _set_factory(factory.linnet_original)
    for module, name in _functions():
        switch = getattr(module, name)
        setattr(module, name, getattr(switch, "linnet_original", switch))


def is_enabled():
    return hasattr(getattr(_hub(), _FACTORY), "linnet_original")


def _hub():
    import transformers.integrations.hub_kernels as hub
    return hub


def _set_factory(factory):
    import transformers.integrations as integrations
    setattr(_hub(), _FACTORY, factory)
    setattr(integrations, _FACTORY, factory)  # where modeling files import it from


def _functions():
    """(module, name) of every function to switch in the modeling files that are loaded."""
    return [(module, name) for path, module in list(sys.modules.items())
            if path.startswith("transformers.models.") and ".modeling_" in path
            for name in _NAMES if name in vars(module)]


def _with_switches(factory):
    """The decorator for files loaded later."""

    @functools.wraps(factory)
    def decorate(func_name, *args, **kwargs):
        decorator = factory(func_name, *args, **kwargs)
        if func_name not in _NAMES.values():
            return decorator
        return lambda function: _switch_for(func_name, decorator(function))

    decorate.linnet_original = factory
    return decorate


def _switch_for(name, theirs):
    return _conv_switch(theirs) if name == "causal_conv1d_fn" else _switch(theirs, _OURS[name])


def _convolve(out, tokens, weight, bias, start, end, silu, sequences):
    """Rows of out: the sum over taps of a token's rows before it, those of its own sequence, times the tap's weights [C]."""
    end = min(end, tokens.shape[1])
    rows, taps = out[:, start:end], weight.t().contiguous()
    if silu:  # in place: nothing is differentiated
        torch.mul(tokens[:, start:end], taps[-1], out=rows)
    else:
        rows.copy_(tokens[:, start:end]).mul_(taps[-1])
    for back in range(1, taps.shape[0]):
        first = max(start, back)
        before = tokens[:, first - back:end - back]
        if sequences is not None:
            before = before * (sequences[:, first - back:end - back] == sequences[:, first:end]).unsqueeze(-1)
        out[:, first:end].addcmul_(before, taps[-1 - back])
    if bias is not None:
        rows.add_(bias)
    if silu:
        torch.nn.functional.silu(rows, inplace=True)


def _sequences(T, seq_idx=None, cu_seq_lens_q=None, **_):
    """Which sequence each token of packed ones belongs to, [B or 1, T]; None: nothing is packed."""
    if seq_idx is None and cu_seq_lens_q is not None:
        numbers = torch.arange(cu_seq_lens_q.numel() - 1, device=cu_seq_lens_q.device)
        seq_idx = numbers.repeat_interleave(cu_seq_lens_q.diff()).unsqueeze(0)
    if seq_idx is not None and seq_idx.shape[-1] != T:
        raise ValueError(f"seq_idx: expected the sequence of each of {T} tokens, got {list(seq_idx.shape)}")
    return seq_idx


def _conv_switch(theirs):
    @functools.wraps(theirs)
    def switch(hidden_states, weight, bias=None, activation=None, **kwargs):
        tokens = hidden_states.transpose(1, 2)  # [B, T, C]
        fits = tokens.device.type == "cpu" and tokens.is_contiguous() and tokens.dtype == weight.dtype
        if not fits or tokens.shape[1] < weight.shape[-1]:
            return theirs(hidden_states, weight, bias, activation=activation, **kwargs)
        sequences = _sequences(tokens.shape[1], **kwargs)
        gradients = torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in (tokens, weight, bias))
        in_place = activation in ("silu", "swish") and not gradients
        out = torch.empty_like(tokens) if gradients else empty(tokens.shape, tokens.dtype)
        # A block of tokens stays in the cache from its first tap to its activation.
        block = tokens.shape[1] if gradients else 128
        for start in range(0, tokens.shape[1], block):
            _convolve(out, tokens, weight, bias, start, start + block, in_place, sequences)
        if activation is not None and not in_place:
            from transformers.activations import ACT2FN
            out = ACT2FN[activation](out)
        return out.transpose(1, 2)

    switch.linnet_original = theirs
    return switch


def _switch(theirs, ours):
    known = frozenset(inspect.signature(ours).parameters)

    @functools.wraps(theirs)
    def switch(query, key, value, *args, **kwargs):
        if query.device.type != "cpu" or query.dtype not in _FORMATS:
            return theirs(query, key, value, *args, **kwargs)
        # Layers pass on what other implementations may want; transformers drops it in the same way.
        return ours(query, key, value, *args, **{name: x for name, x in kwargs.items() if name in known})

    switch.linnet_original = theirs
    return switch
