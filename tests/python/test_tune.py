"""linnet.tune and linnet.schedule."""

import pytest
import torch

import linnet
from linnet import _device


def _inputs(T=96, H=2, D=16):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, T, H, D) * 0.3 for _ in range(3))
    return q, k, v, -torch.rand(1, T, H, D), torch.rand(1, T, H)


def test_a_schedule_holds_inside_the_with_only():
    inputs = _inputs()
    default, _ = linnet.chunk_kda(*inputs)
    with linnet.schedule("chunk=8"):
        other, _ = linnet.chunk_kda(*inputs)
        with linnet.schedule("chunk=16 register_rows=4"):
            inner, _ = linnet.chunk_kda(*inputs)
    again, _ = linnet.chunk_kda(*inputs)
    assert torch.equal(default, again)
    assert torch.equal(default, inner)  # blocks in registers change no bit
    assert not torch.equal(default, other)
    torch.testing.assert_close(default, other, rtol=1e-4, atol=1e-5)
    assert not _device.schedules


def test_gradients_take_it_too():
    inputs = [x.requires_grad_() for x in _inputs()]
    grads = {}
    for text in ("chunk=16", "chunk=32"):
        with linnet.schedule(text):
            o, _ = linnet.chunk_kda(*inputs)
            grads[text] = torch.autograd.grad(o.square().sum(), inputs)
    for a, b in zip(*grads.values()):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("text", ["chunk", "chunk=x", "chunks=16", "chunk=-1"])
def test_what_is_no_schedule_is_refused(text):
    with pytest.raises(ValueError, match="schedule: expected <field>=<number>"):
        linnet.schedule(text)


def test_a_schedule_that_does_not_fit_is_an_error_of_the_call():
    with pytest.raises(ValueError, match="direction: expected forward, backward or decode"):
        linnet.schedule("chunk=16", direction="sideways")
    with linnet.schedule("chunk=40"), pytest.raises(ValueError, match="chunk"):
        linnet.chunk_kda(*_inputs(D=24))


def test_tune_keeps_what_it_finds(tmp_path, monkeypatch):
    monkeypatch.setenv("LINNET_TUNING_DIR", str(tmp_path))
    found = linnet.tune("linear_attention", budget=3, directions=["forward"], lengths=["medium"], key_dim=16,
                        value_dim=16, report=tmp_path / "report.svg")
    assert len(found) == 1
    assert found[0]["how"] == "measured" and found[0]["length"] == "medium"
    assert found[0]["speedup"] > 0.97 and found[0]["schedule"].startswith("chunk=")
    assert len(list(tmp_path.glob("cpu*.json"))) == 1
    assert "<svg" in (tmp_path / "report.svg").read_text()
    with pytest.raises(ValueError, match="lengths"):
        linnet.tune("linear_attention", lengths=["endless"])
