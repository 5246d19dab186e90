"""The ops as torch sees them: tracing, compilation, autocast, checkpoints, threads, processes, memory, import."""

import ast
import os
import pathlib
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")
linnet = pytest.importorskip("linnet", reason="the package is not built: make build")

from test_ops import call, initial, make, rms  # noqa: E402

# scale, gate, lower_bound, beta, l2norm, state_v_first, device
MODES = (None, "softplus", 0.0, "sigmoid", True, False, "")


def gated():
    x = make("kda", B=2)
    return (*x.values(), torch.randn(2, requires_grad=True), torch.randn(2, 24, requires_grad=True))


def test_opcheck_of_the_forward():
    state = torch.randn(2, 2, 24, 16, requires_grad=True)
    torch.library.opcheck(torch.ops.linnet.kda_forward.default,
                          (*gated(), state, None, *MODES, False, True, 32))


def test_opcheck_of_packed_sequences_with_states():
    x = make("kda")
    torch.library.opcheck(torch.ops.linnet.kda_forward.default,
                          (*x.values(), None, None, None, torch.tensor([0, 30, 30, 37]), None, "pre", 0.0, "plain",
                           False, False, "", False, True, 16))


def test_opcheck_of_the_backward():
    tensors = [x.detach() for x in gated()]
    torch.library.opcheck(torch.ops.linnet.kda_backward.default,
                          (*tensors, None, None, torch.randn(2, 37, 2, 16), None, *MODES, [True] * 7 + [False]))


def test_compile_in_one_graph():
    x, state = make("kda", B=2), torch.randn(2, 2, 24, 16, requires_grad=True)
    A_log, dt_bias = torch.randn(2, requires_grad=True), torch.randn(48, requires_grad=True)

    def model(q, k, v, g, beta, state, A_log, dt_bias):
        o, final = linnet.chunk_kda(q * 2, k, v, g, beta, initial_state=state, output_final_state=True,
                                    use_gate_in_kernel=True, A_log=A_log, dt_bias=dt_bias)
        return o.sin().sum() + final.sum()

    inputs = (*x.values(), state, A_log, dt_bias)
    plain = torch.autograd.grad(model(*inputs), inputs)
    compiled = torch.autograd.grad(torch.compile(model, fullgraph=True, backend="aot_eager")(*inputs), inputs)
    assert all(rms(a, b) < 1e-6 for a, b in zip(compiled, plain))


def test_compile_of_other_lengths():
    model = torch.compile(lambda *x: linnet.chunk_gla(*x)[0], fullgraph=True, dynamic=True)
    for T in (17, 40):
        x = [t.detach() for t in make("gla", T=T).values()]
        assert torch.equal(model(*x), linnet.chunk_gla(*x)[0])


@pytest.mark.parametrize("gradients", [False, True])
def test_a_traced_graph_holds_the_op(gradients):
    x, other = ([t.detach().requires_grad_(gradients) for t in make("kda", seed=seed).values()] for seed in (0, 1))
    for function in (linnet.chunk_kda, linnet.fused_recurrent_kda):
        traced = torch.jit.trace(lambda *x: function(*x)[0], tuple(x))
        assert "linnet::kda_" in str(traced.graph)
        assert torch.equal(traced(*other), function(*other)[0])
    inputs = [t.detach().requires_grad_() for t in x]
    traced = torch.jit.trace(lambda *x: linnet.chunk_kda(*x)[0], tuple(x))
    assert all(map(torch.equal, *(torch.autograd.grad(o.sum(), inputs) for o in (traced(*inputs), linnet.chunk_kda(*inputs)[0]))))
    pool = torch.zeros(1, 2, 24, 16)
    x, other = ([t.detach() for t in y] for y in (x, other))
    traced = torch.jit.trace(lambda pool, *x: linnet.fused_recurrent_kda(*x, initial_state=pool, inplace_final_state=True)[0],
                             (pool.clone(), *x), check_trace=False)
    mine, plain = pool.clone(), pool.clone()
    assert torch.equal(traced(mine, *other),
                       linnet.fused_recurrent_kda(*other, initial_state=plain, inplace_final_state=True)[0])
    assert torch.equal(mine, plain)


def test_derivatives_in_forward_mode_are_refused():
    """By jvp, under and over the other transforms, and by dual tensors; what has no tangent runs."""
    import torch.autograd.forward_ad as forward_ad
    func, (q, k, v, *rest) = torch.func, (t.detach() for t in make("kda").values())

    def run(v, function=linnet.chunk_kda, **options):
        return function(q, k, v, *rest, **options)[0]

    def recurrent(v):
        return run(v, linnet.fused_recurrent_kda)

    def in_place(v):
        return run(v, linnet.fused_recurrent_kda, initial_state=torch.zeros(1, 2, 24, 16), inplace_final_state=True)

    def of_the_state(state):
        return run(v, initial_state=state)

    def dual(gradients):
        with forward_ad.dual_level():
            run(v)
            run(forward_ad.make_dual(v.clone().requires_grad_(gradients), v))

    state, twice = torch.zeros(1, 2, 24, 16), torch.stack((v, v))
    for attempt in (lambda: func.jvp(run, (v,), (v,)), lambda: func.jvp(recurrent, (v,), (v,)),
                    lambda: func.jvp(in_place, (v,), (v,)), lambda: func.jvp(of_the_state, (state,), (state,)),
                    lambda: func.vmap(lambda v: func.jvp(run, (v,), (v,))[1])(twice),
                    lambda: func.jvp(func.vmap(run), (twice,), (twice,)),
                    lambda: func.jvp(func.grad(lambda v: run(v).square().sum()), (v,), (v,)),
                    lambda: dual(False), lambda: dual(True)):
        with pytest.raises(NotImplementedError, match="kda: derivatives in forward mode"):
            attempt()
    o, tangent = func.jvp(lambda x: run(v) * x, (torch.ones(()),), (torch.ones(()),))
    assert torch.equal(o, tangent) and torch.equal(func.vmap(run)(twice)[1], run(v))


def test_a_view_that_torch_negates_by_a_bit_is_read_with_its_sign():
    x = {name: t.detach() for name, t in make("kda", T=3, H=1, HV=1).items()}
    A_log, state = torch.randn(1), torch.randn(1, 1, 24, 16)
    options = {"initial_state": state, "A_log": A_log, "use_gate_in_kernel": True}

    def negated(t):
        return torch._neg_view(-t)

    for function in (linnet.chunk_kda, linnet.fused_recurrent_kda):
        wanted = function(**x, **options)[0]
        for name in x:
            assert torch.equal(function(**{**x, name: negated(x[name])}, **options)[0], wanted), name
        assert torch.equal(function(**x, **{name: negated(t) if t is not True else t for name, t in options.items()})[0],
                           wanted)
    imaginary = torch.complex(x["v"], -x["v"]).conj().imag
    assert imaginary.is_neg() and torch.equal(linnet.chunk_kda(**{**x, "v": imaginary})[0], linnet.chunk_kda(**x)[0])
    with pytest.raises(ValueError, match="initial_state: expected memory to write to, got a negated view"):
        linnet.fused_recurrent_kda(**x, initial_state=negated(state), inplace_final_state=True)


def test_autocast_takes_its_format():
    x = make("kda")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        o, _ = call("kda", "chunk", x)
    assert o.dtype == torch.bfloat16
    o.float().sum().backward()
    assert all(t.grad.dtype == t.dtype for t in x.values())


def test_activation_checkpointing():
    from torch.utils.checkpoint import checkpoint
    x = make("kda")
    wanted = torch.autograd.grad(call("kda", "chunk", x)[0].sum(), list(x.values()))
    o = checkpoint(lambda *t: linnet.chunk_kda(*t)[0], *x.values(), use_reentrant=False)
    assert all(map(torch.equal, torch.autograd.grad(o.sum(), list(x.values())), wanted))


def test_threads_and_forked_workers_at_once():
    """Two threads train while a loader's forked workers call the same ops."""
    x = make("kda", T=300)
    tensors = list(x.values())
    wanted = torch.autograd.grad(call("kda", "chunk", x)[0].sum(), tensors)
    here = [Calls()[i] for i in range(4)]
    results = []

    def work():
        for _ in range(8):
            results.append(all(map(torch.equal, torch.autograd.grad(call("kda", "chunk", x)[0].sum(), tensors), wanted)))

    loader = torch.utils.data.DataLoader(Calls(), batch_size=None, num_workers=2, multiprocessing_context="fork",
                                         timeout=60)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    from_workers = list(loader)
    for thread in threads:
        thread.join()
    assert all(map(torch.equal, from_workers, here)) and results == [True] * 16


def test_two_threads_at_once():
    x = make("kda", T=300)
    wanted = call("kda", "chunk", x)[0]
    results = []

    def work():
        with torch.no_grad():
            results.extend(torch.equal(call("kda", "chunk", x)[0], wanted) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 40


class Calls(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, seed):
        return call("kda", "chunk", make("kda", seed=seed))[0].detach()


def test_a_forked_worker():
    here = [Calls()[i] for i in range(4)]
    loader = torch.utils.data.DataLoader(Calls(), batch_size=None, num_workers=2, multiprocessing_context="fork",
                                         timeout=60)
    assert all(map(torch.equal, loader, here))


def test_large_results_keep_their_memory():
    """What a tensor and all its views gave back is the next one's; what lives is nobody else's."""
    x = [t.detach() for t in make("gla", T=1024, H=8, K=16, V=128).values()]
    with torch.no_grad():
        first, second = (linnet.chunk_gla(*x)[0] for _ in range(2))
        assert first.data_ptr() != second.data_ptr() and torch.equal(first, second)
        address, view, copy = first.data_ptr(), first[0, 5:], first.clone()
        del first
        assert linnet.chunk_gla(*x)[0].data_ptr() != address and torch.equal(view, copy[0, 5:])
        del view
        third = linnet.chunk_gla(*x)[0]
        assert address in (third.data_ptr(), linnet.chunk_gla(*x)[0].data_ptr()) and torch.equal(third, copy)
        kept = [linnet.chunk_gla(*x)[0] for _ in range(80)]  # more than is kept
        del kept
    assert 0 < linnet._C.kept_bytes() <= 256 << 20


def test_large_results_of_several_threads_do_not_meet():
    x = [t.detach() for t in make("gla", T=1024, H=8, K=16, V=128).values()]
    wanted = linnet.chunk_gla(*x)[0]
    results = []

    def work():
        for _ in range(20):
            o = [linnet.chunk_gla(*x)[0] for _ in range(3)]
            results.append(all(torch.equal(y, wanted) for y in o))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 60


def test_the_stubs_name_what_the_module_has():
    from linnet import _C
    stubs = ast.parse((pathlib.Path(linnet.__file__).parent / "_C.pyi").read_text()).body

    def named(body):
        return {x.target.id if isinstance(x, ast.AnnAssign) else x.name for x in body
                if isinstance(x, (ast.AnnAssign, ast.FunctionDef, ast.ClassDef))}

    def public(thing):
        return {name for name in vars(thing) if not name.startswith("_")}

    assert named(stubs) == public(_C) | {"__version__"}
    for node in stubs:
        if isinstance(node, ast.ClassDef) and node.name != "Error":
            assert named(node.body) - {"__init__"} == public(getattr(_C, node.name)), node.name


IMPORT = """
import time, torch, sys
start = time.process_time()  # of this process, whatever else the machine does
import linnet
took = time.process_time() - start
maps = open("/proc/self/maps").read()
print(took * 1000, "linnet_compiler" in maps or "LLVM" in maps or "MLIR" in maps)
"""


def test_import_is_quick_and_loads_no_compiler(tmp_path):
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}  # bytecode is there from the second run on, as installed
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    results = [subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True,
                              env=env).stdout.split() for _ in range(3)]
    assert min(float(ms) for ms, _ in results) < 150
    assert all(loaded == "False" for _, loaded in results)


COUNT_THREADS = """
import os, torch
torch.set_num_threads(2)
a = torch.randn(512, 512)
a @ a  # torch's threads are there
import linnet
def count(): return len(os.listdir("/proc/self/task"))
before = count()
x = [torch.randn(1, 300, 4, 32) for _ in range(3)]
linnet.chunk_delta_rule(*x, torch.rand(1, 300, 4))
print(count() - before)
"""


@pytest.mark.parametrize("own", (False, True))
def test_calls_run_on_the_threads_torch_has(own):
    """Unless LINNET_THREADS asks for threads of Linnet's own: one more for two."""
    environment = {name: x for name, x in os.environ.items() if name != "LINNET_THREADS"}
    if own:
        environment["LINNET_THREADS"] = "2"
    done = subprocess.run([sys.executable, "-c", COUNT_THREADS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == (1 if own else 0)
