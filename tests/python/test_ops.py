"""The drop-in functions against token loops in float64: results, gradients, every way of calling them."""

import inspect

import pytest

torch = pytest.importorskip("torch")
linnet = pytest.importorskip("linnet", reason="the package is not built: make build")

import token_loops  # noqa: E402

# name -> (arguments of the drop-in in order, by the law's names)
FUNCTIONS = {
    "kda": "q k v g beta",
    "gated_delta_rule": "q k v g beta",
    "delta_rule": "q k v beta",
    "gla": "q k v g",
    "simple_gla": "q k v g",
    "retention": "q k v",
    "lightning_attn": "q k v",
    "linear_attn": "q k v",
    "comba": "q k v p g beta",
    "gdn2": "q k v g b w",
    "rwkv6": "q k v g u",
    "rwkv7": "q g k v a b",
    "dplr_delta_rule": "q k v a b g",
}
PER_CHANNEL = ("kda", "gla", "gdn2", "rwkv6", "rwkv7", "dplr_delta_rule")
# Ratios of root mean squares: of results; of gradients; of those of gates and strengths.
LIMITS = {torch.float32: (2e-6, 2e-5, 2e-5), torch.bfloat16: (0.005, 0.008, 0.015), torch.float16: (0.002, 0.004, 0.008)}


def rms(x, reference):
    x, reference = x.double(), reference.double()
    return ((x - reference).square().mean().sqrt() / (reference.square().mean().sqrt() + 1e-12)).item()


def make(op, B=1, T=37, H=2, HV=None, K=24, V=16, dtype=torch.float32, gate_dtype=torch.float32, seed=0):
    """Inputs by the law's names, of the kind models produce, that require gradients."""
    torch.manual_seed(seed)
    HV = HV or H
    F = torch.nn.functional
    wanted = FUNCTIONS[op].split()
    key = F.normalize(torch.randn(B, T, H, K), dim=-1)
    x = {"q": torch.randn(B, T, H, K), "k": F.normalize(torch.randn(B, T, H, K), dim=-1),
         "v": torch.randn(B, T, HV, V), "beta": torch.rand(B, T, HV), "u": torch.randn(HV, K),
         "p": F.normalize(torch.randn(B, T, H, K), dim=-1), "w": torch.rand(B, T, HV, V)}
    x["g"] = F.logsigmoid(torch.randn(B, T, HV, K) if op in PER_CHANNEL else torch.randn(B, T, HV)) / 4
    x["a"], x["b"] = -key, key * torch.rand(B, T, H, K)
    if op == "gdn2":
        x["b"] = torch.rand(B, T, HV, K)
    made = {}
    for name in wanted:
        to = gate_dtype if name == "g" else torch.float32 if name == "u" else dtype
        made[name] = x[name].to(to).requires_grad_()
    return made


def call(op, kind, x, **options):
    """The drop-in `kind`_op on inputs by the law's names."""
    order = FUNCTIONS[op].split()
    if op == "comba" and kind == "fused_recurrent":
        order = "q k p v g beta".split()
    arguments = [x[name] for name in order]
    if op == "lightning_attn":
        arguments += [1, 4]
    if op == "linear_attn":
        options["normalize"] = False
    if op == "gla" and kind == "fused_recurrent":
        return linnet.fused_recurrent_gla(*arguments[:3], gk=arguments[3], **options)
    if op == "gated_delta_rule" and kind == "fused_recurrent":
        return linnet.fused_recurrent_gated_delta_rule(*arguments[:4], beta=arguments[4], **options)
    if op == "rwkv7":
        options.setdefault("scale", x["q"].shape[-1] ** -0.5)
    return getattr(linnet, f"{kind}_{op}")(*arguments, **options)


def reference(op, x, initial_state=None, lengths=None, **options):
    order = {"rwkv7": "q k v a b g".split()}.get(op, list(x))
    x = {name: x[name] for name in order}
    H = x["v"].shape[2]
    if op == "retention":
        x["g"] = (1 - 2.0 ** (-5.0 - torch.arange(H).double())).log()
    if op == "lightning_attn":
        x["g"] = -8 / H * (1 - 1 / 4) * torch.arange(H).double()
    return token_loops.run(op, x, initial_state=initial_state, lengths=lengths, **options)


def compare(got, expected, inputs, dtype, seed=1):
    """Results, then the gradients of a random sum of them."""
    (o, state), (o_expected, state_expected) = got, expected
    limit, tight, loose = LIMITS[dtype]
    assert o.dtype == dtype and state.dtype == torch.float32
    assert rms(o, o_expected) < limit
    assert rms(state, state_expected) < limit
    torch.manual_seed(seed)
    do, dstate = torch.randn(o.shape).to(dtype), torch.randn(state.shape)
    names, tensors = zip(*inputs.items())
    gradients = torch.autograd.grad((o, state), tensors, (do, dstate))
    wanted = torch.autograd.grad((o_expected, state_expected), tensors, (do.double(), dstate.double()))
    for name, x, gradient, want in zip(names, tensors, gradients, wanted):
        assert gradient.dtype == x.dtype and gradient.shape == x.shape, name
        assert rms(gradient, want) < (loose if name in ("g", "beta", "A_log", "dt_bias") else tight), f"d{name}"


def initial(count, x, K=24):
    return torch.randn(count, x["v"].shape[2], K, x["v"].shape[3], requires_grad=True)


@pytest.mark.parametrize("kind", ["chunk", "fused_recurrent"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_an_odd_length_with_states_equals_the_token_loop(op, kind):
    x = make(op, B=2)
    state = initial(2, x)
    got = call(op, kind, x, initial_state=state, output_final_state=True)
    compare(got, reference(op, x, state), {**x, "initial_state": state}, torch.float32)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_packed_sequences_one_empty_shared_keys(op):
    lengths = [5, 0, 33, 1]
    x = make(op, T=sum(lengths), H=1, HV=2)
    state = initial(4, x)
    cu_seqlens = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    got = call(op, "chunk", x, initial_state=state, output_final_state=True, cu_seqlens=cu_seqlens)
    compare(got, reference(op, x, state, lengths), {**x, "initial_state": state}, torch.float32)
    with torch.no_grad():
        o, final = call(op, "fused_recurrent", x, initial_state=state, output_final_state=True,
                        cu_seqlens=cu_seqlens.int())
    assert rms(o, got[0]) < 2e-6 and rms(final, got[1]) < 2e-6


@pytest.mark.parametrize("op, dtype", [*((op, torch.bfloat16) for op in FUNCTIONS), ("kda", torch.float16)])
def test_half_formats(op, dtype):
    x = make(op, T=70, K=32, V=32, dtype=dtype)
    compare(call(op, "chunk", x, output_final_state=True), reference(op, x), x, dtype)


@pytest.mark.parametrize("T, K, V", [(1, 16, 16), (16, 60, 100), (130, 64, 32), (257, 100, 60)])
def test_kda_sizes(T, K, V):
    x = make("kda", T=T, K=K, V=V, H=1)
    compare(call("kda", "chunk", x, output_final_state=True), reference("kda", x), x, torch.float32)


@pytest.mark.parametrize("options", [
    {"A_log": True, "dt_bias": True}, {"A_log": True}, {"A_log": True, "dt_bias": True, "lower_bound": -5.0},
    {"dt_bias": True, "lower_bound": -2.0, "safe_gate": True}])
@pytest.mark.parametrize("function", [linnet.chunk_kda, linnet.fused_recurrent_kda])
def test_kda_gates_in_the_kernel(function, options):
    if function is linnet.fused_recurrent_kda:
        options = {name: x for name, x in options.items() if name != "safe_gate"}
    x = make("kda", H=1, HV=2)
    trained = {}
    if "A_log" in options:
        trained["A_log"] = torch.randn(2, requires_grad=True)
    if "dt_bias" in options:
        trained["dt_bias"] = torch.randn(2 * 24, requires_grad=True)
    raw = {**x, "g": torch.randn(1, 37, 2, 24, requires_grad=True), "beta": torch.randn(1, 37, 2, requires_grad=True)}
    got = function(*raw.values(), use_gate_in_kernel=True, use_qk_l2norm_in_kernel=True,
                   use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True, output_final_state=True,
                   **{**options, **trained})
    gate = token_loops.activate(raw["g"].double(), *(t.double() if t is not None else None for t in (
        trained.get("A_log"), trained.get("dt_bias"))), options.get("lower_bound"))
    expected = reference("kda", {**raw, "g": gate, "beta": 2 * raw["beta"].double().sigmoid()}, l2norm=True)
    compare(got, expected, {**raw, **trained}, torch.float32)


@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_the_gate_before_the_call_is_the_one_in_the_kernel(lower_bound):
    x = {**make("kda"), "g": torch.randn(1, 37, 2, 24, requires_grad=True)}
    trained = {"A_log": torch.randn(2, requires_grad=True), "dt_bias": torch.randn(48, requires_grad=True)}
    inside, _ = linnet.chunk_kda(*x.values(), use_gate_in_kernel=True, lower_bound=lower_bound, **trained)
    gate = linnet.fused_kda_gate(x["g"], **trained, lower_bound=lower_bound)
    outside, _ = linnet.chunk_kda(*{**x, "g": gate}.values())
    assert rms(inside, outside) < 2e-6
    inputs = [*x.values(), *trained.values()]
    for a, b in zip(*(torch.autograd.grad(o.square().sum(), inputs) for o in (inside, outside))):
        assert rms(a, b) < 2e-5


def test_gdn_gate_in_the_kernel():
    x = {**make("gated_delta_rule"), "g": torch.randn(1, 37, 2, requires_grad=True)}
    trained = {"A_log": torch.randn(2, requires_grad=True), "dt_bias": torch.randn(2, requires_grad=True)}
    got = linnet.chunk_gdn(*x.values(), output_final_state=True, use_gate_in_kernel=True, **trained)
    gate = token_loops.activate(x["g"].double(), *(t.double() for t in trained.values()), None)
    compare(got, reference("gated_delta_rule", {**x, "g": gate}), {**x, **trained}, torch.float32)


def test_state_v_first_is_the_transpose():
    x = make("kda")
    state = initial(1, x)
    o, final = call("kda", "chunk", x, initial_state=state, output_final_state=True)
    flipped, final_flipped = call("kda", "chunk", x, initial_state=state.transpose(2, 3).contiguous(),
                                  output_final_state=True, state_v_first=True)
    assert rms(flipped, o) < 1e-6 and rms(final_flipped.transpose(2, 3), final) < 1e-6


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("function", [linnet.chunk_gated_delta_product, linnet.fused_recurrent_gated_delta_product])
def test_gated_delta_product(function, n):
    x = make("gated_delta_rule", T=20 * n)
    inputs = {**x, "q": x["q"].detach()[:, ::n].clone().requires_grad_(),
              "g": x["g"].detach()[:, ::n].clone().requires_grad_()}
    got = function(*inputs.values(), n, output_final_state=True)
    # A step is a token without decay whose result nobody reads.
    steps = {**inputs, "q": inputs["q"].repeat_interleave(n, 1),
             "g": torch.stack([inputs["g"]] + [torch.zeros_like(inputs["g"])] * (n - 1), 2).flatten(1, 2)}
    o, state = reference("gated_delta_rule", steps)
    compare(got, (o[:, n - 1::n], state), inputs, torch.float32)


@pytest.mark.parametrize("function", [linnet.chunk_linear_attn, linnet.fused_recurrent_linear_attn])
def test_normalised_linear_attention_goes_on_from_its_states(function):
    x = {name: t.detach().abs().requires_grad_() for name, t in make("linear_attn").items()}
    o, (state, keys) = function(*x.values(), output_final_state=True, normalize=True)
    total = (x["q"].double() * x["k"].double().cumsum(1)).sum(-1, keepdim=True) * 24**-0.5
    expected = reference("linear_attn", x)
    compare((o, state), (expected[0] / total, expected[1]), x, torch.float32)
    first, states = function(*(t[:, :20] for t in x.values()), output_final_state=True, normalize=True)
    second, (_, last) = function(*(t[:, 20:] for t in x.values()), initial_state=states, output_final_state=True,
                                 normalize=True)
    assert rms(torch.cat((first, second), 1), o) < 2e-6
    assert last.shape == (1, 1, 2, 24) and rms(last, keys) < 2e-6


@pytest.mark.parametrize("function", [linnet.chunk_linear_attn, linnet.fused_recurrent_linear_attn])
def test_normalised_linear_attention_has_no_states_that_were_not_asked_for(function):
    x = make("linear_attn")
    o, states = function(*x.values(), normalize=True)
    assert states is None and torch.equal(o, function(*x.values(), normalize=True, output_final_state=True)[0])


def test_a_lower_bound_is_any_real_number():
    numpy = pytest.importorskip("numpy")
    x = make("kda")
    results = [linnet.chunk_kda(*x.values(), use_gate_in_kernel=True, lower_bound=bound)[0]
               for bound in (-3.0, -3, numpy.float32(-3))]
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    assert torch.equal(linnet.fused_kda_gate(x["g"], lower_bound=numpy.float32(-3)),
                       linnet.fused_kda_gate(x["g"], lower_bound=-3.0))


def test_intermediate_states_are_those_at_the_start_of_a_chunk():
    x = make("kda", B=2, T=70)
    with torch.inference_mode():
        o, final, states = call("kda", "chunk", x, output_final_state=True, return_intermediate_states=True,
                                chunk_size=32)
        assert states.shape == (2, 3, 2, 24, 16) and not states[:, 0].any()
        for chunk in (1, 2):
            head = {name: t[:, :32 * chunk] for name, t in x.items()}
            assert rms(states[:, chunk], call("kda", "chunk", head, output_final_state=True)[1]) < 1e-6
        packed = call("kda", "chunk", {name: t[:1] for name, t in x.items()}, return_intermediate_states=True,
                      cu_seqlens=torch.tensor([0, 30, 70]))
        assert packed[2].shape == (1, 2, 2, 24, 16)


def test_strided_inputs_and_expanded_gradients():
    x = make("kda", B=2)
    strided = {name: t.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_() for name, t in x.items()}
    scattered = {name: torch.stack((t, t), -1).detach()[..., 0].requires_grad_() for name, t in x.items()}
    o = call("kda", "chunk", x)[0]
    wanted = torch.autograd.grad(o.sum(), list(x.values()))
    for other in (strided, scattered):
        assert not other["q"].is_contiguous()
        got = call("kda", "chunk", other)[0]
        assert torch.equal(got, o)
        assert all(map(torch.equal, torch.autograd.grad(got.sum(), list(other.values())), wanted))


def test_finite_differences():
    x = {name: t.detach().double() for name, t in make("kda", T=5, H=1, K=4, V=3).items()}

    def loss(x):
        o, state = linnet.chunk_kda(*(t.float() for t in x.values()), output_final_state=True)
        return (o.double().square().sum() + state.double().sum())

    tensors = {name: t.clone().requires_grad_() for name, t in x.items()}
    loss(tensors).backward()
    for name, t in tensors.items():
        step = torch.randn_like(t)
        moved = [loss({**x, name: x[name] + sign * 3e-3 * step}) for sign in (1, -1)]
        slope = ((moved[0] - moved[1]) / 6e-3).item()
        assert slope == pytest.approx((t.grad * step).sum().item(), rel=2e-3, abs=1e-3), name


def test_only_what_is_wanted_gets_a_gradient():
    x = {name: t.detach() for name, t in make("kda").items()}
    x["v"].requires_grad_()
    o, state = linnet.chunk_kda(*x.values(), output_final_state=True)
    state.sum().backward()  # the output itself takes no part
    assert x["v"].grad is not None and all(t.grad is None for name, t in x.items() if name != "v")
    assert not linnet.chunk_kda(*(t.detach() for t in x.values()))[0].requires_grad


def test_gradients_of_gradients_are_refused():
    x = make("kda")
    gradient = torch.autograd.grad(call("kda", "chunk", x)[0].sum(), x["q"], create_graph=True)[0]
    with pytest.raises(NotImplementedError, match="kda: gradients of gradients"):
        gradient.sum().backward()


@pytest.mark.parametrize("op", ["kda", "gated_delta_rule", "rwkv7"])
def test_the_same_bits_every_time(op):
    x = make(op, T=600, H=1, HV=2)
    tensors = list(x.values())

    def run():
        o, state = call(op, "chunk", x, output_final_state=True)
        return o, state, *torch.autograd.grad((o, state), tensors, (torch.ones_like(o), torch.ones_like(state)))

    first = run()
    for _ in range(3):
        assert all(map(torch.equal, run(), first))


def test_no_tokens():
    x = make("kda", T=0)
    state = initial(1, x)
    for kind in ("chunk", "fused_recurrent"):
        o, final = call("kda", kind, x, initial_state=state, output_final_state=True)
        assert o.shape == (1, 0, 2, 16) and torch.equal(final, state)


def test_signatures_are_explicit():
    for name in linnet.__all__:
        function = getattr(linnet, name)
        if inspect.isfunction(function) and name != "explain":  # which passes on what another function takes
            kinds = {p.kind for p in inspect.signature(function).parameters.values()}
            assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}, name
            assert function.__doc__, name
