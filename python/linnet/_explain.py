"""What becomes of an op: linnet.show prints a stage of its derivation, linnet.explain says what a call ran."""

import re

import torch

from . import _C, _device
from ._laws import OPS


def row_of(op):
    """The row of the table behind a function of this package, its name, or a law of the user's."""
    if hasattr(op, "op"):
        return op.op
    name = op if isinstance(op, str) else getattr(op, "__name__", "")
    name = re.sub("^(chunk|fused_recurrent)_", "", name)
    for row in OPS.values():
        if name in (row.name, row.law):
            return row
    raise ValueError(f"op: expected a function such as linnet.chunk_kda, a linnet.law, or one of "
                     f"{', '.join(sorted(row.name for row in OPS.values() if not row.text))}; got {op!r}")


def at_users_line(op, error):
    """The error itself, or for a line of the user's law one that names it."""
    traced = getattr(op, "traced", None)
    message = traced and traced.at_users_line(str(error))
    return type(error)(message) if message else error


def show(op, stage="graph", *, direction="forward", chunk=64, key_dim=128, value_dim=128, dtype=torch.float32,
         gate="pre", lower_bound=0.0, beta="plain", l2norm=False):
    """What is derived from an op's law, as text that `linnet show` also reads.

    op: a function of this package, its name, or a law of your own. stage: "law", "graph" (the chunk algorithm),
    "backward", "stages" (as kernels run it), "decode" (one token a chunk), "tile" (loops and where tiles live), "asm"
    (this machine's code) or "cuda". gate: "pre", "softplus" or "bounded" with its lower_bound; beta: "plain", "sigmoid" or
    "twice_sigmoid".
    """
    row = row_of(op)
    problem = _C.Problem(row.law, law=row.text, key_dim=key_dim, value_dim=value_dim,
                         dtype=str(dtype).removeprefix("torch."), gate=gate, lower_bound=lower_bound, beta=beta,
                         l2norm=l2norm)
    try:
        return _C.show(problem, stage, direction, chunk)
    except ValueError as error:
        raise at_users_line(op, error) from None


def explain(op, *args, **options):
    """Calls op(*args, **options), and its backward if a tensor requires gradients, and says what ran.

    For each op: its problem; the device; the kernels, with chunk, block of value channels, loops or launches, size, and
    whether they came from the cache; the stages; products counted in the derived graph, a token and for this call.
    """
    runs = []
    _device.watchers().append(runs)
    try:
        results = op(*args, **options)
        o = results[0] if isinstance(results, tuple) else results
        if o.requires_grad:
            o.sum().backward(inputs=[x for x in (*args, *options.values())
                                     if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf])
    finally:
        _device.watchers().remove(runs)
    return "\n".join(_describe(built, arguments) for built, arguments in runs)


def _describe(built, arguments):
    if not hasattr(built, "kernels"):
        return f"{built.problem.op} {built.direction}\n  device    the interpreter, float64"
    problem, device = built.problem, built.device
    tensors = {name: x for name, x in arguments.items() if isinstance(x, torch.Tensor)}
    o = tensors.get("o", tensors.get("do"))
    B, T, heads, V = o.shape
    count = tensors["cu_seqlens"].numel() - 1 if "cu_seqlens" in tensors else B
    lines = [f"{problem.op} {built.direction}, K = {problem.key_dim}, V = {V}, {str(o.dtype).removeprefix('torch.')}",
             f"  device    {device.name}" + (f", {device.threads} threads" if device.name == "cpu" else ""),
             f"  call      {B * T} tokens in {count} sequences, {heads} value heads"]
    for kernel in built.kernels:
        source = "from the cache" if kernel.from_cache else "compiled now"
        lines.append(f"  kernel    chunk {kernel.chunk}, value block {kernel.value_block}, {kernel.loops} "
                     f"{'loops' if device.name == 'cpu' else 'launches'}, {kernel.bytes / 1024:.1f} KB, workspace "
                     f"{kernel.workspace / 1024:.1f} KB a chunk and head, {source} ({kernel.key[:12]})")
    direction = "backward" if built.direction == "backward" else "forward"
    staged = _C.show(problem, "stages", direction, built.kernels[0].chunk)
    lines += [f"  stage     {line}" for line in _stages(staged)]
    flops = int(re.search(r"head: (\d+) derived", staged)[1])
    lines.append(f"  products  {flops} FLOP a token and head, {flops * B * T * heads / 1e6:.1f} MFLOP in all (counted)")
    return "\n".join(lines)


def _stages(text):
    """Map and scan stages of a staged graph, with their products."""
    stages, kind = [], None
    for line in text.splitlines():
        found = re.search(r"chunk\.(map|scan)\b", line)
        if found:
            kind = {"map": "map, chunks in parallel", "scan": "scan, chunk after chunk"}[found[1]]
            stages.append([kind, 0, 0])
        elif stages:
            stages[-1][1] += bool(re.search(r"chunk\.(matmul|decay_dot|decay_apply)\b", line))
            stages[-1][2] += "chunk.inverse_unit_lower" in line
    return [f"{kind}: {products} products" + (f", {inverses} triangular inverse" * bool(inverses))
            for kind, products, inverses in stages]
