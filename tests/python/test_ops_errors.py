"""Bad input: ValueError or TypeError that names the argument, what was expected and what came. One row each."""

import inspect
import pathlib

import pytest

torch = pytest.importorskip("torch")
linnet = pytest.importorskip("linnet", reason="the package is not built: make build")

from test_ops import FUNCTIONS, make  # noqa: E402


def kda(**changes):
    x = {name: t.detach() for name, t in make("kda", B=2, T=10, HV=4).items()}
    return linnet.chunk_kda(**{**x, **changes})


def packed(offsets, dtype=torch.int64, **changes):
    x = {name: t.detach() for name, t in make("kda", T=10).items()}
    return linnet.chunk_kda(**x, cu_seqlens=torch.tensor(offsets, dtype=dtype), **changes)


def array(**changes):
    """v as an array of NumPy."""
    return pytest.importorskip("numpy").zeros((2, 10, 4, 16), **{"dtype": "float32", **changes})


def drafts(slots):
    x = {name: t.detach() for name, t in make("kda", B=2, T=1).items()}
    return linnet.fused_recurrent_kda(**x, initial_state=torch.zeros(3, 2, 24, 16), inplace_final_state=True,
                                      ssm_state_indices=slots)


gate = {"use_gate_in_kernel": True}
ROWS = [
    # what is wrong, the call, the error, words of its message
    ("not a tensor", lambda: kda(q=[1.0]), TypeError, "q: expected a tensor [B, T, H, K], got list"),
    ("rank", lambda: kda(k=torch.zeros(2, 10, 24)), ValueError, "k: expected [B, T, H, K], got [2, 10, 24]"),
    ("float64", lambda: kda(v=torch.zeros(2, 10, 4, 16).double()), TypeError,
     "v: expected float32, bfloat16 or float16, got torch.float64"),
    ("integers", lambda: kda(g=torch.zeros(2, 10, 4, 24).int()), TypeError, "g: expected float32"),
    ("formats mixed", lambda: kda(k=torch.zeros(2, 10, 2, 24).bfloat16()), TypeError,
     "k: expected float32 [B, T, H, K], got bfloat16 [2, 10, 2, 24]"),
    ("device", lambda: kda(q=torch.zeros(2, 10, 2, 24, device="meta")), ValueError,
     "q: expected a tensor on cpu or cuda, got one on meta"),
    ("devices mixed", lambda: kda(k=torch.zeros(2, 10, 2, 24, device="meta")), ValueError,
     "k: expected a tensor on cpu or cuda, got one on meta"),
    ("scale with a gradient", lambda: kda(scale=torch.ones((), requires_grad=True)), ValueError,
     "scale: expected a number, which has no gradient; got a tensor that requires one"),
    ("A_log that would get no gradient", lambda: kda(A_log=torch.zeros(4, requires_grad=True)), ValueError,
     "A_log: expected use_gate_in_kernel=True for a tensor that requires a gradient, got False"),
    ("dt_bias that would get no gradient", lambda: kda(dt_bias=torch.zeros(96, requires_grad=True)), ValueError,
     "dt_bias: expected use_gate_in_kernel=True"),
    ("gradient of offsets", lambda: packed([0.0, 10.0], torch.float32), TypeError, "cu_seqlens: expected int32 or int64"),
    ("interval", lambda: kda(return_intermediate_states=-3), ValueError,
     "return_intermediate_states: expected False, True or a number of tokens from 1 to 16777216, got -3"),
    ("A_log not a tensor", lambda: kda(**gate, A_log=1.0), TypeError, "A_log: expected a tensor [HV], got float"),
    ("state not a tensor", lambda: kda(initial_state=0.0), TypeError, "initial_state: expected a tensor [N, HV, K, V]"),
    ("state with integers", lambda: kda(initial_state=torch.zeros(2, 4, 24, 16).int()), TypeError,
     "initial_state: expected a floating tensor, got torch.int32"),
    ("offsets not a tensor", lambda: kda(cu_seqlens=[0, 10]), TypeError, "cu_seqlens: expected a tensor [N + 1], got list"),
    ("bound not a number", lambda: kda(**gate, A_log=torch.zeros(4), lower_bound="-5"), TypeError,
     "lower_bound: expected a number in [-5, 0), got str"),
    ("scale not a number", lambda: kda(scale="big"), TypeError, "scale: expected a number, got str"),
    ("array back to front", lambda: kda(v=array()[:, ::-1]), ValueError,
     "v: expected an array without negative strides, got strides (2560, -256, 64, 4)"),
    ("array of the other byte order", lambda: kda(v=array(dtype=">f4")), TypeError,
     "v: expected an array that torch can take, got ndarray: DLPack only supports native byte order"),
    ("array of objects", lambda: kda(v=array(dtype=object)), TypeError, "v: expected an array that torch can take"),
    ("array of float64", lambda: kda(v=array(dtype="float64")), TypeError, "v: expected float32, bfloat16 or float16"),
    *((f"offsets of {dtype}", lambda dtype=dtype: packed([0, 10], dtype), TypeError,
       f"cu_seqlens: expected int32 or int64 [N + 1], got {dtype}") for dtype in (torch.int16, torch.float64, torch.bool)),
    ("offsets empty, with states", lambda: packed([], output_final_state=True), ValueError,
     "cu_seqlens: expected [N + 1], one number at least, got [0]"),
    ("interval too long", lambda: kda(return_intermediate_states=2**31), ValueError,
     "return_intermediate_states: expected False, True or a number of tokens from 1 to 16777216, got 2147483648"),
    ("interval beyond 64 bits", lambda: kda(return_intermediate_states=2**63), ValueError, "got 9223372036854775808"),
    ("scale beyond a float", lambda: kda(scale=10**400), ValueError, "scale: expected a finite number, got one"),
    ("A_log complex", lambda: kda(**gate, A_log=torch.zeros(4, dtype=torch.cfloat)), TypeError,
     "A_log: expected a floating tensor [HV], got torch.complex64"),
    ("dt_bias of integers", lambda: kda(**gate, A_log=torch.zeros(4), dt_bias=torch.zeros(96).int()), TypeError,
     "dt_bias: expected a floating tensor [HV, K], got torch.int32"),
    ("a sparse tensor", lambda: kda(k=torch.zeros(2, 10, 2, 24).to_sparse()), TypeError,
     "k: expected a dense tensor [B, T, H, K], got a torch.sparse_coo one"),
    ("a tensor of mkldnn", lambda: kda(k=torch.zeros(2, 10, 2, 24).to_mkldnn()), TypeError, "got a torch._mkldnn one"),
    ("a nested tensor", lambda: kda(v=torch.nested.nested_tensor([torch.zeros(10, 4, 16)] * 2)), TypeError,
     "v: expected a dense tensor [B, T, HV, V], got a nested one"),
    ("a sparse state", lambda: kda(initial_state=torch.zeros(2, 4, 24, 16).to_sparse()), TypeError,
     "initial_state: expected a dense tensor [N, HV, K, V]"),
    ("drafts without rows", lambda: drafts(torch.zeros(2, 0).long()), ValueError,
     "ssm_state_indices: expected [N, S] with S at least 1, got [2, 0]"),
    *((f"{name} that is no bool", lambda name=name: kda(**{name: "no"}), TypeError, f"{name}: expected a bool, got str")
      for name in ("use_qk_l2norm_in_kernel", "state_v_first", "use_gate_in_kernel", "use_beta_sigmoid_in_kernel")),
    ("layer beyond the last", lambda: linnet.chunk_lightning_attn(*[torch.zeros(1, 4, 2, 8)] * 3, 4, 4), ValueError,
     "layer_idx: expected a number below num_layers = 4, got 4"),
    ("offsets in steps", lambda: linnet.chunk_gated_delta_product(
        torch.zeros(1, 4, 2, 8), *[torch.zeros(1, 12, 2, 8)] * 2, None, torch.zeros(1, 12, 2), 3,
        cu_seqlens=torch.tensor([0, 5])), ValueError,
     "cu_seqlens in steps, 3 a token: expected the last to be T = 12, got 15"),
    ("tokens differ", lambda: kda(k=torch.zeros(2, 9, 2, 24)), ValueError, "k: expected f32 [B, T, H, K] = "
     "[2, 10, 2, 24], got f32 [2, 9, 2, 24]"),
    ("channels differ", lambda: kda(g=torch.zeros(2, 10, 4, 20)), ValueError, "g: expected f32 [B, T, HV, K]"),
    ("a decay a token where channels decay", lambda: kda(g=torch.zeros(2, 10, 4)), ValueError,
     "g: expected [B, T, HV, K], got [2, 10, 4]"),
    ("heads", lambda: kda(v=torch.zeros(2, 10, 3, 16), g=torch.zeros(2, 10, 3, 24), beta=torch.zeros(2, 10, 3)),
     ValueError, "HV = 3, H = 2"),
    ("beta heads", lambda: kda(beta=torch.zeros(2, 10, 2)), ValueError, "beta: expected f32 [B, T, HV] = [2, 10, 4]"),
    ("state count", lambda: kda(initial_state=torch.zeros(3, 4, 24, 16)), ValueError,
     "initial_state: expected f32 [N, HV, K, V] = [2, 4, 24, 16], got f32 [3, 4, 24, 16]"),
    ("state layout", lambda: kda(initial_state=torch.zeros(2, 4, 24, 16), state_v_first=True), ValueError,
     "initial_state: expected f32 [N, HV, V, K]"),
    ("scale", lambda: kda(scale=float("inf")), ValueError, "scale: expected a finite number, got inf"),
    ("A_log missing", lambda: kda(**gate), ValueError, "A_log: expected a tensor [HV]"),
    ("A_log size", lambda: kda(**gate, A_log=torch.zeros(3)), ValueError, "A_log: expected [HV] = 4 numbers, got [3]"),
    ("dt_bias size", lambda: kda(**gate, A_log=torch.zeros(4), dt_bias=torch.zeros(4)), ValueError,
     "dt_bias: expected [HV, K] = 96 numbers, got [4]"),
    ("safe gate without bound", lambda: kda(**gate, A_log=torch.zeros(4), safe_gate=True), ValueError,
     "lower_bound: expected a number in [-5, 0)"),
    ("bound too low", lambda: kda(**gate, A_log=torch.zeros(4), lower_bound=-6.0), ValueError,
     "lower_bound: expected a number in [-5, 0), got -6.0"),
    ("bound not below 0", lambda: kda(**gate, A_log=torch.zeros(4), lower_bound=0.0), ValueError, "got 0.0"),
    ("negative eigenvalues", lambda: kda(allow_neg_eigval=True), ValueError,
     "allow_neg_eigval: expected use_beta_sigmoid_in_kernel=True"),
    ("chunk size", lambda: kda(chunk_size=48), ValueError, "chunk_size: expected 16, 32, 64 or 128, got 48"),
    ("cp_context", lambda: kda(cp_context=object()), ValueError, "cp_context: expected None"),
    ("unknown keyword", lambda: kda(head_first=True), TypeError, "head_first"),
    ("offsets of a batch", lambda: kda(cu_seqlens=torch.tensor([0, 10])), ValueError,
     "cu_seqlens: expected B = 1, all sequences packed into one row, got B = 2"),
    ("offsets not whole", lambda: packed([0, 10], torch.float32), TypeError, "cu_seqlens: expected int32 or int64 [N + 1], got torch.float32"),
    ("offsets falling", lambda: packed([0, 6, 4, 10]), ValueError, "cu_seqlens: expected numbers that do not fall"),
    ("offsets end", lambda: packed([0, 9]), ValueError, "cu_seqlens: expected the last to be T = 10, got 9"),
    ("offsets start", lambda: packed([1, 10]), ValueError, "cu_seqlens: expected 0 first, got 1"),
    ("offsets empty", lambda: packed([]), ValueError, "cu_seqlens: expected"),
    ("offsets rank", lambda: packed([[0, 10]]), ValueError, "cu_seqlens: expected [N + 1], got [1, 2]"),
    ("states of packed", lambda: packed([0, 10], initial_state=torch.zeros(2, 2, 24, 16)), ValueError,
     "initial_state: expected f32 [N, HV, K, V] = [1, 2, 24, 16]"),
    ("another name in Python", lambda: linnet.chunk_rwkv6(
        torch.zeros(1, 4, 2, 8), torch.zeros(1, 4, 2, 8), torch.zeros(1, 4, 2, 8), torch.zeros(1, 5, 2, 8),
        torch.zeros(2, 8)), ValueError, "w: expected f32 [B, T, HV, K] = [1, 4, 2, 8], got f32 [1, 5, 2, 8]"),
    ("gv", lambda: linnet.fused_recurrent_gla(*[torch.zeros(1, 4, 2, 8)] * 3, gv=torch.zeros(1, 4, 2, 8)), ValueError,
     "gv: expected None"),
    ("reverse", lambda: linnet.fused_recurrent_gla(*[torch.zeros(1, 4, 2, 8)] * 4, reverse=True), ValueError,
     "reverse: expected False"),
    ("steps", lambda: linnet.chunk_gated_delta_product(*[torch.zeros(1, 4, 2, 8)] * 3, None, torch.zeros(1, 4, 2), 2),
     ValueError, "k: expected T x num_householder = 8 steps"),
]


@pytest.mark.parametrize("attempt, error, words", [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_is_refused(attempt, error, words):
    with pytest.raises(error) as caught:
        attempt()
    assert words in str(caught.value)
    assert_ends_in_the_function(caught)


def assert_ends_in_the_function(caught):
    """The caller's frames, then that of the function that was called, and nothing of what is inside."""
    package = pathlib.Path(linnet.__file__).parent
    ours = [frame.name for frame in caught.traceback if package in pathlib.Path(frame.path).parents]
    assert ours == [caught.traceback[-1].name] and ours[0].startswith(("chunk_", "fused_", "__call__", "recurrent"))
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


# How a function calls what `make` calls otherwise, and what else it must be given.
RENAMED = {"rwkv6": {"q": "r", "g": "w"}, "rwkv7": {"q": "r", "g": "w"}, "dplr_delta_rule": {"g": "gk"}}
NUMBERS = {"layer_idx": 1, "num_layers": 4, "num_householder": 1}


def every_function():
    yield from ((kind, op) for kind in ("chunk", "fused_recurrent") for op in (*FUNCTIONS, "gated_delta_product"))
    yield "fused_mul_recurrent", "rwkv7"


def arguments_of(kind, op):
    x = {name: t.detach() for name, t in make("gated_delta_rule" if "product" in op else op, T=3).items()}
    made = {RENAMED.get(op, {}).get(name, name): t for name, t in x.items()}
    if (kind, op) == ("fused_recurrent", "gla"):
        made["gk"] = made.pop("g")
    if kind == "fused_mul_recurrent":
        made["kk"] = made.pop("b")
    parameters = inspect.signature(getattr(linnet, f"{kind}_{op}")).parameters
    return {**made, **{name: x for name, x in NUMBERS.items() if name in parameters}}


def wrong_ones(x):
    yield from ([1.0], 1.0, torch.zeros(3), torch.zeros(()), x.long().unsqueeze(0), x.to("meta"), x.double()[..., :1])
    if x.is_floating_point():
        yield x.long()


@pytest.mark.parametrize("kind, op", list(every_function()))
def test_every_tensor_of_every_function_is_refused_by_name(kind, op):
    function, arguments = getattr(linnet, f"{kind}_{op}"), arguments_of(kind, op)
    o = function(**arguments)[0]
    extra = {"initial_state": torch.zeros(1, 2, arguments["k"].shape[3], o.shape[3]), "cu_seqlens": torch.tensor([0, 3])}
    for name, x in {**arguments, **extra}.items():
        for wrong in wrong_ones(x) if name not in NUMBERS else ("1", None, -1):
            with pytest.raises((TypeError, ValueError)) as caught:
                function(**{**arguments, name: wrong})
            assert str(caught.value).startswith(name), (name, wrong, caught.value)
            assert "expected" in str(caught.value)
            assert_ends_in_the_function(caught)


def test_a_law_of_ones_own_ends_there_too():
    @linnet.law
    def plain(S, q: linnet.law.key(), k: linnet.law.key(), v: linnet.law.value()):
        S.write(k, v)
        return S.read(q)

    x = torch.zeros(1, 4, 2, 8)
    for way, wrong in ((plain, (x, x)), (plain, (x, x, [1.0])), (plain.recurrent, (x, x[:, :3], x))):
        with pytest.raises((TypeError, ValueError)) as caught:
            way(*wrong)
        assert_ends_in_the_function(caught)


def test_the_log_has_the_rest_of_the_traceback(caplog):
    with caplog.at_level("DEBUG", logger="linnet"), pytest.raises(ValueError):
        kda(chunk_size=48)
    assert "in check_chunk" in caplog.text
