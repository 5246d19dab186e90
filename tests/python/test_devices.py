"""The same functions on other devices: the virtual GPU, the interpreter in float64, and CUDA as far as it can be asked."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
linnet = pytest.importorskip("linnet", reason="the package is not built: make build")

from test_ops import call, initial, make, rms  # noqa: E402

VIRTUAL = """
import sys, torch
sys.path.insert(0, {folder!r})
import linnet
from test_law import gated_oja, wasteful
from test_ops import call, initial, make, rms

x = make("kda", T=38, H=1, HV=2, K=32, V=16)
state = initial(3, x, K=32)

def run():
    o, final = call("kda", "chunk", x, initial_state=state, output_final_state=True,
                    cu_seqlens=torch.tensor([0, 5, 5, 38]).int())
    return o, final, *torch.autograd.grad(o.square().sum() + final.sum(), [*x.values(), state])

here = run()
with linnet.device("virtual:sm_90"):
    there = run()
    text = linnet.explain(linnet.chunk_kda, *(t.detach() for t in x.values()))
for a, b in zip(here, there):
    assert rms(b, a) < 2e-5, rms(b, a)
assert all(t.is_cpu for t in there) and "device    virtual:sm_90" in text and "launches" in text
x = make("kda", T=2, K=32, V=16)
with torch.no_grad(), linnet.device("virtual:sm_90"):
    o, _ = call("kda", "fused_recurrent", x)
assert rms(o, call("kda", "fused_recurrent", x)[0]) < 2e-6
pool = torch.randn(4, 2, 32, 16)
pools = pool.clone(), pool.clone()
with torch.no_grad():
    slots = {{"inplace_final_state": True, "ssm_state_indices": torch.tensor([3])}}
    wanted, _ = call("kda", "fused_recurrent", x, initial_state=pools[0], **slots)
    with linnet.device("virtual:sm_90"):
        got, _ = call("kda", "fused_recurrent", x, initial_state=pools[1], **slots)
assert rms(got, wanted) < 2e-6 and rms(pools[1], pools[0]) < 2e-6 and not torch.equal(pools[1], pool)

# Tensors on a GPU go by their pointers: here the virtual one's.
from linnet import _C
device = _C.Device("virtual:sm_90")

class OnGpu:
    is_cpu, is_cuda, device = False, True, "cuda:0"
    def __init__(self, tensor):
        self.host, self.shape, self.dtype = tensor, tensor.shape, tensor.dtype
        self.buffer = device.allocate(tensor.nbytes)
        device.write(self.buffer, tensor.data_ptr())
    def stride(self):
        return self.host.stride()
    def is_neg(self):
        return False
    def data_ptr(self):
        return self.buffer.address
    def back(self):
        device.read(self.host.data_ptr(), self.buffer)
        return self.host

there = {{name: OnGpu(t.detach()) for name, t in x.items()}}
there["o"] = OnGpu(torch.zeros(1, 2, 2, 16))
built = device.build(_C.Problem("kda", key_dim=32, value_dim=16))
workspace = device.allocate(built.workspace_bytes(there))
built.run(there, 0, workspace.address, workspace.bytes)
device.synchronise()
assert rms(there["o"].back(), o) < 2e-6
try:
    built.run({{**there, "k": x["k"].detach()}})
    raise SystemExit("one tensor is elsewhere")
except ValueError as error:
    assert "k: expected all tensors on one device, got one on cpu" in str(error)
for op in gated_oja, wasteful:
    table = linnet.check(op, device="virtual:sm_90")
    assert "FAIL" not in table and "on virtual:sm_90" in table
print("fine")
"""


def test_the_virtual_gpu_gives_what_the_cpu_gives():
    pytest.importorskip("nvidia", reason="NVRTC is not installed")
    run = subprocess.run([sys.executable, "-c", VIRTUAL.format(folder=os.path.dirname(__file__))], capture_output=True,
                         text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip().endswith("fine")


def test_a_device_that_is_not_known():
    with pytest.raises(ValueError, match="device: expected cpu, cuda:<number> or virtual:sm_<arch>, got 'soup'"):
        linnet.device("soup")
    with pytest.raises(TypeError, match="device: expected a name such as 'cpu' or 'virtual:sm_90', got NoneType"):
        linnet.device(None)


def test_whether_to_compile_is_0_or_1(tmp_path):
    script = "import torch, linnet; linnet.chunk_linear_attn(*[torch.ones(1, 2, 1, 4)] * 3)"
    for word in ("no", "false", "2"):
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                             env={**os.environ, "LINNET_CACHE_DIR": str(tmp_path), "LINNET_JIT": word})
        assert f"ValueError: LINNET_JIT: expected 0 or 1, got '{word}'" in run.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there():
    with pytest.raises(linnet.Error):
        linnet.device("cuda:0")


def test_every_op_is_there_for_cuda_tensors():
    for name in ("forward", "inference", "backward", "decode"):
        for key in ("CPU", "CUDA", "Meta"):
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"linnet::kda_{name}", key), (name, key)


def float64(op, **sizes):
    return [t.detach().double().requires_grad_() for t in make(op, **sizes).values()]


@pytest.mark.parametrize("op", ["kda", "gla", "rwkv7"])
def test_gradcheck_in_float64_on_the_interpreter(op):
    x = dict(zip(make(op), float64(op, T=6, H=1, HV=2, K=3, V=2)))
    state = torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True)

    def function(*tensors):
        return call(op, "chunk", dict(zip(x, tensors[:-1])), initial_state=tensors[-1], output_final_state=True)

    with linnet.device("interpreter"):
        assert torch.autograd.gradcheck(function, (*x.values(), state))


def test_gradcheck_of_gates_in_the_kernel_and_packed_sequences():
    q, k, v, g, beta = float64("kda", T=6, H=1, K=3, V=2)
    A_log, dt_bias = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (1, 3))

    def function(q, k, v, g, beta, A_log, dt_bias):
        return linnet.chunk_kda(q, k, v, g, beta, use_gate_in_kernel=True, A_log=A_log, dt_bias=dt_bias, lower_bound=-3.0,
                                use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                                cu_seqlens=torch.tensor([0, 2, 2, 6]))[0]

    with linnet.device("interpreter"):
        assert torch.autograd.gradcheck(function, (q, k, v, g, beta, A_log, dt_bias))


def test_the_interpreter_takes_float64_only():
    with linnet.device("interpreter"), pytest.raises(TypeError, match="q: expected float64 on the interpreter"):
        linnet.chunk_kda(*make("kda").values())


def test_the_interpreter_agrees_with_the_kernels():
    x = make("comba", T=20)
    state = initial(1, x)
    o, final = call("comba", "chunk", x, initial_state=state, output_final_state=True)
    with linnet.device("interpreter"):
        wide = {name: t.detach().double() for name, t in x.items()}
        exact = call("comba", "chunk", wide, initial_state=state.detach().double(), output_final_state=True)
    assert exact[0].dtype == torch.float64 and rms(o, exact[0]) < 2e-6 and rms(final, exact[1]) < 2e-6
