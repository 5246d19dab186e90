"""What Linnet changes in a Hugging Face model on this CPU: the operation, the linear-attention layers, the whole model.

    .venv/bin/python python/bench/transformers_layers.py [--tokens 2048] [--threads 2] [--layers-only]

A Qwen3-Next with the real sizes of a linear-attention layer's heads, few layers and random weights. Both take turns,
the better of two runs each; times are the medians of the turns, a ratio that of one turn, the median again: machines
change their speed while they run.
"""

import argparse
import statistics
import time

import torch

import linnet.integrations.transformers as integration


def time_of(work):
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def in_turns(work, turns):
    """Times without Linnet and with it, in milliseconds, of as many turns."""
    pairs = []
    for turn in range(turns + 1):
        pair = []
        for enabled in (False, True):
            (integration.enable if enabled else integration.disable)()
            pair.append(min(time_of(work), time_of(work)))  # the other's memory and caches are not ours
        if turn > 0:  # the first compiles
            pairs.append(pair)
    return pairs


def make_model():
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM
    torch.manual_seed(0)
    return Qwen3NextForCausalLM(Qwen3NextConfig(
        vocab_size=1024, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, linear_key_head_dim=128, linear_value_head_dim=128,
        linear_num_key_heads=4, linear_num_value_heads=8, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=128, shared_expert_intermediate_size=128)).eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--layers-only", action="store_true", help="without the whole model")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen
    model, text = make_model(), torch.randint(1024, (1, options.tokens))
    shape = (1, options.tokens, 8, 128)
    q, k, v = (torch.randn(shape) for _ in range(3))
    g, beta = -torch.rand(shape[:3]), torch.rand(shape[:3])

    def operation():
        return qwen.torch_chunk_gated_delta_rule(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)

    def decode():
        return model.generate(text[:, :64], max_new_tokens=16, min_new_tokens=16, do_sample=False)

    layers = [m for m in model.modules() if isinstance(m, qwen.Qwen3NextGatedDeltaNet)]
    hidden = torch.randn(1, options.tokens, model.config.hidden_size)

    def linear_layers():
        for layer in layers:
            layer(hidden)

    rows = {"the operation, prefill": operation, f"{len(layers)} linear layers, prefill": linear_layers}
    if not options.layers_only:
        rows |= {"the model, prefill": lambda: model(text), "the model, 16 tokens after 64": decode}
    print(f"{options.tokens} tokens, {options.threads} threads{'':<14}transformers    Linnet")
    with torch.no_grad():
        for name, work in rows.items():
            pairs = in_turns(work, options.turns)
            theirs, ours = (statistics.median(column) for column in zip(*pairs))
            ratio = statistics.median(a / b for a, b in pairs)
            print(f"{name:<32}{theirs:>10.1f} ms{ours:>7.1f} ms  {ratio:.1f}x", flush=True)
    integration.disable()


if __name__ == "__main__":
    main()
