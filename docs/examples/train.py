"""Trains a small language model with Kimi Delta Attention on the CPU: a progress bar, and a plot of the loss.

    .venv/bin/python docs/examples/train.py --steps 200 --plot loss.svg

The task is recall: a text of key-value pairs in random order, then keys whose values the model has to name.
"""

import argparse
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import linnet


class KdaLayer(nn.Module):
    """Projections, a short convolution, the recurrence, a gated norm."""

    def __init__(self, width, heads, head_dim):
        super().__init__()
        self.heads = heads
        inner = heads * head_dim
        self.qkv = nn.Linear(width, 3 * inner, bias=False)
        self.convolution = nn.Conv1d(3 * inner, 3 * inner, 4, groups=3 * inner, padding=3, bias=False)
        self.gate = nn.Linear(width, inner, bias=False)
        self.beta = nn.Linear(width, heads, bias=False)
        self.A_log = nn.Parameter(torch.zeros(heads))
        self.dt_bias = nn.Parameter(torch.full((inner,), -4.0))
        self.norm = nn.RMSNorm(head_dim)
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        split = (self.heads, -1)
        qkv = self.convolution(self.qkv(x).transpose(1, 2))[..., :x.shape[1]].transpose(1, 2)
        q, k, v = F.silu(qkv).chunk(3, -1)
        o, _ = linnet.chunk_kda(
            q.unflatten(-1, split), k.unflatten(-1, split), v.unflatten(-1, split), self.gate(x).unflatten(-1, split),
            self.beta(x), use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True,
            A_log=self.A_log, dt_bias=self.dt_bias)
        return self.out(self.norm(o).flatten(-2))


class Model(nn.Module):
    def __init__(self, tokens, width=64, layers=2, heads=2, head_dim=32):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(nn.ModuleList((
            nn.RMSNorm(width), KdaLayer(width, heads, head_dim), nn.RMSNorm(width),
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)))) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, text):
        x = self.embedding(text)
        for norm, attention, norm_mlp, mlp in self.layers:
            x = x + attention(norm(x))
            x = x + mlp(norm_mlp(x))
        return self.head(self.norm(x))


def recall_batch(batch, pairs, symbols):
    """Texts k1 v1 k2 v2 ... and again in another order; the second half's values are to be named."""
    keys = torch.stack([torch.randperm(symbols)[:pairs] for _ in range(batch)])
    values = torch.randint(symbols, (batch, pairs)) + symbols
    order = torch.stack([torch.randperm(pairs) for _ in range(batch)])
    again = torch.stack((keys.gather(1, order), values.gather(1, order)), -1).flatten(1)
    text = torch.cat((torch.stack((keys, values), -1).flatten(1), again), 1)
    target = text.roll(-1, 1)
    target[:, :2 * pairs] = -100  # not asked
    target[:, 2 * pairs + 1::2] = -100
    return text, target


def progress(step, steps, loss, seconds):
    width = 30
    done = width * step // steps
    end = "\n" if step == steps else ""
    print(f"\r[{'#' * done}{'.' * (width - done)}] {step}/{steps}  loss {loss:.3f}  {seconds / step * 1e3:.0f} ms a step ",
          end=end, file=sys.stderr, flush=True)


def plot(losses, path):
    """The loss as an SVG picture, one line."""
    width, height, top = 600, 300, max(losses)
    points = " ".join(f"{40 + (width - 60) * i / max(1, len(losses) - 1):.1f},"
                      f"{height - 30 - (height - 50) * loss / top:.1f}" for i, loss in enumerate(losses))
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
                   f'font-size="12"><rect width="100%" height="100%" fill="white"/>'
                   f'<polyline fill="none" stroke="#2266aa" stroke-width="2" points="{points}"/>'
                   f'<text x="5" y="24">{top:.2f}</text><text x="5" y="{height - 30}">0</text>'
                   f'<text x="{width - 90}" y="{height - 8}">{len(losses)} steps</text>'
                   f'<text x="{width // 2 - 20}" y="16">loss</text></svg>\n')


def train(steps, batch=16, pairs=8, symbols=16, rate=3e-3, show=True):
    """The loss of every step."""
    torch.manual_seed(0)
    model = Model(2 * symbols)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses, start = [], time.perf_counter()
    for step in range(1, steps + 1):
        text, target = recall_batch(batch, pairs, symbols)
        loss = F.cross_entropy(model(text).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if show:
            progress(step, steps, losses[-1], time.perf_counter() - start)
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--plot", metavar="FILE.svg", help="draw the loss")
    options = parser.parse_args()
    losses = train(options.steps)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} (guessing: {math.log(16):.3f})")
    if options.plot:
        plot(losses, options.plot)


if __name__ == "__main__":
    main()
