"""Linnet inside transformers and FLA: small models with random weights give the same logits and the same tokens."""

import importlib.util
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")
linnet = pytest.importorskip("linnet", reason="the package is not built: make build")
needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None,
                                        reason="transformers is not installed: ./setup.sh --peers")


def qwen3_next():
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM
    return Qwen3NextForCausalLM(Qwen3NextConfig(
        vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        layer_types=["linear_attention", "full_attention"], num_key_value_heads=2, head_dim=16, linear_key_head_dim=32, linear_value_head_dim=32, linear_num_key_heads=2,
        linear_num_value_heads=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=32))


def kimi_linear():
    from transformers import KimiLinearConfig, KimiLinearForCausalLM
    return KimiLinearForCausalLM(KimiLinearConfig(
        vocab_size=256, hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"],
        num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=32, qk_rope_head_dim=16, v_head_dim=16,
        qk_nope_head_dim=16, num_experts_per_tok=2, num_local_experts=4, linear_head_dim=32, linear_num_heads=4,
        pad_token_id=0, bos_token_id=1, eos_token_id=2))


@pytest.fixture(params=[qwen3_next, kimi_linear])
def model(request):
    torch.manual_seed(0)
    made = request.param().eval()
    import linnet.integrations.transformers as integration
    yield made
    integration.disable()


@pytest.fixture
def integration():
    import linnet.integrations.transformers as integration
    return integration


def counted(monkeypatch, integration):
    """Counts the calls that reach Linnet."""
    calls = []
    for name, function in list(integration._OURS.items()):
        def count(*args, _name=name, _function=function, **kwargs):
            calls.append(_name)
            return _function(*args, **kwargs)
        count.__signature__ = __import__("inspect").signature(function)
        monkeypatch.setitem(integration._OURS, name, count)
    return calls


@needs_transformers
def test_the_same_logits_gradients_and_tokens(model, integration, monkeypatch):
    calls = counted(monkeypatch, integration)
    tokens = torch.randint(3, 256, (2, 40))

    def results():
        model.zero_grad()
        logits = model(tokens).logits
        logits.square().mean().backward()
        gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        with torch.no_grad():
            text = model.generate(tokens, max_new_tokens=6, do_sample=False)
        return logits.detach(), gradients, text

    logits, gradients, text = results()
    assert not calls
    integration.enable()
    integration.enable()
    assert integration.is_enabled()
    ours = results()
    assert {name.split("_")[0] for name in calls} == {"chunk", "fused"}
    assert (ours[0] - logits).norm() < 1e-4 * logits.norm()
    assert (ours[1] - gradients).norm() < 1e-3 * gradients.norm()
    assert torch.equal(ours[2], text)
    integration.disable()
    count = len(calls)
    assert torch.equal(results()[0], logits) and len(calls) == count and not integration.is_enabled()


@needs_transformers
def test_enabled_before_the_model_is_imported():
    code = """
import sys, linnet.integrations.transformers as integration
integration.enable()
from transformers.models.qwen3_next import modeling_qwen3_next as qwen
assert hasattr(qwen.torch_chunk_gated_delta_rule, "linnet_original")
integration.disable()
assert not hasattr(qwen.torch_chunk_gated_delta_rule, "linnet_original")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_transformers
def test_faster_where_it_matters(integration):
    """The operation itself, 1024 tokens: at least 3 times transformers' own."""
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1024, 4, 64) for _ in range(3))
    g, beta = -torch.rand(1, 1024, 4), torch.rand(1, 1024, 4)

    def best():
        times = []
        with torch.no_grad():
            for _ in range(5):
                start = time.perf_counter()
                qwen.torch_chunk_gated_delta_rule(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)
                times.append(time.perf_counter() - start)
        return min(times)

    theirs = best()
    integration.enable()
    try:
        ours = best()
    finally:
        integration.disable()
    assert ours * 3 < theirs


def test_fla_functions_are_ours():
    code = """
import linnet, linnet.integrations.fla as integration
integration.enable()
integration.enable()
from fla.ops.kda import chunk_kda
from fla.ops import chunk_gla, fused_recurrent_gated_delta_rule
import fla.ops.generalized_delta_rule
assert chunk_kda is linnet.chunk_kda and chunk_gla is linnet.chunk_gla
assert fla.ops.generalized_delta_rule.chunk_dplr_delta_rule is linnet.chunk_dplr_delta_rule
integration.disable()
try:
    from fla.ops.kda import chunk_kda as theirs
except ImportError:
    theirs = None
assert theirs is not linnet.chunk_kda
"""
    subprocess.run([sys.executable, "-c", code], check=True)
