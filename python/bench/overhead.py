"""What calling through Python costs: a call of one token with next to nothing to compute, and prefill beside `linnet bench`.

    PYTHONPATH=build/python .venv/bin/python python/bench/overhead.py [--threads 2] [--linnet build/bin/linnet]

Prefill is the same work in both, KDA of 4096 tokens, 8 heads, K = V = 128, float32, in turns; times are the best of the
runs of each. Tensors lie in pages of the same size in both: torch's in small ones, as torch makes them, beside a bench
without large ones; and torch's in large ones, which they were asked for here, beside the bench as it is.
"""

import argparse
import ctypes
import re
import subprocess
import time

import torch
import torch.nn.functional as F

import linnet


def best(work, runs, inner=1):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(inner):
            work()
        times.append((time.perf_counter() - start) / inner)
    return min(times)


def inputs(T, H, K):
    return (torch.randn(1, T, H, K), F.normalize(torch.randn(1, T, H, K), dim=-1), torch.randn(1, T, H, K),
            F.logsigmoid(torch.randn(1, T, H, K)), torch.rand(1, T, H))


def one_token():
    x, state = inputs(1, 1, 16), torch.zeros(1, 1, 16, 16)
    calls = {
        "fused_recurrent_kda, final state": lambda: linnet.fused_recurrent_kda(*x, initial_state=state,
                                                                               output_final_state=True),
        "fused_recurrent_kda, state in place": lambda: linnet.fused_recurrent_kda(*x, initial_state=state,
                                                                                  inplace_final_state=True),
    }
    for name, work in calls.items():
        work()
        print(f"{name:<40}{best(work, 200, 50) * 1e6:>8.1f} us a call")


def without_large_pages():
    PR_SET_THP_DISABLE = 41
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def in_large_pages(x, lines):
    """A copy in memory that was asked to have large pages before it was touched, where the system has them; so many
    cache lines after the start of one, as the bench lays its tensors: rows that are used together do not meet in the
    same sets of the caches."""
    MADV_HUGEPAGE, page, large = 14, 4096, 2 << 20
    room = torch.empty(x.numel() + 2 * large // x.element_size(), dtype=x.dtype)
    start, end = -(-room.data_ptr() // page) * page, (room.data_ptr() + room.nbytes) // page * page
    ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_HUGEPAGE)
    skipped = (-room.data_ptr() % large + 64 * lines) // x.element_size()
    return room[skipped:skipped + x.numel()].view(x.shape).copy_(x)


def prefill(program, threads):
    x = inputs(4096, 8, 128)
    ways = {"small": (x, without_large_pages), "large": ([in_large_pages(t, 17 * i) for i, t in enumerate(x)], None)}
    command = [program, "bench", "kda", "--tokens", "4096", "--heads", "8", "--threads", str(threads), "--runs", "5"]
    python, native = {pages: [] for pages in ways}, {pages: [] for pages in ways}
    for _ in range(4):
        for pages, (tensors, prepare) in ways.items():
            linnet.chunk_kda(*tensors)
            python[pages].append(best(lambda: linnet.chunk_kda(*tensors), 5) * 1e3)
            lines = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=prepare).stdout.splitlines()
            native[pages].append(float(re.findall(r"\d+\.\d+", next(line for line in lines if line.startswith("kda")))[1]))
    for pages in ways:
        ours, bench = min(python[pages]), min(native[pages])
        print(f"prefill, {pages} pages: through Python {ours:.2f} ms, linnet bench {bench:.2f} ms: {100 * (ours / bench - 1):+.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--linnet", default="build/bin/linnet")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.no_grad():
        one_token()
        prefill(options.linnet, options.threads)


if __name__ == "__main__":
    main()
