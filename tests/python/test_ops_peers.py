"""The drop-in functions against what users have today: FLA's naive torch functions and transformers' fallbacks."""

import ast
import importlib.util
import inspect
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
linnet = pytest.importorskip("linnet", reason="the package is not built: make build")

from test_ops import call, initial, make, rms  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python/bench"))
import peer_functions  # noqa: E402

NAMES = {"linear_attn": "linear_attention"}  # here -> in peer_functions


def peers():
    """(op, family, form): every torch function there is for an op of ours."""
    for op in ("kda", "gated_delta_rule", "delta_rule", "gla", "simple_gla", "linear_attn"):
        for family, functions in peer_functions.FUNCTIONS[NAMES.get(op, op)].items():
            for form, function in zip(("chunk", "token"), functions):
                if function:
                    yield pytest.param(op, function, id=f"{op}-{family}-{form}", marks=pytest.mark.skipif(
                        importlib.util.find_spec(function.package) is None,
                        reason=f"{function.package} is not installed: ./setup.sh --peers"))


def compare(got, expected, inputs, limit=1e-5, gradient_limit=1e-4):
    pairs = [(x, y) for x, y in zip(got, expected) if y is not None]
    for x, y in pairs:
        assert rms(x, y) < limit
    torch.manual_seed(1)
    sums = [torch.randn(x.shape) for x, _ in pairs]
    ours, theirs = (torch.autograd.grad(results, list(inputs.values()), sums) for results in zip(*pairs))
    for name, x, y in zip(inputs, ours, theirs):
        assert rms(x, y) < gradient_limit, f"d{name}"


@pytest.mark.parametrize("op, function", list(peers()))
def test_results_and_gradients_equal_the_peers(op, function):
    x = make(op, B=2, T=64, HV=4)
    state = initial(2, x) if function.keeps_state else None
    inputs = {**x, "initial_state": state} if function.keeps_state else x
    got = call(op, "chunk", x, initial_state=state, output_final_state=function.keeps_state)
    compare(got, function.bind()(x, state, function.keeps_state), inputs)


def naive(folder, name):
    if importlib.util.find_spec("fla") is None:
        pytest.skip("fla-core is not installed: ./setup.sh --peers")
    module = folder if "." in folder else folder + ".naive"
    return getattr(peer_functions.load_fla_file("fla.ops." + module), name)


def test_gdn2_equals_fla():
    x = make("gdn2")
    compare(call("gdn2", "chunk", x, output_final_state=True),
            naive("gdn2", "naive_recurrent_gdn2")(*x.values(), output_final_state=True), x)


def test_comba_equals_fla():
    x = make("comba")
    compare(call("comba", "chunk", x, output_final_state=True),
            naive("comba", "naive_chunk_comba")(*x.values(), output_final_state=True), x)


def heads_first(x):
    return {name: t.transpose(1, 2) if t.dim() > 2 else t for name, t in x.items()}


def test_rwkv6_equals_fla():
    x = make("rwkv6")
    o, state = naive("rwkv6.recurrent_naive", "naive_recurrent_rwkv6")(*heads_first(x).values(),
                                                                       output_final_state=True)
    compare(call("rwkv6", "chunk", x, output_final_state=True), (o.transpose(1, 2), state), x)


@pytest.mark.parametrize("op", ["rwkv7", "dplr_delta_rule"])
def test_rwkv7_equals_fla(op):
    x = make(op)
    ordered = heads_first({name: x[name] for name in "q k v a b g".split()})
    o, state = naive("generalized_delta_rule.dplr.naive", "dplr_recurrence")(*ordered.values())
    compare(call(op, "chunk", x, output_final_state=True), (o.transpose(1, 2), state), x)


def test_retention_equals_fla():
    x = make("retention")
    o = naive("retention", "naive_retention")(*heads_first(x).values())
    compare(call("retention", "chunk", x)[:1], (o.transpose(1, 2),), x)


def test_gated_delta_product_equals_fla():
    x = make("gated_delta_rule", T=40)
    x["q"], x["g"] = (x[name].detach()[:, ::2].clone().requires_grad_() for name in "qg")
    expected = naive("gated_delta_product", "naive_recurrent_gated_delta_product")(
        *x.values(), scale=24**-0.5, num_householder=2, output_final_state=True)
    compare(linnet.chunk_gated_delta_product(*x.values(), 2, output_final_state=True), expected, x)


def test_normalised_linear_attention_equals_fla():
    x = {name: t.detach().abs().requires_grad_() for name, t in make("linear_attn").items()}
    o, (state, keys) = naive("linear_attn", "naive_recurrent_linear_attn")(*x.values(), output_final_state=True,
                                                                           normalize=True)
    got, (got_state, got_keys) = linnet.chunk_linear_attn(*x.values(), output_final_state=True)
    compare((got, got_state, got_keys), (o, state, keys), x)


def flas_parameters():
    """{function: [(parameter, default as text or None)]} of fla.ops, read from its files: they do not load without Triton."""
    found = {}
    for file in (pathlib.Path(importlib.util.find_spec("fla").submodule_search_locations[0]) / "ops").rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                names = [x.arg for x in node.args.args]
                defaults = [ast.literal_eval(x) if isinstance(x, ast.Constant) else ast.unparse(x) for x in node.args.defaults]
                required = [inspect.Parameter.empty] * (len(names) - len(defaults))
                found[node.name] = list(zip(names, required + defaults))
    return found


@pytest.mark.skipif(importlib.util.find_spec("fla") is None, reason="fla-core is not installed: ./setup.sh --peers")
def test_names_order_and_defaults_are_flas():
    theirs = flas_parameters()
    compared = 0
    for name in linnet.__all__:
        if name not in theirs:
            continue
        ours = [(p.name, str(p.default) if isinstance(p.default, torch.dtype) else p.default)
                for p in inspect.signature(getattr(linnet, name)).parameters.values()]
        assert ours[:len(theirs[name])] == theirs[name], name
        assert all(default is not inspect.Parameter.empty for _, default in ours[len(theirs[name]):]), name
        compared += 1
    assert compared >= 26
