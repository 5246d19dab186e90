"""What calling through Python costs: a call of one token with next to nothing to compute, and prefill beside `linnet bench`.

    PYTHONPATH=build/python .venv/bin/python python/bench/overhead.py [--threads 2] [--linnet build/bin/linnet]

Prefill is the same work in both, KDA of 4096 tokens, 8 heads, K = V = 128, float32, in turns; times are the best of the
runs of each. torch's tensors lie in small pages, those of `linnet bench` in large ones where the system has them: it runs
without them too, for a comparison of Python alone.
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


def prefill(program, threads):
    x = inputs(4096, 8, 128)

    def work():
        return linnet.chunk_kda(*x)

    command = [program, "bench", "kda", "--tokens", "4096", "--heads", "8", "--threads", str(threads), "--runs", "5"]
    work()
    python, native = [], {"in small pages as well": [], "in large pages": []}
    for _ in range(4):
        python.append(best(work, 5) * 1e3)
        for prepare, times in zip((without_large_pages, None), native.values()):
            lines = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=prepare).stdout.splitlines()
            times.append(float(re.findall(r"\d+\.\d+", next(line for line in lines if line.startswith("kda")))[1]))
    for pages, times in native.items():
        print(f"prefill through Python {min(python):.2f} ms, linnet bench {pages} {min(times):.2f} ms: "
              f"{100 * (min(python) / min(times) - 1):+.1f} %")


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
