"""Linnet inside transformers and FLA: small models with random weights give the same logits and the same tokens."""

import importlib.util
import pathlib
import re
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")
linnet = pytest.importorskip("linnet", reason="the package is not built: make build")
needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None,
                                        reason="transformers is not installed: ./setup.sh --peers")


SMALL = {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "layer_types": ["linear_attention", "full_attention"], "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GDN = {**SMALL, "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_num_key_heads": 2,
       "linear_num_value_heads": 4}
QWEN = {**GDN, "num_key_value_heads": 2, "head_dim": 16}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
           "shared_expert_intermediate_size": 32}
KDA = {**SMALL, "intermediate_size": 96, "moe_intermediate_size": 32, "num_experts_per_tok": 2, "num_key_value_heads": 4,
       "kv_lora_rank": 32, "v_head_dim": 16, "qk_nope_head_dim": 16}
MODELS = {  # the modeling files that have these layers -> a small model, its configuration
    "qwen3_next": ("Qwen3NextForCausalLM", "Qwen3NextConfig", {**QWEN, **EXPERTS, "intermediate_size": 96}),
    "qwen3_5": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", {**QWEN, "intermediate_size": 96}),
    "qwen3_5_moe": ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig", {**QWEN, **EXPERTS}),
    "qwen4_exp": ("Qwen4ExpForCausalLM", "Qwen4ExpTextConfig", {
        **QWEN, **EXPERTS, "hc_lowrank": 16, "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16,
        "indexer_budget": 64, "indexer_compress_ratio": 16}),
    "olmo_hybrid": ("OlmoHybridForCausalLM", "OlmoHybridConfig", {**GDN, "intermediate_size": 96}),
    "kimi_linear": ("KimiLinearForCausalLM", "KimiLinearConfig", {
        **KDA, "num_local_experts": 4, "linear_head_dim": 32, "linear_num_heads": 4, "qk_rope_head_dim": 16}),
    "bailing_hybrid": ("BailingHybridForCausalLM", "BailingHybridConfig", {
        **KDA, "num_local_experts": 4, "n_group": 2, "topk_group": 1, "head_dim": 16, "num_mtp_layers": 0,
        "qk_rope_head_dim": 16}),
    "glm5_next": ("Glm5NextForConditionalGeneration", "Glm5NextConfig", {
        "text_config": {**KDA, "n_routed_experts": 4, "linear_head_dim": 32, "linear_num_heads": 4, "qk_rope_head_dim": 0,
                        "q_lora_rank": 16, "index_head_dim": 16, "index_n_heads": 2, "index_topk": 64},
        "vision_config": {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64,
                          "patch_size": 4}}),
}


@needs_transformers
def test_every_model_that_has_these_layers_is_among_the_tested():
    import transformers
    from linnet.integrations.transformers import _OURS
    looked_up = "|".join(_OURS)
    files = (pathlib.Path(transformers.__file__).parent / "models").glob("*/modeling_*.py")
    assert {file.parent.name for file in files if re.search(rf'fallback\("({looked_up})"', file.read_text())} == set(MODELS)


@pytest.fixture(params=MODELS)
def model(request):
    import transformers
    torch.manual_seed(0)
    kind, config, options = MODELS[request.param]
    made = getattr(transformers, kind)(getattr(transformers, config)(**options)).eval()
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
        logits = model(input_ids=tokens).logits
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
@pytest.mark.parametrize("said_by", ["seq_idx", "cu_seq_lens_q"])
def test_packed_sequences_keep_apart(integration, said_by):
    """The convolution in front too: a model's layer gives each sequence what it gets alone."""
    import transformers
    torch.manual_seed(0)
    model = transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**MODELS["qwen3_next"][2])).eval()
    layer, lengths = model.model.layers[0].linear_attn, [7, 2, 40]
    x = torch.randn(1, sum(lengths), 64)
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)
    numbers = torch.arange(3).repeat_interleave(torch.tensor(lengths)).unsqueeze(0)
    packed = {"cu_seq_lens_q": offsets, **({"seq_idx": numbers} if said_by == "seq_idx" else {})}
    integration.enable()
    try:
        for gradients in (False, True):
            with torch.set_grad_enabled(gradients):
                together = layer(x, **packed)
                alone = torch.cat([layer(part) for part in x.split(lengths, 1)], 1)
            assert (together - alone).norm() < 1e-5 * alone.norm()
        with pytest.raises(ValueError, match="seq_idx: expected the sequence of each of 49 tokens"):
            layer(x, seq_idx=numbers[:, 1:])
    finally:
        integration.disable()


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
from fla.ops.kda.gate import fused_kda_gate
from fla.ops.gated_delta_rule.chunk import chunk_gated_delta_rule
assert fused_kda_gate is linnet.fused_kda_gate and chunk_gated_delta_rule is linnet.chunk_gated_delta_rule
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
