"""The process that runs the peers; peers.py starts it, and starts another one if this one hangs or dies."""

import argparse
import ctypes
import json
import math
import os
import resource
import signal
import sys
import time
import traceback

import torch

from peer_functions import DECAY_PER_CHANNEL, INPUTS, Refused, catalogue, require, version

MOST_NUMBERS = 100_000  # of input, for "values"


def whole(command, name, default, low=1, high=1 << 31):
    value = command.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Refused(f"{name}: expected a whole number from {low} to {high}; got {value!r}")
    return value


def seconds(command, name, default):
    value = command.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise Refused(f"{name}: expected seconds above 0; got {value!r}")
    return value


def make_inputs(command, op, direction):
    """Seeded inputs, the gradient do that comes back, and for decode a state."""
    batch, heads = whole(command, "batch", 1), whole(command, "heads", 8)
    tokens = 1 if direction == "decode" else whole(command, "tokens", 1024)
    value_heads = whole(command, "value_heads", heads)
    key_dim, value_dim = whole(command, "key_dim", 128), whole(command, "value_dim", 128)
    dtype = command.get("dtype", "f32")
    if dtype not in ("f32", "bf16"):
        raise Refused(f"dtype: expected f32 or bf16; got {dtype!r}")
    dtype = torch.float32 if dtype == "f32" else torch.bfloat16
    if value_heads % heads:
        raise Refused(f"value_heads: expected a multiple of heads, {heads}; got {value_heads}")

    generator = torch.Generator().manual_seed(whole(command, "seed", 0, low=0))
    normal = lambda *shape: torch.randn(batch, *shape, generator=generator)
    uniform = lambda *shape: torch.rand(batch, *shape, generator=generator)
    unit = torch.nn.functional.normalize
    gate_shape = (tokens, value_heads, key_dim) if op in DECAY_PER_CHANNEL else (tokens, value_heads)
    made = {
        "q": unit(normal(tokens, heads, key_dim), dim=-1),
        "k": unit(normal(tokens, heads, key_dim), dim=-1),
        "v": normal(tokens, value_heads, value_dim),
        "g": -0.3 * uniform(*gate_shape),
        "beta": uniform(tokens, value_heads),
    }
    # Gates stay f32 in bf16 too, as in Linnet and in the models.
    inputs = {name: made[name] if name == "g" else made[name].to(dtype) for name in INPUTS[op]}
    do = normal(tokens, value_heads, value_dim).to(dtype)
    state = 0.1 * normal(value_heads, key_dim, value_dim) if direction == "decode" else None
    return inputs, do, state


def prepare(command):
    """One step of what is asked: step() -> outputs by name. Also the function, its inputs, and if it is compiled."""
    op, peer, direction = (command.get(name) for name in ("op", "peer", "direction"))
    function, compiled = require(op, peer, direction)
    inputs, do, state = make_inputs(command, op, direction)
    tokens = inputs["q"].shape[1]
    if tokens % function.multiple:
        raise Refused(f"tokens: {function.name} takes multiples of {function.multiple}; got {tokens}")
    torch.set_num_threads(whole(command, "threads", torch.get_num_threads(), high=1024))

    run = function.bind()
    if compiled:
        # Every compilation from nothing: no caches, and no shapes guessed dynamic from the last one.
        torch._dynamo.reset()
        torch._inductor.config.force_disable_caches = True
        run = torch.compile(run, dynamic=False)

    def forward(want_state):
        with torch.no_grad():
            o, final = run(inputs, state, want_state)
        return {"o": o} if final is None else {"o": o, "final_state": final}

    def backward():
        leaves = {name: x.detach().requires_grad_() for name, x in inputs.items()}
        o, _ = run(leaves, None, False)
        gradients = torch.autograd.grad(o, list(leaves.values()), do.to(o.dtype))
        return {"o": o.detach(), **{f"d{name}": x for name, x in zip(leaves, gradients)}}

    step = backward if direction == "backward" else lambda: forward(want_state=direction == "decode")
    given = dict(inputs)
    if direction == "backward":
        given["do"] = do
    if direction == "decode":
        given["initial_state"] = state
    return step, function, given, compiled


def timed(step):
    start = time.perf_counter()
    result = step()
    return time.perf_counter() - start, result


def repeat(step, limit, most=50, enough=1.0):
    """Seconds of each run: at least one, then until the limit, or ten runs and a second, or `most`."""
    runs, spent, result = [], 0.0, None
    while not runs or (spent + runs[-1] < limit and len(runs) < most and (len(runs) < 10 or spent < enough)):
        result = None  # frees the last one first: they can be large
        once, result = timed(step)
        runs.append(once)
        spent += once
    return runs, result


class OtherLoad:
    """How many cores other processes kept busy while this was open. Two torch threads suffer from one busy core."""

    def __enter__(self):
        self.start = self.now()
        return self

    def __exit__(self, *_):
        passed, used, ours = (after - before for after, before in zip(self.now(), self.start))
        self.cores = round(max(used - ours, 0.0) / passed, 2) if passed > 0.1 else None  # it counts in steps of 10 ms

    @staticmethod
    def now():
        with open("/proc/stat") as stat:
            user, nice, system, _, _, interrupts, soft, stolen = map(int, stat.readline().split()[1:9])
        used = (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), used, sum(os.times()[:4])


def report(runs, other_load):
    milliseconds = [round(1e3 * once, 4) for once in runs]
    return {"ms": min(milliseconds), "median_ms": sorted(milliseconds)[len(runs) // 2], "runs": milliseconds,
            "threads": torch.get_num_threads(), "other_load": other_load}


def measure(step, command):
    """Warms up, then repeats: for steps that take a fraction of a second."""
    step()
    with OtherLoad() as other:
        runs, _ = repeat(step, seconds(command, "limit_s", 20))
    return report(runs, other.cores)


def rms(x):
    value = x.float().square().mean().sqrt().item()
    return value if math.isfinite(value) else None  # JSON has no NaN


def do_time(command):
    limit = seconds(command, "limit_s", 20)
    step, function, _, compiled = prepare(command)
    note = None
    with OtherLoad() as other:
        first, result = timed(step)
    if not compiled and first > limit:
        runs, note = [first], f"a single run, without a warm-up, took longer than limit_s = {limit:g}"
    else:
        result = None
        with OtherLoad() as other:
            runs, result = repeat(step, limit if compiled else limit - first)
        if runs[0] > limit:
            note = f"a single run: it took longer than limit_s = {limit:g}"
    reply = report(runs, other.cores)
    if compiled:
        reply["compile_s"] = round(max(first - min(runs), 0.0), 3)
    if note:
        reply["note"] = note
    reply["function"] = f"{function.module}.{function.name}"
    reply["check"] = {f"rms_{name}": rms(x) for name, x in result.items()}
    return reply


def do_values(command):
    step, function, given, _ = prepare(command)
    numbers = sum(x.numel() for x in given.values())
    if numbers > MOST_NUMBERS:
        raise Refused(f"values: {numbers} numbers of input, the most is {MOST_NUMBERS}; make it smaller")
    outputs = step()
    for name, x in outputs.items():
        if not x.isfinite().all():
            raise Refused(f"values: {name} of {function.name} is not finite")
    lists = lambda tensors: {name: x.detach().float().tolist() for name, x in tensors.items()}
    return {"function": f"{function.module}.{function.name}", "scale": given["q"].shape[-1] ** -0.5,
            "inputs": lists(given), "outputs": lists(outputs)}


def do_mm(command):
    torch.set_num_threads(whole(command, "threads", torch.get_num_threads(), high=1024))
    size = 2048
    a, b = torch.randn(size, size), torch.randn(size, size)
    c = torch.empty(size, size)
    reply = measure(lambda: torch.mm(a, b, out=c), command)
    return {**reply, "gflops": round(2e-6 * size**3 / reply["ms"], 1)}


def do_stream(command):
    """scale: x *= c in place; copy: y = x. Both count the bytes read and the bytes written."""
    torch.set_num_threads(whole(command, "threads", torch.get_num_threads(), high=1024))
    x = torch.ones(whole(command, "bytes", 1 << 28, low=4, high=1 << 34) // 4)
    if command["do"] == "scale":
        factors = [0.5, 2.0]

        def stream():
            x.mul_(factors[0])
            factors.reverse()  # the numbers stay as they are, never denormal
    else:
        y = torch.zeros_like(x)
        stream = lambda: y.copy_(x)
    reply = measure(stream, command)
    return {**reply, "gb_per_s": round(1e-6 * 2 * 4 * x.numel() / reply["ms"], 2), "bytes": 4 * x.numel()}


COMMANDS = {"list": lambda command: catalogue(), "time": do_time, "values": do_values, "mm": do_mm,
            "scale": do_stream, "copy": do_stream}


def limit_memory():
    """Makes torch fail with an error where the kernel would otherwise kill something to find memory."""
    size = lambda path, field: next(int(line.split()[1]) << 10 for line in open(path) if line.startswith(field))
    most = size("/proc/self/status", "VmData:") + int(0.8 * size("/proc/meminfo", "MemAvailable:"))
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def answer(command):
    try:
        if not isinstance(command.get("do"), str) or command["do"] not in COMMANDS:
            raise Refused(f"do: expected one of {', '.join(COMMANDS)}, quit; got {command.get('do')!r}")
        limit_memory()
        return COMMANDS[command["do"]](command)
    except Refused as error:
        return {"error": str(error)}
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split())
        return {"error": f"{type(error).__name__}: {text[:400]}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: does not outlive peers.py
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is a log, not an answer
    say = lambda message: print(json.dumps(message, allow_nan=False), file=out, flush=True)
    peers = [{"name": package, "version": version(package)} for package in ("transformers", "fla")]
    say({"ready": True, "torch": torch.__version__, "threads": torch.get_num_threads(),
         "peers": [peer for peer in peers if peer["version"]]})
    for line in sys.stdin:
        say(answer(json.loads(line)))


if __name__ == "__main__":
    main()
