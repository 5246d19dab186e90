"""Every function over the sizes, formats and modes people run, against token loops in float64.

The normal run takes a sample of the grid, LINNET_TEST_ALL=1 (make test-all) all of it. Limits are ratios of root mean
squares: FLA's own or tighter.
"""

import itertools
import os

import pytest

torch = pytest.importorskip("torch")
linnet = pytest.importorskip("linnet", reason="the package is not built: make build")

import token_loops  # noqa: E402
from test_ops import FUNCTIONS, call, make, reference, rms  # noqa: E402

FORMATS = (torch.float32, torch.bfloat16, torch.float16)
SIZES = ((60, 60), (64, 64), (100, 100), (128, 128), (256, 256), (64, 128), (100, 60), (128, 64))  # K, V
LENGTHS = (1, 15, 17, 63, 100, 255, 511, 1000, 1999)
HEADS = ((2, 2), (1, 2), (2, 4), (1, 1))  # of keys, of values
PACKED = ((5, 0, 33, 1), (0, 17, 16), (64, 63, 0), (1, 1, 0, 1))
GATES = {"kda": ("pre", "softplus", "bounded", "bounded without A_log"), "gdn2": ("pre", "softplus", "bounded"),
         "gated_delta_rule": ("pre", "softplus")}
BETAS = {"kda": ("plain", "sigmoid", "twice_sigmoid"), "gated_delta_rule": ("plain", "sigmoid", "twice_sigmoid")}
NORMED = ("kda", "gated_delta_rule", "delta_rule", "comba", "gdn2")
# o and states; gradients of gates, strengths and their parameters; all other gradients.
LIMITS = {torch.float32: (2e-6, 2e-5, 2e-5), torch.bfloat16: (0.005, 0.015, 0.008), torch.float16: (0.002, 0.008, 0.004)}
LOOSE = ("g", "beta", "A_log", "dt_bias")


def tokens_for(K, length):
    """A token loop keeps the state of every token for its gradients: as many as fit."""
    return min(length, 1999 if K <= 64 else 511 if K <= 128 else 129)


def cases():
    """Every op in every format and size; what else there is to choose goes round in steps of its own."""
    lengths, heads, packed = itertools.cycle(LENGTHS), itertools.cycle(HEADS), itertools.cycle((None, *PACKED, None))
    gates, betas, flags = itertools.count(), itertools.count(), itertools.count()
    for (K, V), op, dtype in itertools.product(SIZES, FUNCTIONS, FORMATS):
        n = next(flags)
        yield {"op": op, "dtype": dtype, "K": K, "V": V, "T": tokens_for(max(K, V), next(lengths)), "heads": next(heads),
               "packed": next(packed), "gate": GATES.get(op, ("pre",))[next(gates) % len(GATES.get(op, ("pre",)))],
               "beta": BETAS.get(op, ("plain",))[next(betas) % len(BETAS.get(op, ("plain",)))],
               "l2norm": op in NORMED and n % 2 == 1, "state": n % 3 != 0, "kind": "fused_recurrent" if n % 7 == 3 else
               "chunk", "wide_beta": n % 2 == 0, "chunk_size": (16, 32, 64, 128)[n % 4]}


def name_of(c):
    words = [c["op"], str(c["dtype"]).removeprefix("torch."), f"K{c['K']}", f"V{c['V']}",
             "+".join(map(str, c["packed"])) if c["packed"] else f"T{c['T']}", "H%d-%d" % c["heads"]]
    words += [c[x] for x in ("gate", "beta") if c[x] not in ("pre", "plain")]
    return "-".join(words + ["l2norm"] * c["l2norm"] + ["h0"] * c["state"] + ["recurrent"] * (c["kind"] != "chunk"))


EVERYTHING = list(cases())
# Steps that share no factor with the counts of the axes, so that a sample meets each of their values.
CASES = EVERYTHING if os.environ.get("LINNET_TEST_ALL") else EVERYTHING[5::17]


def test_the_grid_meets_every_value_of_every_axis():
    for axis, values in (("op", FUNCTIONS), ("dtype", FORMATS), ("packed", PACKED), ("heads", HEADS),
                         ("chunk_size", (16, 32, 64, 128)), ("kind", ("chunk", "fused_recurrent"))):
        assert {c[axis] for c in CASES} >= set(values), axis
    assert {c["K"] for c in CASES} >= {60, 64, 100, 128, 256} and max(c["T"] for c in CASES) > 500
    assert {c["gate"] for c in EVERYTHING if c["op"] == "kda"} == set(GATES["kda"])


@pytest.mark.parametrize("c", CASES, ids=[name_of(c) for c in CASES])
def test_equals_the_token_loop(c):
    op, dtype, K, V = c["op"], c["dtype"], c["K"], c["V"]
    H, HV = c["heads"]
    if c["gate"] != "pre":  # A_log has one number a head, a sum over all tokens that nearly cancels: a ratio needs several
        H, HV = 4 * H, 4 * HV
    lengths = c["packed"]
    T = sum(lengths) if lengths else c["T"] if c["gate"] == "pre" else min(c["T"], 255)
    x = make(op, T=T, H=H, HV=HV, K=K, V=V, dtype=dtype)
    options, seen, trained = {"output_final_state": True}, dict(x), {}
    if "beta" in x and c["wide_beta"]:
        x["beta"] = x["beta"].detach().float().requires_grad_()
        seen["beta"] = x["beta"]
    if c["beta"] != "plain":
        x["beta"] = torch.randn(1, T, HV, requires_grad=True)
        twice = c["beta"] == "twice_sigmoid"
        seen["beta"] = (2 if twice else 1) * x["beta"].double().sigmoid()
        options.update(use_beta_sigmoid_in_kernel=True, allow_neg_eigval=twice)
    if c["gate"] != "pre":
        x["g"] = torch.randn(x["g"].shape, requires_grad=True)
        if "without" not in c["gate"]:
            trained["A_log"] = torch.randn(HV, requires_grad=True)
        trained["dt_bias"] = torch.randn(HV * (K if x["g"].dim() == 4 else 1), requires_grad=True)
        bound = -4.0 if "bounded" in c["gate"] else None
        seen["g"] = token_loops.activate(x["g"].double(), *(t.double() if t is not None else None for t in (
            trained.get("A_log"), trained["dt_bias"])), bound)
        options.update(use_gate_in_kernel=True, **trained)
        if bound:
            options["lower_bound"] = bound
    if c["l2norm"]:
        options["use_qk_l2norm_in_kernel"] = True
    if op in ("kda", "gdn2", "gated_delta_rule") and c["kind"] == "chunk":
        options["chunk_size"] = c["chunk_size"]
    state = None
    if c["state"]:
        state = options["initial_state"] = torch.randn(len(lengths or "1"), HV, K, V, requires_grad=True)
    if lengths:
        options["cu_seqlens"] = torch.tensor([0, *itertools.accumulate(lengths)])
    o, final = call(op, c["kind"], x, **options)
    o_wanted, final_wanted = reference(op, seen, state, lengths, l2norm=c["l2norm"])
    limit, loose, tight = LIMITS[dtype]
    assert o.dtype == dtype and final.dtype == torch.float32
    assert rms(o, o_wanted) < limit
    assert rms(final, final_wanted) < limit
    inputs = {**x, **trained, **({"initial_state": state} if c["state"] else {})}
    torch.manual_seed(1)
    do, dfinal = torch.randn(o.shape).to(dtype), torch.randn(final.shape)
    gradients = torch.autograd.grad((o, final), list(inputs.values()), (do, dfinal))
    wanted = torch.autograd.grad((o_wanted, final_wanted), list(inputs.values()), (do.double(), dfinal.double()))
    for name, t, gradient, want in zip(inputs, inputs.values(), gradients, wanted):
        assert gradient.dtype == t.dtype and gradient.shape == t.shape, name
        assert rms(gradient, want) < (loose if name in LOOSE else tight), f"d{name}"
