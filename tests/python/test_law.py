"""@linnet.law: recurrences written in Python, held against token loops; what they may not say; what is kept."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
linnet = pytest.importorskip("linnet", reason="the package is not built: make build")

from linnet import law  # noqa: E402
from test_ops import compare, initial, make, reference, rms  # noqa: E402


@law
def kda(S, q: law.key(normalised=True), k: law.key(normalised=True), v: law.value, g: law.gate("channel"),
        beta: law.strength, scale: law.scale):
    S.decay(g)
    e = v - S.read(k)
    S.write(k, beta * e)
    return scale * S.read(q)


@law
def gated_oja(S, q: law.key, k: law.key, v: law.value, p: law.key, lam: law.scalar, g: law.gate("token"),
              beta: law.strength):
    """A law that is not in the package: a second, free write along p, and a gated output."""
    S.decay(g)
    r = S.read(k)
    S.write(k, beta * (v - r))
    S.write(p, lam * v)
    return torch.tanh(S.read(q)) * torch.sigmoid(v) + (q * k).sum() * 0.5


@law
def rwkv6(S, q: law.key, k: law.key, v: law.value, g: law.gate("channel"), u: law.head_key, scale: law.scale):
    o = scale * (S.read(q) + torch.dot(q * u, k) * v)
    S.decay(g)
    S.write(k, v)
    return o


def test_six_lines_are_kda():
    x = make("kda", B=2)
    state = initial(2, x)
    got = kda(*x.values(), initial_state=state, output_final_state=True)
    compare(got, reference("kda", x, state), {**x, "initial_state": state}, torch.float32)
    built_in = linnet.chunk_kda(*x.values(), initial_state=state, output_final_state=True)
    assert all(map(torch.equal, got, built_in))
    with torch.no_grad():
        o, final = kda.recurrent(*x.values(), initial_state=state, output_final_state=True)
    assert rms(o, got[0]) < 2e-6 and rms(final, got[1]) < 2e-6


def test_modes_follow_from_the_kinds_of_inputs():
    x = make("kda", HV=4)
    A_log, dt_bias = torch.randn(4, requires_grad=True), torch.randn(96, requires_grad=True)
    modes = {"use_gate_in_kernel": True, "A_log": A_log, "dt_bias": dt_bias, "use_qk_l2norm_in_kernel": True,
             "use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True, "output_final_state": True}
    assert all(map(torch.equal, kda(*x.values(), **modes), linnet.chunk_kda(*x.values(), **modes)))


@pytest.mark.parametrize("op", [gated_oja, rwkv6])
def test_a_law_equals_itself_token_by_token(op):
    table = linnet.check(op)
    assert "FAIL" not in table and table.count("ok") > 30 and "dinitial_state" in table


def test_the_check_finds_a_wrong_op():
    wrong = linnet.Recurrence(gated_oja.function)
    wrong.function = lambda S, *x: 1.001 * gated_oja.function(S, *x)
    with pytest.raises(linnet.Error, match="differ from the law"):
        linnet.check(wrong)


def test_a_function_of_the_package_is_checked_in_float64():
    assert "FAIL" not in linnet.check(linnet.chunk_delta_rule)


def test_compile_in_one_graph():
    x = [t.detach() for t in make("kda").values()]
    model = torch.compile(lambda *x: kda(*x)[0] * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(model(*x), kda(*x)[0] * 2)


def test_the_same_law_is_one_op_and_another_is_not():
    again = linnet.Recurrence(kda.function)
    assert again.op.name == kda.op.name

    @law
    def kda_without_scale(S, q: law.key, k: law.key, v: law.value):
        S.write(k, v)
        return S.read(q)

    assert kda_without_scale.op.name != kda.op.name
    with pytest.raises(ValueError, match="scale: expected None"):
        kda_without_scale(*[torch.zeros(1, 4, 1, 8)] * 3, scale=2.0)


PROCESS = """
import torch, linnet
from linnet import law

@law
def mine(S, q: law.key, k: law.key, v: law.value, g: law.gate("token")):
    S.decay(g)
    S.write(k, v * 0.5)
    return S.read(q)

x = torch.ones(1, 20, 1, 16)
x.requires_grad_()
o, _ = mine(x, x, x, -torch.ones(1, 20, 1))
o.sum().backward()
mine.recurrent(*[x.detach()] * 3, -torch.ones(1, 20, 1))
maps = open("/proc/self/maps").read()
print(o.sum().item(), "MLIR" in maps)
"""


def test_a_warm_process_does_not_open_the_compiler(tmp_path):
    """The text of a law is part of the cache's key; where it is written is not."""
    def run(script, **more):
        return subprocess.run([sys.executable, script], capture_output=True, text=True, check=True,
                              env={**os.environ, "LINNET_CACHE_DIR": str(tmp_path / "cache"), **more}).stdout.split()

    (tmp_path / "one.py").write_text(PROCESS)
    (tmp_path / "two.py").write_text("\n\n" + PROCESS)
    cold, warm = run(tmp_path / "one.py"), run(tmp_path / "two.py", LINNET_JIT="0")
    assert cold[0] == warm[0] and cold[1] == "True" and warm[1] == "False"


def test_show():
    text = linnet.show(gated_oja, "law")
    assert "chunk.law @gated_oja" in text and "%r = chunk.read" in text  # named as in the function
    assert "chunk.inverse_unit_lower" in linnet.show(gated_oja, "graph")
    assert "chunk.graph" in linnet.show(gated_oja, "backward", chunk=16)
    assert "LINNET_KERNEL" in linnet.show(gated_oja, "cuda", chunk=16, key_dim=32, value_dim=32)
    assert linnet.show(linnet.chunk_kda, "graph") == linnet.show("kda")
    with pytest.raises(ValueError, match="stage: expected one of law, graph"):
        linnet.show(kda, "soup")


def test_explain():
    x = make("kda", T=40)
    text = linnet.explain(kda, *x.values())
    for words in ("kda forward, K = 24, V = 16, float32", "kda backward", "device    cpu", "chunk 16", "scan", "map",
                  "40 tokens in 1 sequences, 2 value heads", "FLOP a token and head"):
        assert words in text, words
    assert all(t.grad is not None for t in x.values())
    linnet.explain(linnet.chunk_kda, *(t.detach() for t in x.values()))


@law
def skip(S, q: law.key, k: law.key, v: law.value, w: law.value, a: law.scalar):
    """Inputs that are only added: no gradient needs them."""
    S.write(k, v)
    return S.read(q) + w + a


@law
def wasteful(S, q: law.key, k: law.key, v: law.value, w: law.value, g: law.gate("token"), u: law.head_key,
             scale: law.scale):
    """Nothing depends on w, g, u and the scale."""
    S.write(k, v)
    return S.read(q)


@pytest.mark.parametrize("op", [skip, wasteful])
def test_an_input_that_a_kernel_has_no_use_for(op):
    table = linnet.check(op)
    assert "FAIL" not in table and all(f"d{x.name}" in table for x in op.op.inputs)


def test_the_gradient_of_what_nothing_depends_on_is_zero():
    H, K = 2, 8
    x = [torch.randn(1, 20, H, K) for _ in range(4)] + [-torch.rand(1, 20, H), torch.randn(H, K)]
    x = [t.requires_grad_() for t in x]
    A_log = torch.zeros(H, requires_grad=True)
    o, state = wasteful(*x, scale=2.0, use_gate_in_kernel=True, A_log=A_log, output_final_state=True)
    gradients = torch.autograd.grad(o.sum() + state.sum(), (*x, A_log))
    assert all(t.any() for t in gradients[:3]) and not any(t.any() for t in gradients[3:])
    (alone,) = torch.autograd.grad(wasteful(*x)[0].sum(), x[3])
    assert alone.shape == x[3].shape and not alone.any()
    with torch.no_grad():
        assert rms(wasteful.recurrent(*x)[0], o) < 2e-6
        pool = torch.zeros(1, H, K, K)
        wasteful.recurrent(*x, initial_state=pool, inplace_final_state=True)
        assert rms(pool, state) < 2e-6
    wide = [t.detach()[:, :5].double().requires_grad_() for t in x[:5]] + [x[5].detach().double().requires_grad_()]
    with linnet.device("interpreter"):
        assert torch.autograd.gradcheck(lambda *x: wasteful(*x)[0], wide)
    with pytest.raises(ValueError, match=r"w: expected \[B, T, HV, V\] = \[1, 20, 2, 8\], got \[1, 19, 2, 8\]"):
        wasteful(*x[:3], x[3][:, 1:], *x[4:])


def test_an_input_may_be_called_as_an_option_of_the_op():
    """Options of the torch op are no arguments of its kernels."""
    def plain(S, q: law.key, k: law.key, gate: law.value, beta_mode: law.strength):
        S.write(k, beta_mode * gate)
        return S.read(q) * gate

    def same(S, q: law.key, k: law.key, v: law.value, b: law.strength):
        S.write(k, b * v)
        return S.read(q) * v

    x = [t.requires_grad_() for t in (*torch.randn(3, 1, 20, 2, 8), torch.rand(1, 20, 2))]
    results = []
    for function in (plain, same):
        op = torch.compile(linnet.Recurrence(function), fullgraph=True, backend="aot_eager")
        results.append(torch.autograd.grad(op(*x)[0].square().sum(), x))
    assert all(map(torch.equal, *results))


# What is refused, each with the user's line.

def nonlinear(S, q: law.key, k: law.key, v: law.value):
    S.write(k, torch.tanh(S.read(k)))  # HERE
    return S.read(q)


def squared(S, q: law.key, k: law.key, v: law.value):
    r = S.read(k)
    S.write(k, r * r)  # HERE
    return S.read(q)


def state_in_the_gate(S, q: law.key, k: law.key, v: law.value):
    S.decay(torch.dot(v, S.read(k)))  # HERE
    return S.read(q)


def axes_mixed(S, q: law.key, k: law.key, v: law.value):
    S.write(k, v + k)  # HERE
    return S.read(q)


def read_along_values(S, q: law.key, k: law.key, v: law.value):
    S.write(k, v)
    return S.read(v)  # HERE


def unknown_function(S, q: law.key, k: law.key, v: law.value):
    S.write(torch.sin(k), v)  # HERE
    return S.read(q)


def unknown_method(S, q: law.key, k: law.key, v: law.value):
    S.write(k.cos(), v)  # HERE
    return S.read(q)


def branches(S, q: law.key, k: law.key, v: law.value):
    if q.sum():  # HERE
        S.write(k, v)
    return S.read(q)


def a_real_tensor(S, q: law.key, k: law.key, v: law.value):
    S.write(k, torch.ones(3) * v)  # HERE
    return S.read(q)


def no_result(S, q: law.key, k: law.key, v: law.value):  # HERE
    S.write(k, v)


def no_kind(S, q, k: law.key, v: law.value):  # HERE
    return S.read(q)


def taken_name(S, q: law.key, o: law.value):  # HERE
    return S.read(q)


def gradient_of_the_output(S, q: law.key, do: law.value):  # HERE
    return S.read(q) * do


def gradient_of_a_state(S, q: law.key, k: law.key, dinitial_state: law.value):  # HERE
    S.write(k, dinitial_state)
    return S.read(q)


def gradient_before_its_input(S, dv: law.key, v: law.value):  # HERE
    S.write(dv, v)
    return S.read(dv)


def power(S, q: law.key, k: law.key, v: law.value):
    S.write(k, v**2)  # HERE
    return S.read(q)


def comparison(S, q: law.key, k: law.key, v: law.value):
    S.write(k, v if q.sum() == 0 else -v)  # HERE
    return S.read(q)


def another_alphabet(S, q: law.key, é: law.value):  # HERE
    return S.read(q) * é


def of_many_inputs(count):
    """A law of so many, and what it is called with."""
    source = (f"def many(S, q: law.key, v: law.value, {', '.join(f's{i}: law.scalar' for i in range(count - 2))}):\n"
              f"    S.write(q, v)\n    return S.read(q) * ({' + '.join(f's{i} * s{i}' for i in range(count - 2))})\n")
    exec(source, scope := {"law": law})
    return scope["many"], [torch.randn(1, 5, 1, 8, requires_grad=True) for _ in range(2)] + [
        torch.rand(1, 5, 1, requires_grad=True) for _ in range(count - 2)]


def test_a_law_has_27_inputs_at_most():
    function, x = of_many_inputs(27)
    o, state = linnet.Recurrence(function)(*x, initial_state=torch.zeros(1, 1, 8, 8), output_final_state=True)
    assert all(t.any() for t in torch.autograd.grad(o.sum() + state.sum(), x))
    with pytest.raises(linnet.LawError, match="many: expected at most 27 inputs, got 28"):
        linnet.Recurrence(of_many_inputs(28)[0])


@law
def forgets_evenly(S, q: law.key, k: law.key, v: law.value):
    S.decay(-0.1)
    S.write(k, v)
    return S.read(q)


def test_a_decay_that_is_a_number_is_checked_too():
    assert "FAIL" not in linnet.check(forgets_evenly)


REFUSED = [
    (nonlinear, "no chunk form: a written value is expected to be a sum of inputs and of reads"),
    (squared, "no chunk form"),
    (state_in_the_gate, "no chunk form: the gate of decay depends on the state"),
    (axes_mixed, "+: expected equal axes or one number, got value channels and key channels"),
    (read_along_values, "the vector of read: expected key channels, got value channels"),
    (unknown_function, "sin: expected one of exp, log"),
    (unknown_method, "cos: expected one of exp, log"),
    (branches, "a law has no branches"),
    (a_real_tensor, "mul: expected one of exp"),
    (no_result, "expected the token's result"),
    (no_kind, "q: expected a parameter with an annotation"),
    (taken_name, "o: expected another name"),
    (power, "a law has no other operators than + - * /"),
    (comparison, "a law has no conditions"),
    (another_alphabet, "é: expected a name of ASCII letters"),
    (gradient_of_the_output, "do: expected another name"),
    (gradient_of_a_state, "dinitial_state: expected another name"),
    (gradient_before_its_input, "dv: expected another name, this is how the gradient of v is called"),
]


@pytest.mark.parametrize("function, words", REFUSED, ids=[row[0].__name__ for row in REFUSED])
def test_a_law_that_cannot_be_is_refused_at_its_line(function, words):
    with pytest.raises(linnet.LawError) as caught:
        op = linnet.Recurrence(function)
        op(*[torch.zeros(1, 4, 1, 8)] * 3)
    message = str(caught.value)
    first = function.__code__.co_firstlineno
    lines = open(__file__).read().splitlines()
    here = next(n for n in range(first, first + 5) if "HERE" in lines[n - 1])
    assert message.startswith(f"{__file__}:{here}: ") and words in message
    assert lines[here - 1].strip() in message
